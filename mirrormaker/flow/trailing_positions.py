"""Positions of the group that are behind what its route has copied, as where the source did not take them: a
right was missing, or whoever keeps them was away; or lost them, along with the end of the log. What is
written at the destination tells where to go on. So it does where such a position is of a log that was gone by
then: it may be farther than what was copied of the log that took its place, and shows by its leader epoch.

A position that somebody has set, as `seek` and other tools do, names no topic: it is where to go on. So is
one that was stored while records were spread by another policy: what is written does not tell which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import lt

from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.books import Books, Reached
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.lane_note import arrears_in, there_in
from mirrormaker.flow.transaction_steps import LanePositions

_log = logger("positions")


async def gone_on(
    books: Books,
    assignments: Collection[Assignment],
    points: Mapping[TopicPartition, StartingPoint],
    reached: Mapping[TopicPartition, Reached],
) -> dict[TopicPartition, StartingPoint]:
    """Where those of them go on that are farther than their `points`, which the group told: up to what the
    source has lost of what was `reached`. Those stay whose leader epoch is known, and not that of where they
    would go on: should the source have lost what lies between, nothing would show it; or is older there, in
    a log that is gone. What lanes lacked as a point was stored is lacking no more where it is written that it
    has arrived.
    """
    trailing = [
        _had(points[each.source]).placed(each)
        for each in assignments
        if each.source in reached and _may_trail(points[each.source])
    ]
    copied = await books.gone_on(trailing) if trailing else {}
    found: dict[TopicPartition, StartingPoint] = {}
    for each in trailing:
        point, lanes = points[each.source], copied.get(each.source, ())
        if _lacks(point, each, lanes):
            continue
        if point.lost is not None:
            lanes = tuple(min(lane, point.lost[0]) for lane in lanes)
        stored, at = min(point.lanes), min(lanes, default=-1)
        epoch = reached[each.source].epoch_before(at)
        shows_loss = epoch >= point.leader_epoch
        if lanes and shows_loss and (point.lost is None or at > stored or _had(point) != point):
            found[each.source] = point._replace(
                lanes=lanes,
                destinations=each.destinations,
                note="",
                leader_epoch=epoch,
                stored=stored,
            )
            _log.info("position_behind_copies", partition=str(each.source), stored=stored, goes_on=at)
    return found


async def of_gone_logs(
    books: Books,
    assignments: Collection[Assignment],
    points: Mapping[TopicPartition, StartingPoint],
    reached: Mapping[TopicPartition, Reached],
    note: Callable[..., None],
) -> dict[TopicPartition, StartingPoint]:
    """Where those of them go on whose `points` are in logs that others had taken the place of when they were
    copied last, and of which it is certain. `note`: takes what a person should know. Raises BrokerError.
    """
    gone = [
        each
        for each in assignments
        if each.source in reached and _is_of_gone_log(points[each.source], reached[each.source])
    ]
    places = (await books.written(gone, {})).stood if gone else {}
    found: dict[TopicPartition, StartingPoint] = {}
    for source, place in places.items():
        stored, at = min(points[source].lanes), min(place.lanes)
        found[source] = points[source]._replace(
            lanes=place.lanes,
            destinations=place.destinations,
            note="",
            leader_epoch=reached[source].epoch_before(at),
            stored=stored,
        )
        note("position_of_gone_log", partition=str(source), stored=stored, goes_on=at)
    return found


def _is_of_gone_log(point: StartingPoint, reached: Reached) -> bool:
    """Whether what was copied last is of newer epochs at lower offsets."""
    newer = reached.epochs.end_of(point.leader_epoch) if point.leader_epoch >= 0 else None
    return point.names_topic and newer is not None and newer < min(point.lanes)


def _may_trail(point: StartingPoint) -> bool:
    is_own = point.names_topic and point.former_position is None
    return is_own and not point.former and not point.was_spread


def _had(point: StartingPoint) -> StartingPoint:
    """The same at what its lanes had as it was stored."""
    there = there_in(min(point.lanes), point.note)
    if there is None or len(there) != len(point.lanes):
        return point
    return point._replace(lanes=tuple(map(min, there, point.lanes)))


def _lacks(point: StartingPoint, assignment: Assignment, lanes: LanePositions) -> bool:
    """Whether it may be that one lacks something of what lies before where it goes on by the point."""
    if arrears_in(min(point.lanes), point.note) is None:
        return False
    if _had(point) == point:
        return True
    own = point.lanes if len(point.lanes) == len(lanes) else point.lanes * len(lanes)
    return not lanes or any(map(lt, lanes, own))
