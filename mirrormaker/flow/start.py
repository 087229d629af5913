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
    if isinstance(start, StartAtOffsets):
        return await _at_offsets(source, start, partitions)
    wanted = dict.fromkeys(partitions, _moment(start))
    found = {each: at.offset for each, at in (await list_offsets(source, wanted)).items()}
    late = [each for each, offset in found.items() if offset == NO_OFFSET]
    if late:
        ends = await list_offsets(source, dict.fromkeys(late, LATEST))
        found |= {each: at.offset for each, at in ends.items()}
    return found


def _moment(start: Start | StartAtTime) -> int:
    match start:
        case Start.EARLIEST:
            return EARLIEST
        case Start.LATEST:
            return LATEST
        case StartAtTime():
            return start.timestamp_ms
        case _:
            assert_never(start)


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
