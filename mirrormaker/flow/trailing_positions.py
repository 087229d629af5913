"""Positions of the group that are behind what its route has copied, as where the source did not take them: a
right was missing, or whoever keeps them was away. What is written at the destination tells where to go on.

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
    """Where those of them go on that are farther than their `points`, which the group told. What the source
    has lost of what was `reached` is none's business here.
    """
    trailing = [
        points[each.source].placed(each)
        for each in assignments
        if each.source in reached and _may_trail(points[each.source])
    ]
    copied = await books.gone_on(trailing) if trailing else {}
    found = {
        each.source: points[each.source]._replace(
            lanes=copied[each.source],
            destinations=each.destinations,
            note="",
            leader_epoch=_epoch_at(min(copied[each.source]), reached[each.source]),
        )
        for each in trailing
        if each.source in copied
    }
    for source, point in found.items():
        stored, at = min(points[source].lanes), min(point.lanes)
        _log.info("position_behind_copies", partition=str(source), stored=stored, goes_on=at)
    return found


def _may_trail(point: StartingPoint) -> bool:
    is_own = point.names_topic and point.former_position is None
    has_arrears = arrears_in(min(point.lanes), point.note) is not None
    return is_own and point.lost is None and not point.former and not has_arrears


def _epoch_at(position: int, reached: Reached) -> int:
    """The leader epoch of the record before; -1: not known."""
    mark = reached.mark
    return mark.epoch if mark is not None and position <= mark.before else -1
