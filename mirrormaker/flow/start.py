"""Where a route starts in partitions that it has no position in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, assert_never

from broker.client.cluster import Cluster
from broker.client.offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    OffsetAndTimestamp,
    list_offsets,
    list_offsets_found,
)
from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.topology.model import Start, StartAtOffsets, StartAtTime, StartPosition

_Ask = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, OffsetAndTimestamp]]]
"""As `list_offsets`; what is not told is left out."""


class Starts(NamedTuple):
    """Where partitions start, and of those where that is not known why not."""

    found: dict[TopicPartition, int]
    failures: dict[TopicPartition, BrokerError]


async def start_offsets(
    source: Cluster, start: StartPosition, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset of each partition's first record to copy; behind the newest where none is late enough.
    Raises as `list_offsets`.
    """
    return await _offsets(lambda wanted: list_offsets(source, wanted), start, partitions)


async def start_offsets_found(
    source: Cluster, start: StartPosition, partitions: Collection[TopicPartition], *, timeout_ms: float
) -> Starts:
    """As `start_offsets`, but each partition by itself, as `list_offsets_found`."""
    failures: dict[TopicPartition, BrokerError] = {}

    async def ask(wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        listed = await list_offsets_found(source, wanted, timeout_ms=timeout_ms)
        failures.update(listed.failures)
        return listed.found

    return Starts(await _offsets(ask, start, partitions), failures)


async def _offsets(
    ask: _Ask, start: StartPosition, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    match start:
        case Start.EARLIEST:
            return await _listed(ask, EARLIEST, partitions)
        case Start.LATEST:
            return await _listed(ask, LATEST, partitions)
        case StartAtTime():
            return await _at_time(ask, start, partitions)
        case StartAtOffsets():
            return await _at_offsets(ask, start, partitions)
        case _:
            assert_never(start)


async def _listed(
    ask: _Ask, moment: int, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    found = await ask(dict.fromkeys(partitions, moment))
    return {each: at.offset for each, at in found.items()}


async def _at_time(
    ask: _Ask, start: StartAtTime, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends are asked for first: what comes between the two questions may be late enough."""
    ends = await _listed(ask, LATEST, partitions)
    found = await _listed(ask, start.timestamp_ms, ends)
    return {each: ends[each] if offset == NO_OFFSET else offset for each, offset in found.items()}


async def _at_offsets(
    ask: _Ask, start: StartAtOffsets, partitions: Collection[TopicPartition]
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
    found = await ask(asked)
    return {each: min(at.offset, named.get(each, at.offset)) for each, at in found.items()}
