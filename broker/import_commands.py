"""The command that loads a directory of Kafka 0.7 or MetaQ into a topic.

The n-th message of a source partition becomes the record at offset n of the partition with its number: that
is the whole bookkeeping. A run that was cut short is resumed by the same command, which compares what is
there with the messages that must have become it, and goes on behind it; a run after a complete one loads
nothing. A partition that anybody else wrote to is refused, for the same reason.

All of the source is checked before anything is loaded. What a message carried is kept: its payload is the
value, its position (the message id of that time) the header `import.position`, of MetaQ also id, flag and
attribute. These formats have no timestamps; records get the time at which their file was last written.
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
from pathlib import Path

from broker.admin_commands import connected
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
from broker.storage.disk import Disk
from broker.storage.dump_line import Damage
from broker.storage.legacy_directory import (
    SourcePartition,
    SourceTally,
    check_partition,
    find_source_partitions,
    read_partition,
)
from broker.storage.legacy_files import LegacyFile, LegacyMessage
from broker.storage.read_only_disk import ReadOnlyDisk
from broker.types import TopicPartition

POSITION_HEADER = "import.position"
"""`POSITION`, or `POSITION.INDEX` of a message that was in a compressed one."""
METAQ_ID_HEADER = "import.metaq.id"
METAQ_FLAG_HEADER = "import.metaq.flag"
METAQ_ATTRIBUTE_HEADER = "import.metaq.attribute"

DAMAGES_SHOWN_MAX = 20
DELIVERIES_WATCHED_MAX = 10_000
"""Records of a partition whose outcome is not looked at yet while more are sent."""
MESSAGES_READ_AHEAD = 500
_REQUEST_BYTES_MIN = 1 << 20
_RECORD_OVERHEAD_BYTES = 4096
_BATCH_BYTES = 256 << 10
_READ_TIMEOUT_MS = 30_000


class LegacyImportError(BrokerError):
    """A source is not loaded: it is damaged, or the topic holds something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """A sound partition, and how many of its messages are records already."""

    source: SourcePartition
    tally: SourceTally
    target: TopicPartition
    present: int = 0

    @property
    def missing(self) -> int:
        return self.tally.messages - self.present


async def import_directory(options: argparse.Namespace) -> None:
    """Check a directory and load it. Raises LegacyImportError before anything is loaded, or when the topic
    turns out to be written by somebody else meanwhile; StorageError; ProtocolError.
    """
    disk = ReadOnlyDisk()
    partitions = find_source_partitions(disk, options.directory, topic=options.source_topic)
    with progress_bar("checked") as progress:
        progress.begin(sum(partition.size for partition in partitions))
        tallies = await asyncio.to_thread(_check_all, disk, partitions, options.accept_torn_tail, progress)
    async with connected(options) as cluster:
        await _prepare_topic(cluster, options.topic, max(partition.number for partition in partitions) + 1)
        loads = await _find_present(cluster, disk, options.topic, partitions, tallies)
        settings = await _producer_settings(cluster, options, tallies)
        with progress_bar("loaded") as progress:
            progress.begin(sum(load.source.size for load in loads))
            async with Producer(cluster, settings=settings) as producer, asyncio.TaskGroup() as group:
                for load in loads:
                    group.create_task(_load(producer, disk, load, progress))
        await _check_ends(cluster, loads)
    _print(options, loads)


def _check_all(
    disk: Disk, partitions: Sequence[SourcePartition], accept_torn_tail: bool, progress: ProgressBar
) -> list[SourceTally]:
    """What the partitions hold. Raises LegacyImportError that names the damaged places."""
    tallies, damages = [], []
    for partition in partitions:
        tally, found = check_partition(
            disk, partition, accept_torn_tail=accept_torn_tail, on_bytes=progress.by
        )
        tallies.append(tally)
        damages += found
    if damages:
        shown = [str(damage) for damage in damages[:DAMAGES_SHOWN_MAX]]
        if len(damages) > DAMAGES_SHOWN_MAX:
            shown.append(f"and {len(damages) - DAMAGES_SHOWN_MAX} more")
        raise LegacyImportError("the source is damaged, nothing was loaded:\n  " + "\n  ".join(shown))
    return tallies


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
        raise LegacyImportError(f"{topic} has {count} partitions, the source needs {partition_count}")


async def _producer_settings(
    cluster: Cluster, options: argparse.Namespace, tallies: Sequence[SourceTally]
) -> ProducerSettings:
    """Settings whose batches the topic takes. Raises LegacyImportError when a message is too large for it."""
    codec = Codec[options.compression.upper()]
    configs = await Admin(cluster).describe_topic_configs(options.topic)
    bytes_max = int(configs["max.message.bytes"].value or _BATCH_BYTES)
    largest = max(tally.payload_size_max for tally in tallies)
    if codec is Codec.NONE and largest >= bytes_max:
        raise LegacyImportError(
            f"a message has {largest} bytes, and max.message.bytes of {options.topic} is {bytes_max}"
        )
    return ProducerSettings(
        codec=codec,
        batch_bytes=min(_BATCH_BYTES, bytes_max),
        max_request_bytes=max(_REQUEST_BYTES_MIN, largest + _RECORD_OVERHEAD_BYTES),
    )


# What is there already


