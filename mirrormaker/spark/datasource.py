"""The Spark data source `mirror`: batch reads of topics, under the columns and options of Spark's own.

The driver resolves offsets once, into ranges; each Spark partition is one range of one topic-partition, so a
task that is retried reads the very same rows. Tasks yield Arrow record batches.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer, ConsumerSettings
from broker.client.metadata import ClusterMetadata
from broker.client.offsets import earliest_offsets, latest_offsets
from broker.errors import ConfigurationError
from broker.records.reader import read_batches
from broker.records.record import Record
from broker.types import TopicPartition
from mirrormaker.spark.arrow import SPARK_SCHEMA, SPARK_SCHEMA_WITH_HEADERS, to_arrow
from mirrormaker.spark.offsets import OffsetRange, plan_ranges
from mirrormaker.spark.options import SourceOptions, parse_options

_CLIENT_ID = "mirrormaker-spark"
_ROWS_PER_ARROW_BATCH = 16_384
_BATCH_SIZE_MAX = 512 * 1024 * 1024
"""Uncompressed bytes of one record batch that a task is ready to hold."""
_START_TIMEOUT_MS = 5_000
"""How long the driver tries to reach the cluster before it says that it cannot."""
_FETCH_TIMEOUT_MS = 120_000


class MirrorDataSource(DataSource):
    """Reads topics of any cluster that speaks the Kafka protocol; options in `mirrormaker.spark.options`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        return "mirror"

    def schema(self) -> str:
        return SPARK_SCHEMA_WITH_HEADERS if self._options.include_headers else SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return MirrorReader(self._options)


class RangePartition(InputPartition):
    """One Spark partition: one offset range."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range


class MirrorReader(DataSourceReader):
    """One batch load."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the selection and its offsets now; what arrives later is left for the next load.

        Raises ConfigurationError for topics or partitions that do not exist, DataLossError for offsets.
        """
        return [RangePartition(offset_range) for offset_range in asyncio.run(_plan(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return  # where there is nothing to read, Spark makes one partition up
        offset_range = partition.offset_range
        for records in _read_range(self._options, offset_range):
            yield to_arrow(records, *offset_range.partition, include_headers=self._options.include_headers)


async def _plan(options: SourceOptions) -> list[OffsetRange]:
    cluster = _cluster(options)
    try:
        await cluster.start(timeout_ms=_START_TIMEOUT_MS)
        partitions = select_partitions(options, await cluster.refresh())
        earliest = await earliest_offsets(cluster, partitions)
        latest = await latest_offsets(cluster, partitions)
        return plan_ranges(options, earliest, latest)
    finally:
        await cluster.close()


def select_partitions(options: SourceOptions, metadata: ClusterMetadata) -> list[TopicPartition]:
    """The partitions that the options select. Raises ConfigurationError naming all that are not there."""
    selection = options.selection
    existing = {
        TopicPartition(name, number) for name, topic in metadata.topics.items() for number in topic.partitions
    }
    if selection.partitions:
        missing = [str(partition) for partition in selection.partitions if partition not in existing]
        chosen = set(selection.partitions)
    elif selection.pattern is not None:
        matches = re.compile(selection.pattern).fullmatch
        missing = []
        chosen = {
            partition
            for partition in existing
            if matches(partition.topic) and not metadata.topics[partition.topic].internal
        }
    else:
        missing = [topic for topic in selection.topics if topic not in metadata.topics]
        chosen = {partition for partition in existing if partition.topic in selection.topics}
    if missing:
        raise ConfigurationError([f"{name} does not exist in the cluster" for name in missing])
    return sorted(chosen)


def _cluster(options: SourceOptions) -> Cluster:
    settings = ConnectionSettings(client_id=_CLIENT_ID, security=options.security)
    return Cluster(options.bootstrap, settings=settings)


def _read_range(options: SourceOptions, offset_range: OffsetRange) -> Iterator[list[Record]]:
    """The records of one range, some thousands at a time, on an event loop of its own."""
    with asyncio.Runner() as runner:
        cluster = _cluster(options)
        consumer = Consumer(cluster, settings=ConsumerSettings(partition_max_bytes=8 * 1024 * 1024))
        try:
            runner.run(cluster.start())
            runner.run(consumer.start())
            consumer.assign({offset_range.partition: offset_range.start})
            records: list[Record] = []
            position = offset_range.start
            while position < offset_range.end:
                position, fetched = runner.run(_fetch(consumer, offset_range))
                records += fetched
                if len(records) >= _ROWS_PER_ARROW_BATCH:
                    yield records
                    records = []
            if records:
                yield records
        finally:
            runner.run(consumer.close())
            runner.run(cluster.close())


async def _fetch(consumer: Consumer, offset_range: OffsetRange) -> tuple[int, list[Record]]:
    """The next records of the range and the offset to go on from."""
    batches = await consumer.take_batches(timeout_ms=_FETCH_TIMEOUT_MS)
    if batches is None:
        raise TimeoutError(f"nothing came of {offset_range.partition} within {_FETCH_TIMEOUT_MS} ms")
    records: list[Record] = []
    for batch in read_batches(batches.records, start_offset=batches.start_offset, size_max=_BATCH_SIZE_MAX):
        if batch.header is None or not batch.header.is_control:
            records += batch.records
    if batches.next_offset > offset_range.end:
        records = [record for record in records if record.offset < offset_range.end]
    return batches.next_offset, records
