"""Positions that went back along with the log that they are in.

A source whose leader is lost along with what only that had, as by an unclean election or with a disk, loses
the positions of groups as well. Of the positions alone that would never show. So what the ledger knows to be
copied is compared with the source's log: by the leader epoch of it, which shows a loss also where others have
been appended since; as far as no epoch is known of it, by where the log ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets_found
from broker.types import TopicPartition
from mirrormaker.flow.books import Reached
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.partings import ASK_TIMEOUT_MS, Read, partings

NEW_LEADER_MS = 1_000
"""A leader that is new may tell an end of before (Kafka before 2.2, KIP-207): where a log seems to have lost
its end it is asked again after so long.
"""


async def with_lost_ends(
    source: Cluster, points: Mapping[TopicPartition, StartingPoint], reached: Mapping[TopicPartition, Reached]
) -> dict[TopicPartition, StartingPoint]:
    """The points, those with what was lost behind them whose log parts before what has been `reached`. One
    that lies behind that itself shows it when it is fetched from, by its leader epoch: where none was stored
    with it, it is the one of what has been reached.
    """
    ahead = {partition: at for partition, at in reached.items() if min(points[partition].lanes) < at.next}
    ends = await _ends(source, ahead)
    compared = {
        partition: _compared(points[partition], at, ends.get(partition)) for partition, at in reached.items()
    }
    return {**points, **compared}


def _compared(point: StartingPoint, reached: Reached, end: int | None) -> StartingPoint:
    position = min(point.lanes)
    if point.leader_epoch < 0:
        point = point._replace(leader_epoch=reached.epoch_before(position))
    is_lost = end is not None and position <= end < reached.next
    return point._replace(lost=(end, reached.next)) if end is not None and is_lost else point


async def _ends(source: Cluster, reached: Mapping[TopicPartition, Reached]) -> dict[TopicPartition, int]:
    """Where what had been copied of these ends at the source now, where it tells; left out where all of it is
    there by its epochs.
    """
    read = {
        partition: Read(at.epochs, at.mark.before) for partition, at in reached.items() if at.mark is not None
    }
    told = (await partings(source, read)).found
    ends = {partition: read[partition].parting(at) for partition, at in told.items()}
    parted = {partition: end for partition, end in ends.items() if end < read[partition].position}
    whole = {
        partition for partition in ends.keys() - parted if read[partition].position >= reached[partition].next
    }
    others = reached.keys() - parted.keys() - whole
    return parted | await log_ends(source, {partition: reached[partition].next for partition in others})


async def log_ends(cluster: Cluster, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where these logs end, as far as they tell; one that ends before what was `reached` is asked twice."""
    asked = dict.fromkeys(reached, LATEST)
    listed = (await list_offsets_found(cluster, asked, timeout_ms=ASK_TIMEOUT_MS)).found if asked else {}
    ends = {partition: at.offset for partition, at in listed.items()}
    short = {partition: LATEST for partition, end in ends.items() if end < reached[partition]}
    if not short:
        return ends
    await asyncio.sleep(NEW_LEADER_MS / 1000)
    again = (await list_offsets_found(cluster, short, timeout_ms=ASK_TIMEOUT_MS)).found
    told = {partition: end for partition, end in ends.items() if partition not in short}
    return told | {partition: at.offset for partition, at in again.items()}
