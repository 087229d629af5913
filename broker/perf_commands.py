"""The commands that measure a cluster: how much goes in and out in a second, and how long a record takes."""

from __future__ import annotations

import argparse
import asyncio
from time import perf_counter
from typing import Any

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.client.offsets import latest_offsets
from broker.client.producer import Delivery, Producer, ProducerSettings
from broker.command_line import client_command, connected, print_answer
from broker.errors import RequestTimedOutError
from broker.latencies import Latencies
from broker.measurement import PAYLOADS, Measurement, pace, payloads_of
from broker.option_types import positive
from broker.progress import progress_bar
from broker.records.batch import Codec
from broker.types import TopicPartition

RECORDS_AT_ONCE = 500
END_TO_END_TIMEOUT_MS = 30_000
"""How long one record may take there and back."""


def add_commands(commands: Any) -> None:
    """Add `perf` and its actions to the command line."""
    perf = commands.add_parser("perf", help="measure a cluster: rates and latencies")
    actions = perf.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        ("produce", produce, add_produce_options, "send records"),
        ("consume", consume, add_consume_options, "read a topic"),
        (
            "end-to-end",
            end_to_end,
            add_end_to_end_options,
            "send one record after the other, and read each before the next",
        ),
    ):
        add_options(client_command(actions, name, command, description))


def add_produce_options(parser: argparse.ArgumentParser) -> None:
    """What is sent, and how."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--count", type=positive, default=100_000, help="records (default: 100000)")
    parser.add_argument("--size", type=positive, default=1024, help="bytes of a value (default: 1024)")
    parser.add_argument("--rate", type=positive, help="records a second (default: as many as go)")
    parser.add_argument("--batch-bytes", type=positive, default=64 * 1024, help="default: 65536")
    parser.add_argument("--linger-ms", type=float, default=5.0, help="default: 5")
    _add_write_options(parser)


def add_consume_options(parser: argparse.ArgumentParser) -> None:
    """What is read."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--count", type=positive, help="records (default: all that there are now)")
    parser.add_argument(
        "--timeout-ms", type=positive, default=10_000, help="end when nothing comes for so long"
    )


def add_end_to_end_options(parser: argparse.ArgumentParser) -> None:
    """What is sent there and back, one after the other."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--count", type=positive, default=1_000, help="records (default: 1000)")
    parser.add_argument("--size", type=positive, default=100, help="bytes of a value (default: 100)")
    _add_write_options(parser)


def _add_write_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--acks", choices=("0", "1", "all"), default="all")
    parser.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", metavar="CODEC"
    )


# Producing


async def produce(options: argparse.Namespace) -> None:
    """Send records as quickly as asked, and print how long each took until it was acknowledged.

    Raises the first failure.
    """
    settings = ProducerSettings(
        **_write_settings(options),
        batch_bytes=options.batch_bytes,
        linger_ms=options.linger_ms,
        max_request_bytes=max(1024 * 1024, 2 * options.size, options.batch_bytes),
    )
    async with connected(options) as cluster, Producer(cluster, settings=settings) as producer:
        await cluster.ensure([options.topic])
        measurement = await _produce(producer, options)
    print_answer(options, measurement.document, measurement.lines)


async def _produce(producer: Producer, options: argparse.Namespace) -> Measurement:
    payloads = payloads_of(options.size)
    started = perf_counter()
    with progress_bar("sending") as bar:
        bar.begin(options.count * options.size)
        async with asyncio.TaskGroup() as group:
            waits = _Waits(group)
            for number in range(options.count):
                if options.rate:
                    await pace(started + number / options.rate)
                sent_at = perf_counter()
                delivery = await producer.send(options.topic, payloads[number % PAYLOADS])
                if not waits.add(sent_at, delivery):
                    await asyncio.sleep(0)  # now and then the sender needs a turn
                bar.by(options.size)
            await producer.flush()
    seconds = perf_counter() - started
    return Measurement(
        count=options.count, size=options.count * options.size, seconds=seconds, latencies=waits.latencies
    )


class _Waits:
    """Waits for batches, one task each, and counts how long each of their records took."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.latencies = Latencies()
        self._group = group
        self._last: Delivery | None = None
        self._sent_at: list[float] = []

    def add(self, sent_at: float, delivery: Delivery) -> bool:
        """Whether the record went into the same batch as the one before it."""
        if self._last is not None and delivery.is_with(self._last):
            self._sent_at.append(sent_at)
            return True
        self._last, self._sent_at = delivery, [sent_at]
        self._group.create_task(self._wait(delivery, self._sent_at))
        return False

    async def _wait(self, delivery: Delivery, sent_at: list[float]) -> None:
        await delivery
        now = perf_counter()
        for each in sent_at:
            self.latencies.record((now - each) * 1000)


