"""One load: the driver resolves offsets once, into ranges; each task reads one range of one partition.

Spark plans each load in a process of its own, which only asks for offsets: what reads and decodes is imported
by tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from broker.types import TopicPartition
from mirrormaker.spark.filters import Narrowing, push_filters
from mirrormaker.spark.lookups import START_TIMEOUT_MS, LogLookup, new_cluster
from mirrormaker.spark.offsets import ANY_TIME, OffsetRange, TimeRange, plan_ranges, split_ranges
from mirrormaker.spark.options import SourceOptions


class RangePartition(InputPartition):
    """One Spark partition: one offset range."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range


class MirrorReader(DataSourceReader):
    """One batch load."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the selection and its offsets now; what arrives later is left for the next load.

        Raises ConfigurationError for topics or partitions that do not exist, DataLossError for offsets.
        """
        ranges = asyncio.run(_plan(self._options, self._narrowing))
        return [RangePartition(offset_range) for offset_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._narrowing.times)


class PushingReader(MirrorReader):
    """One batch load that takes the filters of its query: for sessions in which Spark hands them over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what they leave to read; returns those that Spark must still look at."""
        self._narrowing, left = push_filters(filters)
        return left


def read_partition(
    options: SourceOptions, partition: InputPartition, times: TimeRange = ANY_TIME
) -> Iterator[pa.RecordBatch]:
    """The records of one Spark partition. Where there is nothing to read, Spark makes one partition up."""
    from mirrormaker.spark.range_reader import read_range

    if isinstance(partition, RangePartition):
        yield from read_range(options, partition.offset_range, times)


async def _plan(options: SourceOptions, narrowing: Narrowing) -> list[OffsetRange]:
    cluster = new_cluster(options.cluster)
    try:
        await cluster.start(timeout_ms=START_TIMEOUT_MS)
        lookup = LogLookup(cluster, options)
        logs = await lookup.logs()
        starts, ends = await lookup.starts(logs), await lookup.ends(logs)
        ranges = plan_ranges(starts, ends, logs, fail_on_data_loss=options.fail_on_data_loss)
        since: dict[TopicPartition, int] = {}
        if narrowing.times.start is not None:
            since = await lookup.since(narrowing.times.start, logs)
    finally:
        await cluster.close()
    wanted = _narrowed(ranges, narrowing, since)
    return split_ranges(wanted, count_min=options.partitions_min, size_max=options.records_max)


def _narrowed(
    ranges: Iterable[OffsetRange], narrowing: Narrowing, since: dict[TopicPartition, int]
) -> list[OffsetRange]:
    """What a query's filters leave of the ranges."""
    left = []
    for each in ranges:
        low = max(narrowing.offset_min, since.get(each.partition, 0))
        end = each.end if narrowing.offset_end is None else min(each.end, narrowing.offset_end)
        if narrowing.wants(each.partition) and max(each.start, low) < end:
            left.append(replace(each, start=max(each.start, low), end=end))
    return left
