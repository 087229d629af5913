"""Positions that went back along with the log that they are in.

A source whose leader is lost along with what only that had, as by an unclean election or with a disk, loses
the positions of groups as well. Where it ends before what the ledger knows to be copied, records are lost
that the destination has: of the positions alone that would never show.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets_found
from broker.types import TopicPartition
from mirrormaker.flow.group_positions import StartingPoint

ASK_TIMEOUT_MS = 2_000
"""How long the leaders may take to be found: others wait for that."""


async def with_lost_ends(
    source: Cluster, points: Mapping[TopicPartition, StartingPoint], reached: Mapping[TopicPartition, int]
) -> dict[TopicPartition, StartingPoint]:
    """The points, those with what was lost behind them whose log ends before what has been `reached`. One
    that lies behind the end itself shows that by being out of range.
    """
    ahead = [partition for partition, at in reached.items() if min(points[partition].lanes) < at]
    if not ahead:
        return dict(points)
    listed = await list_offsets_found(source, dict.fromkeys(ahead, LATEST), timeout_ms=ASK_TIMEOUT_MS)
    lost = {partition: (at.offset, reached[partition]) for partition, at in listed.found.items()}
    return {
        partition: point._replace(lost=lost[partition])
        if partition in lost and min(point.lanes) <= lost[partition][0] < lost[partition][1]
        else point
        for partition, point in points.items()
    }
