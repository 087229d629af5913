"""The commands on records: stdin to a topic, a topic to stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import deque
from typing import Any

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.consumer_connector import ConsumerConnector, GroupKind
from broker.client.consumer_settings import ConsumerSettings, Isolation, OffsetReset
from broker.client.group_settings import AnyGroupSettings, ConsumerGroupSettings, GroupSettings
from broker.client.producer import Delivery, Producer, ProducerSettings
from broker.client.record_cursor import ConsumerRecord
from broker.client.record_stream import RecordStream
from broker.command_line import CONNECT_TIMEOUT_MS, client_command, connected
from broker.coordination.zookeeper import ZooKeeper
from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.input_lines import input_lines
from broker.option_types import positive
from broker.records.batch import Codec
from broker.records.record_filter import RecordFilter
from broker.types import TopicPartition

REQUEST_SIZE_MAX = 16 * 1024 * 1024
"""Bound of one request: how large a record may be is for the topic to say."""
ZOOKEEPER_SESSION_TIMEOUT_MS = 6_000
DELIVERIES_WATCHED_MAX = 10_000
"""Records whose outcome is not looked at yet while more are read."""


def add_commands(commands: Any) -> None:
    """Add `produce` and `consume` to the command line."""
    producing = client_command(commands, "produce", produce, "send the lines of stdin")
    producing.add_argument("topic", metavar="TOPIC")
    producing.add_argument("--key-separator", metavar="TEXT", help="what parts key and value of a line")
    producing.add_argument("--partition", type=int, help="default: by key")
    producing.add_argument("--acks", choices=("0", "1", "all"), default="all")
    producing.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", metavar="CODEC"
    )
    consuming = client_command(commands, "consume", consume, "print records as lines")
    consuming.add_argument("topic", metavar="TOPIC")
    consuming.add_argument("--key-separator", metavar="TEXT", help="print keys too, parted by this")
    consuming.add_argument("--from-beginning", action="store_true", help="default: what comes from now on")
    consuming.add_argument(
        "--filter", metavar="EXPRESSION", help="only records that match, as: 'key starts with \"JFK\"'"
    )
    consuming.add_argument(
        "--isolation-level",
        choices=[level.value for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.value,
        help="read_committed: nothing of transactions that are open or aborted",
    )
    consuming.add_argument("--group", metavar="GROUP", help="read as a member of a group, with its offsets")
    consuming.add_argument(
        "--group-protocol",
        choices=("classic", "consumer"),
        help="members assign the partitions (default), or the coordinator does (KIP-848)",
    )
    consuming.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="the group meets there, as those of Kafka's old consumers do",
    )
    consuming.add_argument("--partition", type=int, help="default: all")
    consuming.add_argument("--rack", default="", metavar="RACK", help="read from replicas in this rack")
    consuming.add_argument("--max-messages", type=positive, metavar="N", help="end after so many")
    consuming.add_argument(
        "--timeout-ms", type=positive, metavar="MS", help="end when nothing came for so long"
    )


async def produce(options: argparse.Namespace) -> None:
    """Send every line of stdin; ends when all of them are acknowledged. Raises the first failure."""
    acks = {"0": 0, "1": 1, "all": -1}[options.acks]
    settings = ProducerSettings(
        acks=acks,
        idempotent=acks == -1,
        codec=Codec[options.compression.upper()],
        max_request_bytes=REQUEST_SIZE_MAX,
    )
    separator = options.key_separator.encode() if options.key_separator else None
    deliveries: deque[Delivery] = deque()
    async with connected(options) as cluster, Producer(cluster, settings=settings) as producer:
        async for line in input_lines(sys.stdin.fileno()):
            key, value = _key_and_value(line, separator)
            deliveries.append(await producer.send(options.topic, value, key, partition=options.partition))
            if len(deliveries) > DELIVERIES_WATCHED_MAX:
                await deliveries.popleft()
        await producer.flush()
        for delivery in deliveries:
            await delivery


def _key_and_value(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


async def consume(options: argparse.Namespace) -> None:
    """Print records until the count or the timeout ends it, or, where there are none, an interrupt."""
    try:
        await _consume(options)
    except asyncio.CancelledError:
        if options.max_messages is not None or options.timeout_ms is not None:
            raise


async def _consume(options: argparse.Namespace) -> None:
    group = _group(options)
    if group is not None and options.partition is not None:
        raise ConfigurationError(["--partition and --group exclude each other: the group assigns partitions"])
    reset = OffsetReset.EARLIEST if options.from_beginning else OffsetReset.LATEST
    wanted = None if options.filter is None else RecordFilter.parse(options.filter)
    settings = ConsumerSettings(
        offset_reset=reset,
        rack=options.rack,
        record_filter=wanted,
        isolation=Isolation(options.isolation_level),
    )
    if options.zookeeper is not None and isinstance(group, GroupSettings):
        await _consume_with_old_consumers(options, group, settings)
        return
    async with connected(options) as cluster, Consumer(cluster, settings=settings, group=group) as consumer:
        if group is not None:
            consumer.subscribe([options.topic])
            if consumer.member is not None:
                await consumer.member.settled()
        else:
            consumer.assign(await _partitions(cluster, options))
        try:
            await _print_records(consumer, options)
        except asyncio.CancelledError:  # it waited for more: all before is printed
            await _commit(consumer)
            raise
        await _commit(consumer)


async def _commit(consumer: Consumer) -> None:
    if consumer.member is not None:
        await consumer.commit()


def _group(options: argparse.Namespace) -> AnyGroupSettings | None:
    if not options.group:
        if options.group_protocol is not None:
            raise ConfigurationError(["--group-protocol is how to be in a group: --group says which one"])
        if options.zookeeper is not None:
            raise ConfigurationError(["--zookeeper says where a group meets: --group says which one"])
        return None
    if options.group_protocol == "consumer":
        if options.zookeeper is not None:
            raise ConfigurationError(["--zookeeper and --group-protocol consumer exclude each other"])
        return ConsumerGroupSettings(group_id=options.group)
    return GroupSettings(group_id=options.group)


async def _consume_with_old_consumers(
    options: argparse.Namespace, group: GroupSettings, settings: ConsumerSettings
) -> None:
    """Be a member of a group that meets in ZooKeeper."""
    session = ZooKeeper(options.zookeeper, session_timeout_ms=ZOOKEEPER_SESSION_TIMEOUT_MS)
    await session.start(timeout_ms=CONNECT_TIMEOUT_MS)
    try:
        async with (
            connected(options) as cluster,
            ConsumerConnector(
                cluster, group, kind=GroupKind.ZOOKEEPER, coordination=session, settings=settings
            ) as connector,
        ):
            streams = await connector.create_message_streams({options.topic: 1})
            await _print_stream(streams[options.topic][0], options)
    finally:
        await session.close()


async def _print_stream(stream: RecordStream, options: argparse.Namespace) -> None:
    printed = 0
    while options.max_messages is None or printed < options.max_messages:
        record = await (anext(stream) if options.timeout_ms is None else stream.next(options.timeout_ms))
        if record is None:
            return
        sys.stdout.buffer.write(_rendered(record, options))
        sys.stdout.buffer.flush()
        printed += 1


async def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    """What to read without a group. Raises ProtocolError for a partition that is not there."""
    await cluster.ensure([options.topic])
    numbers = cluster.partitions(options.topic)
    if options.partition is not None and options.partition not in numbers:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{options.topic} has {len(numbers)} partitions and no partition {options.partition}",
        )
    return [
        TopicPartition(options.topic, number) for number in numbers if options.partition in (None, number)
    ]


async def _print_records(consumer: Consumer, options: argparse.Namespace) -> None:
    left: int | None = options.max_messages
    while left is None or left > 0:
        records = await consumer.take(timeout_ms=options.timeout_ms, max_records=min(left or 500, 500))
        if not records and options.timeout_ms is not None:
            return
        for record in records:
            sys.stdout.buffer.write(_rendered(record, options))
        sys.stdout.buffer.flush()
        if left is not None:
            left -= len(records)


def _rendered(record: ConsumerRecord, options: argparse.Namespace) -> bytes:
    if options.output == "json":
        return json.dumps(_document(record)).encode() + b"\n"
    value = record.value or b""
    if options.key_separator:
        return b"".join((record.key or b"", options.key_separator.encode(), value, b"\n"))
    return value + b"\n"


def _document(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    """As text; bytes that are none are shown escaped."""
    return None if data is None else data.decode(errors="backslashreplace")
