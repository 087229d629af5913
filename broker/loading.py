"""Loading what was stored elsewhere into a topic, each record once.

The n-th record of a source partition becomes the record at offset n of the partition with its number: that is
the whole bookkeeping. A run that was cut short is resumed by the same command, which compares what is there
with the records that must have become it, and goes on behind it; a run after a complete one loads nothing. A
partition that anybody else wrote to is refused, for the same reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.offsets import NO_OFFSET, earliest_offsets, latest_offsets
from broker.client.producer import Delivery, Producer, ProducerSettings
from broker.client.record_cursor import ConsumerRecord
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.progress import ProgressBar, progress_bar
from broker.records.batch import Codec
from broker.records.record import Header
from broker.types import TopicPartition

DELIVERIES_WATCHED_MAX = 10_000
"""Records of a partition whose outcome is not looked at yet while more are sent."""
RECORDS_READ_AHEAD = 500
_REQUEST_BYTES_MIN = 1 << 20
_RECORD_OVERHEAD_BYTES = 4096
_BATCH_BYTES = 256 << 10
_READ_TIMEOUT_MS = 30_000


class LoadError(BrokerError):
    """A source is not loaded: it is damaged, or the topic holds something else."""


class SourceRecord(NamedTuple):
    """A record to be loaded. `size`: bytes of the source that are done with it, for the progress bar."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    size: int


class RecordSource(Protocol):
    """A source partition that was checked and found sound; sizes in bytes."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def number(self) -> int:
        """The number of the partition that it becomes."""
        ...

    @property
    def record_count(self) -> int: ...

    @property
    def record_size_max(self) -> int: ...

    @property
    def size(self) -> int: ...

    def read(self) -> Iterator[SourceRecord]:
        """Every record in order, the same each time. Blocks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """A source, and how many of its records are in its target already."""

    source: RecordSource
    target: TopicPartition
    present: int = 0

    @property
    def missing(self) -> int:
        return self.source.record_count - self.present


async def load(
    cluster: Cluster, topic: str, sources: Sequence[RecordSource], *, codec: Codec
) -> list[PartitionLoad]:
    """Load every source, creating the topic when it is not there.

    Raises LoadError before anything is loaded, or when the topic turns out to be written by somebody else
    meanwhile; ProtocolError; what reading the sources raises.
    """
    await _prepare_topic(cluster, topic, max(source.number for source in sources) + 1)
    loads = await _find_present(cluster, topic, sources)
    settings = await _producer_settings(cluster, topic, sources, codec)
    with progress_bar("loaded") as progress:
        progress.begin(sum(source.size for source in sources))
        async with Producer(cluster, settings=settings) as producer, asyncio.TaskGroup() as group:
            for each in loads:
                group.create_task(_load(producer, each, progress))
    await _check_ends(cluster, loads)
    return loads


