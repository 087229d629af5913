"""Where a route starts in partitions that it has no position in."""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from broker.client.cluster import Cluster
from broker.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from broker.types import TopicPartition
from mirrormaker.topology.model import Start, StartAtOffsets, StartAtTime, StartPosition


async def start_offsets(
    source: Cluster, start: StartPosition, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset of each partition's first record to copy; behind the newest where none is late enough.
    Raises as `list_offsets`.
    """
    match start:
        case Start.EARLIEST:
            return await _listed(source, EARLIEST, partitions)
        case Start.LATEST:
            return await _listed(source, LATEST, partitions)
        case StartAtTime():
            return await _at_time(source, start, partitions)
        case StartAtOffsets():
            return await _at_offsets(source, start, partitions)
        case _:
            assert_never(start)


async def _listed(
    source: Cluster, moment: int, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    found = await list_offsets(source, dict.fromkeys(partitions, moment))
    return {each: at.offset for each, at in found.items()}


async def _at_time(
    source: Cluster, start: StartAtTime, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends are asked for first: what comes between the two questions may be late enough."""
    ends = await _listed(source, LATEST, partitions)
    found = await _listed(source, start.timestamp_ms, partitions)
    return {each: ends[each] if offset == NO_OFFSET else offset for each, offset in found.items()}


async def _at_offsets(
    source: Cluster, start: StartAtOffsets, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """As named, but none behind the newest, which stands for those; the earliest for others. What the source
    has deleted of what was named is the reader's business (`resume_at`).
    """
    named = {
        each: start.offsets[each.topic][each.partition]
        for each in partitions
        if each.partition in start.offsets.get(each.topic, {})
    }
    asked = {each: LATEST if each in named else EARLIEST for each in partitions}
    found = await list_offsets(source, asked)
    return {each: min(at.offset, named.get(each, at.offset)) for each, at in found.items()}