# Consuming


async def consume(options: argparse.Namespace) -> None:
    """Read a topic from its beginning and print how quickly that went."""
    settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
    async with connected(options) as cluster, Consumer(cluster, settings=settings) as consumer:
        partitions = await _partitions(cluster, options.topic)
        ends = await latest_offsets(cluster, partitions)
        consumer.assign(partitions)
        measurement = await _consume(consumer, options, ends)
    print_answer(options, measurement.document, measurement.lines)


async def _consume(
    consumer: Consumer, options: argparse.Namespace, ends: dict[TopicPartition, int]
) -> Measurement:
    count = size = 0
    started = ended = perf_counter()
    unread = {partition for partition, end in ends.items() if end}
    while count < options.count if options.count else unread:
        records = await consumer.take(options.timeout_ms, RECORDS_AT_ONCE)
        if not records:
            break
        ended = perf_counter()
        count += len(records)
        size += sum(len(record.value or b"") + len(record.key or b"") for record in records)
        last = records[-1]
        partition = TopicPartition(last.topic, last.partition)
        if last.offset + 1 >= ends[partition]:
            unread.discard(partition)
    return Measurement(count=count, size=size, seconds=ended - started)


# There and back


async def end_to_end(options: argparse.Namespace) -> None:
    """Send one record after the other, and print how long each took until a consumer had it.

    Raises RequestTimedOutError when one does not come back.
    """
    producing = ProducerSettings(**_write_settings(options), linger_ms=0.0)
    consuming = ConsumerSettings(offset_reset=OffsetReset.LATEST)
    async with (
        connected(options) as cluster,
        Producer(cluster, settings=producing) as producer,
        Consumer(cluster, settings=consuming) as consumer,
    ):
        ends = await latest_offsets(cluster, await _partitions(cluster, options.topic))
        consumer.assign(ends)
        measurement = await _end_to_end(producer, consumer, options)
    print_answer(options, measurement.document, measurement.lines)


async def _end_to_end(producer: Producer, consumer: Consumer, options: argparse.Namespace) -> Measurement:
    payloads, latencies = payloads_of(options.size), Latencies()
    started = perf_counter()
    with progress_bar("sending and reading") as bar:
        bar.begin(options.count * options.size)
        for number in range(options.count):
            sent_at = perf_counter()
            await producer.send(options.topic, payloads[number % PAYLOADS])
            if not await consumer.take(END_TO_END_TIMEOUT_MS, 1):
                raise RequestTimedOutError(f"record {number} did not come within {END_TO_END_TIMEOUT_MS} ms")
            latencies.record((perf_counter() - sent_at) * 1000)
            bar.by(options.size)
    seconds = perf_counter() - started
    return Measurement(
        count=options.count, size=options.count * options.size, seconds=seconds, latencies=latencies
    )


def _write_settings(options: argparse.Namespace) -> dict[str, Any]:
    acks = {"0": 0, "1": 1, "all": -1}[options.acks]
    return {"acks": acks, "idempotent": acks == -1, "codec": Codec[options.compression.upper()]}


async def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    await cluster.ensure([topic])
    return [TopicPartition(topic, number) for number in cluster.partitions(topic)]
