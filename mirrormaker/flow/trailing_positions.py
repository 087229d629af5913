"""Positions of the group that are behind what its route has copied, as where the source did not take them: a
right was missing, or whoever keeps them was away; or lost them, along with the end of the log. What is
written at the destination tells where to go on.

A position that somebody has set, as `seek` and other tools do, names no topic: it is where to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.books import Books, Reached
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.lane_note import arrears_in

_log = logger("positions")


async def gone_on(
    books: Books,
    assignments: Collection[Assignment],
    points: Mapping[TopicPartition, StartingPoint],
    reached: Mapping[TopicPartition, Reached],
) -> dict[TopicPartition, StartingPoint]:
    """Where those of them go on that are farther than their `points`, which the group told: up to what the
    source has lost of what was `reached`.
    """
    trailing = [
        points[each.source].placed(each)
        for each in assignments
        if each.source in reached and _may_trail(points[each.source])
    ]
    copied = await books.gone_on(trailing) if trailing else {}
    found: dict[TopicPartition, StartingPoint] = {}
    for each in trailing:
        point, lanes = points[each.source], copied.get(each.source, ())
        if point.lost is not None:
            lanes = tuple(min(lane, point.lost[0]) for lane in lanes)
        stored, at = min(point.lanes), min(lanes, default=-1)
        if lanes and (point.lost is None or at > stored):
            found[each.source] = point._replace(
                lanes=lanes,
                destinations=each.destinations,
                note="",
                leader_epoch=reached[each.source].epoch_before(at),
                stored=stored,
            )
            _log.info("position_behind_copies", partition=str(each.source), stored=stored, goes_on=at)
    return found


def _may_trail(point: StartingPoint) -> bool:
    is_own = point.names_topic and point.former_position is None
    has_arrears = arrears_in(min(point.lanes), point.note) is not None
    return is_own and not point.former and not has_arrears