async def _find_present(
    cluster: Cluster,
    disk: Disk,
    topic: str,
    partitions: Sequence[SourcePartition],
    tallies: Sequence[SourceTally],
) -> list[PartitionLoad]:
    targets = [TopicPartition(topic, partition.number) for partition in partitions]
    starts, ends = await earliest_offsets(cluster, targets), await latest_offsets(cluster, targets)
    loads = []
    for source, tally, target in zip(partitions, tallies, targets, strict=True):
        load = PartitionLoad(source=source, tally=tally, target=target, present=ends[target])
        if load.present:
            await _check_present(cluster, disk, load, starts[target])
        loads.append(load)
    return loads


async def _check_present(cluster: Cluster, disk: Disk, load: PartitionLoad, start_offset: int) -> None:
    """Raises LegacyImportError unless the partition holds what an earlier run loaded, and only that."""
    if load.missing < 0:
        raise LegacyImportError(
            f"{load.target} ends at offset {load.present}, and {load.source.path} has {load.tally.messages} "
            "messages: it was written by somebody else"
        )
    if start_offset >= load.present:
        raise LegacyImportError(f"the records of {load.target} are deleted: what is loaded cannot be told")
    messages = islice(_messages(disk, load.source), start_offset, load.present)
    offset = start_offset
    async with Consumer(cluster) as consumer:
        consumer.assign({load.target: start_offset})
        while offset < load.present:
            records = await consumer.take(timeout_ms=_READ_TIMEOUT_MS, max_records=MESSAGES_READ_AHEAD)
            if not records:
                raise LegacyImportError(f"the record at offset {offset} of {load.target} cannot be read")
            part = await asyncio.to_thread(_take, messages, len(records))
            for record, (legacy, message) in zip(records, part, strict=False):
                if not _is_record_of(record, offset, message):
                    raise LegacyImportError(
                        f"the record at offset {record.offset} of {load.target} is not message {offset} of "
                        f"{legacy.path.parent}: it was written by somebody else, choose an empty topic"
                    )
                offset += 1


def _is_record_of(record: ConsumerRecord, offset: int, message: LegacyMessage) -> bool:
    same_place = record.offset == offset and list(record.headers) == _headers(message)
    return same_place and record.value == message.payload


# Loading


async def _load(producer: Producer, disk: Disk, load: PartitionLoad, progress: ProgressBar) -> None:
    """Send what is missing in order; ends when all of it is acknowledged. Raises the first failure."""
    messages = _messages(disk, load.source)
    deliveries: deque[Delivery] = deque()
    position, number, written = -1, 0, load.present
    while part := await asyncio.to_thread(_take, messages, MESSAGES_READ_AHEAD):
        for legacy, message in part:
            if message.position != position:
                position = message.position
                progress.by(message.size)
            number += 1
            if number <= load.present:
                continue
            deliveries.append(
                await producer.send(
                    load.target.topic,
                    message.payload,
                    partition=load.target.partition,
                    timestamp_ms=legacy.modified_ms,
                    headers=_headers(message),
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
    """Wait for one record. Raises what its delivery does, LegacyImportError for another offset."""
    actual = (await delivery).offset
    if actual not in (offset, NO_OFFSET):
        raise LegacyImportError(
            f"message {offset} went to offset {actual} of {target}: somebody else writes to it, or its order "
            "was not kept"
        )


def _take(
    messages: Iterator[tuple[LegacyFile, LegacyMessage]], count: int
) -> list[tuple[LegacyFile, LegacyMessage]]:
    return list(islice(messages, count))


def _messages(disk: Disk, source: SourcePartition) -> Iterator[tuple[LegacyFile, LegacyMessage]]:
    """The messages of a partition that was checked."""
    for legacy, message in read_partition(disk, source):
        if not isinstance(message, Damage):
            yield legacy, message


def _headers(message: LegacyMessage) -> list[Header]:
    position = str(message.position)
    if message.codec is not Codec.NONE:
        position += f".{message.index}"
    headers: list[Header] = [(POSITION_HEADER, position.encode())]
    if message.metaq is not None:
        headers.append((METAQ_ID_HEADER, str(message.metaq.message_id).encode()))
        headers.append((METAQ_FLAG_HEADER, str(message.metaq.flag).encode()))
        if message.metaq.attribute is not None:
            headers.append((METAQ_ATTRIBUTE_HEADER, message.metaq.attribute))
    return headers


async def _check_ends(cluster: Cluster, loads: Sequence[PartitionLoad]) -> None:
    """Raises LegacyImportError when a partition holds more or less than its source."""
    ends = await latest_offsets(cluster, [load.target for load in loads])
    for load in loads:
        if ends[load.target] != load.tally.messages:
            raise LegacyImportError(
                f"{load.target} ends at offset {ends[load.target]}, and {load.source.path} has "
                f"{load.tally.messages} messages: somebody else writes to it"
            )


def _print(options: argparse.Namespace, loads: Sequence[PartitionLoad]) -> None:
    rows = [
        {
            "topic": load.target.topic,
            "partition": load.target.partition,
            "source": str(load.source.path),
            "messages": load.tally.messages,
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `import` beside those of every client command."""
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="a directory of partitions, or one partition's"
    )
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="created when it is not there")
    parser.add_argument("--source-topic", metavar="NAME", help="which topic of DIR, when it has several")
    parser.add_argument(
        "--accept-torn-tail", action="store_true", help="leave out a last message that a crash cut short"
    )
    parser.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", metavar="CODEC"
    )
