"""Of what time the records of partitions are, as their first batches and their clusters tell."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing

from broker.client.cluster import Cluster
from broker.client.offsets import MAX_TIMESTAMP, earliest_offsets, latest_offsets, list_offsets
from broker.clock import SystemClock
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.audit.entries import columns_of
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range


async def time_bounds(cluster: Cluster, partitions: Collection[TopicPartition]) -> tuple[int, int] | None:
    """Of the first records the least time, and the greatest of all, milliseconds since the epoch; None: there
    are no records. None is greater than now: producers may say any time, such as one in microseconds.
    Clusters that do not tell the greatest are taken to have records of now. Raises BrokerError.
    """
    starts, ends = await earliest_offsets(cluster, partitions), await latest_offsets(cluster, partitions)
    filled = [each for each in partitions if starts[each] < ends[each]]
    firsts = [
        first
        for each in filled
        if (first := await _first_time(cluster, each, Range(starts[each], ends[each]))) is not None
    ]
    if not firsts:
        return None
    now_ms = SystemClock().now_ms()
    try:
        found = await list_offsets(cluster, dict.fromkeys(filled, MAX_TIMESTAMP))
        latest = max(at.timestamp for at in found.values())
    except ProtocolError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        latest = now_ms
    return max(min(firsts), 0), min(max(latest, *firsts), now_ms)


async def _first_time(cluster: Cluster, partition: TopicPartition, within: Range) -> int | None:
    lane = cluster.new_lane("audit times")
    reader = LogReader(cluster, partition, within, committed_only=False, lane=lane, fetch_bytes=1)
    try:
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                return min(columns_of(entry).timestamps)
        return None
    finally:
        await cluster.release_lane(lane)