def print_loads(options: argparse.Namespace, loads: Sequence[PartitionLoad]) -> None:
    """A line per partition, or all of them as JSON."""
    rows = [
        {
            "topic": load.target.topic,
            "partition": load.target.partition,
            "source": load.source.name,
            "messages": load.source.record_count,
            "loaded": load.missing,
        }
        for load in loads
    ]
    if options.output == "json":
        sys.stdout.write(f"{json.dumps(rows)}\n")
        return
    for row in rows:
        sys.stdout.write(
            f"Topic: {row['topic']}\tPartition: {row['partition']}\tSource: {row['source']}\t"
            f"Messages: {row['messages']}\tLoaded: {row['loaded']}\n"
        )


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that loads."""
    parser.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", metavar="CODEC"
    )


async def _prepare_topic(cluster: Cluster, topic: str, partition_count: int) -> None:
    """Create the topic unless it is there. It keeps its records for ever: old ones would go at once."""
    new = NewTopic(name=topic, partitions=partition_count, configs={"retention.ms": "-1"})
    try:
        await Admin(cluster).create_topic(new)
    except ProtocolError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await cluster.ensure([topic])
    if (count := len(cluster.partitions(topic))) < partition_count:
        raise LoadError(f"{topic} has {count} partitions, the source needs {partition_count}")


async def _producer_settings(
    cluster: Cluster, topic: str, sources: Sequence[RecordSource], codec: Codec
) -> ProducerSettings:
    """Settings whose batches the topic takes. Raises LoadError when a record is too large for it."""
    configs = await Admin(cluster).describe_topic_configs(topic)
    bytes_max = int(configs["max.message.bytes"].value or _BATCH_BYTES)
    largest = max(source.record_size_max for source in sources)
    if codec is Codec.NONE and largest >= bytes_max:
        raise LoadError(f"a message has {largest} bytes, and max.message.bytes of {topic} is {bytes_max}")
    return ProducerSettings(
        codec=codec,
        batch_bytes=min(_BATCH_BYTES, bytes_max),
        max_request_bytes=max(_REQUEST_BYTES_MIN, largest + _RECORD_OVERHEAD_BYTES),
    )


# What is there already


async def _find_present(cluster: Cluster, topic: str, sources: Sequence[RecordSource]) -> list[PartitionLoad]:
    targets = [TopicPartition(topic, source.number) for source in sources]
    starts, ends = await earliest_offsets(cluster, targets), await latest_offsets(cluster, targets)
    loads = []
    for source, target in zip(sources, targets, strict=True):
        load = PartitionLoad(source=source, target=target, present=ends[target])
        if load.present:
            await _check_present(cluster, load, starts[target])
        loads.append(load)
    return loads


async def _check_present(cluster: Cluster, load: PartitionLoad, start_offset: int) -> None:
    """Raises LoadError unless the partition holds what an earlier run loaded, and only that."""
    source = load.source
    if load.missing < 0:
        raise LoadError(
            f"{load.target} ends at offset {load.present}, and {source.name} has {source.record_count} "
            "messages: it was written by somebody else"
        )
    if start_offset >= load.present:
        raise LoadError(f"the records of {load.target} are deleted: what is loaded cannot be told")
    records = islice(source.read(), start_offset, load.present)
    offset = start_offset
    async with Consumer(cluster) as consumer:
        consumer.assign({load.target: start_offset})
        while offset < load.present:
            found = await consumer.take(timeout_ms=_READ_TIMEOUT_MS, max_records=RECORDS_READ_AHEAD)
            if not found:
                raise LoadError(f"the record at offset {offset} of {load.target} cannot be read")
            part = await asyncio.to_thread(_take, records, len(found))
            for present, record in zip(found, part, strict=False):
                if present.offset != offset or not _is_same(present, record):
                    raise LoadError(
                        f"the record at offset {present.offset} of {load.target} is not message {offset} of "
                        f"{source.name}: it was written by somebody else, choose an empty topic"
                    )
                offset += 1


def _is_same(present: ConsumerRecord, record: SourceRecord) -> bool:
    content = (present.key, present.value, list(present.headers))
    return content == (record.key, record.value, list(record.headers))


# Loading


async def _load(producer: Producer, load: PartitionLoad, progress: ProgressBar) -> None:
    """Send what is missing in order; ends when all of it is acknowledged. Raises the first failure."""
    records = load.source.read()
    deliveries: deque[Delivery] = deque()
    number, written = 0, load.present
    while part := await asyncio.to_thread(_take, records, RECORDS_READ_AHEAD):
        progress.by(sum(record.size for record in part))
        for record in part:
            number += 1
            if number <= load.present:
                continue
            deliveries.append(
                await producer.send(
                    load.target.topic,
                    record.value,
                    key=record.key,
                    partition=load.target.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers,
                )
            )
            # A node that has not heard of a producer takes any sequence from it. Only once it has the first
            # record will it refuse what follows a record that did not come through.
            if written == load.present or len(deliveries) > DELIVERIES_WATCHED_MAX:
                await _written(load.target, deliveries.popleft(), written)
                written += 1
    for delivery in deliveries:
        await _written(load.target, delivery, written)
        written += 1


async def _written(target: TopicPartition, delivery: Delivery, offset: int) -> None:
    """Wait for one record. Raises what its delivery does, LoadError for another offset."""
    actual = (await delivery).offset
    if actual not in (offset, NO_OFFSET):
        raise LoadError(
            f"message {offset} went to offset {actual} of {target}: somebody else writes to it, or its order "
            "was not kept"
        )


def _take(records: Iterator[SourceRecord], count: int) -> list[SourceRecord]:
    return list(islice(records, count))


async def _check_ends(cluster: Cluster, loads: Sequence[PartitionLoad]) -> None:
    """Raises LoadError when a partition holds more or less than its source."""
    ends = await latest_offsets(cluster, [load.target for load in loads])
    for load in loads:
        if ends[load.target] != load.source.record_count:
            raise LoadError(
                f"{load.target} ends at offset {ends[load.target]}, and {load.source.name} has "
                f"{load.source.record_count} messages: somebody else writes to it"
            )
