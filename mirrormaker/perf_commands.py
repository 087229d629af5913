"""`mirrormaker perf`: how much a route takes through in a second, and how long a record takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.consumer_settings import ConsumerSettings, Isolation, OffsetReset
from broker.client.offsets import latest_offsets
from broker.client.producer import Delivery, Producer, ProducerSettings
from broker.errors import ConfigurationError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.latencies import Latencies
from broker.measurement import PAYLOADS, Measurement, pace, payloads_of
from broker.option_types import positive
from broker.progress import progress_bar
from broker.records.batch import Codec
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.reconcile.pauses import find_route
from mirrormaker.status import load_for_status
from mirrormaker.topology.model import RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

TOPIC_TIMEOUT_MS = 3_000
"""How long the source may take to know the topic."""
LOOK_MS = 200
RECORDS_AT_ONCE = 5_000
_RUN_SIZE, _NUMBER_SIZE = 8, 12
SIZE_MIN = _RUN_SIZE + _NUMBER_SIZE
"""What a value begins with: what tells this run from others, and the record's number in it."""

_AddVerb = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_perf_verb(add_verb: _AddVerb) -> None:
    """`perf FILE ROUTE TOPIC`."""
    purpose = "send records through a route that a daemon runs, and tell how fast they come"
    verb = add_verb("perf", _perf, purpose)
    verb.add_argument("route", metavar="ROUTE", help="the name of the route")
    verb.add_argument("topic", metavar="TOPIC", help="of its source, made for this: it gets the records")
    verb.add_argument("--count", type=positive, default=10_000, help="records (default: 10000)")
    verb.add_argument("--size", type=_size, default=1024, help="bytes of a value (default: 1024)")
    verb.add_argument("--rate", type=positive, help="records a second (default: as many as go)")
    codecs = [codec.name.lower() for codec in Codec]
    verb.add_argument("--compression", choices=codecs, default="none", metavar="CODEC")
    verb.add_argument(
        "--timeout-ms", type=positive, default=30_000, help="end when nothing comes for so long"
    )
    verb.add_argument("--output", choices=["text", "json"], default="text")


def _size(text: str) -> int:
    size = positive(text)
    if size < SIZE_MIN:
        raise argparse.ArgumentTypeError(f"{size} bytes do not hold a record's number: {SIZE_MIN} do")
    return size


def _perf(options: argparse.Namespace) -> int:
    passage = asyncio.run(measure(load_for_status(options.file), options))
    if options.output == "json":
        sys.stdout.write(json.dumps(passage.document) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in passage.lines)
    if passage.missing:
        raise RequestTimedOutError(
            f"{passage.missing} of {options.count} records did not come: nothing did for"
            f" {options.timeout_ms} ms; 'mirrormaker status' shows whether a daemon runs the route"
            f" {options.route!r}"
        )
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What came through; the time runs from the first record that was sent to the last that came."""

    measurement: Measurement
    missing: int
    doubled: int
    """How often a record came that had come already."""

    @property
    def document(self) -> dict[str, Any]:
        """All figures by name."""
        return {**self.measurement.document, "missing": self.missing, "doubled": self.doubled}

    @property
    def lines(self) -> list[str]:
        """All figures for eyes."""
        doubled = [f"{self.doubled} came twice"] if self.doubled else []
        return [*self.measurement.lines, *doubled]


async def measure(topology: Topology, options: argparse.Namespace) -> Passed:
    """Send `options.count` records to the topic, and read their copies as a consumer does that sees what is
    committed.

    Raises ConfigurationError for a route that does not take the topic, ProtocolError, BrokerError.
    """
    route = find_route(topology, options.route, [options.topic])
    copy = compile_naming(route.source, route.topics).destination_of(options.topic)
    async with (
        open_cluster(topology.clusters[route.source]) as source,
        open_cluster(topology.clusters[route.destination]) as destination,
    ):
        await _check_topic(source, route, options.topic)
        passing = _Passing(options, destination, copy, await _ends(destination, copy))
        with progress_bar("sending and reading") as bar:
            bar.begin(options.count * options.size)
            async with asyncio.TaskGroup() as group:
                group.create_task(passing.send(source))
                group.create_task(passing.read(bar.by))
    return passing.passed()


async def _check_topic(source: Cluster, route: RouteSpec, topic: str) -> None:
    try:
        await source.ensure([topic], timeout_ms=TOPIC_TIMEOUT_MS)
    except ProtocolError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        problem = f"the cluster {route.source!r} has no topic {topic!r}: create one for this"
        raise ConfigurationError([problem]) from error


async def _ends(destination: Cluster, copy: str) -> Mapping[TopicPartition, int]:
    """Where the copy ends now, by partition; nothing when it is not there yet."""
    await destination.refresh([copy])
    partitions = [TopicPartition(copy, number) for number in destination.partitions(copy)]
    return await latest_offsets(destination, partitions)


class _Passing:
    """Records on their way."""

    def __init__(
        self,
        options: argparse.Namespace,
        destination: Cluster,
        copy: str,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._options = options
        self._destination = destination
        self._copy = copy
        self._ends = ends
        self._run = os.urandom(_RUN_SIZE // 2).hex().encode()
        self._sent_at: list[float] = []
        self._has_come = bytearray(options.count)
        self._last_came_at = 0.0
        self._doubled = 0
        self._latencies = Latencies()

    async def send(self, source: Cluster) -> None:
        """Send all. Raises the first failure."""
        options, batches = self._options, list[Delivery]()
        rests = [payload[SIZE_MIN:] for payload in payloads_of(options.size)]
        settings = ProducerSettings(
            codec=Codec[options.compression.upper()], max_request_bytes=max(1 << 20, 2 * options.size)
        )
        async with Producer(source, settings=settings) as producer:
            started = perf_counter()
            for number in range(options.count):
                if options.rate:
                    await pace(started + number / options.rate)
                self._sent_at.append(perf_counter())
                value = b"%b%0*d%b" % (self._run, _NUMBER_SIZE, number, rests[number % PAYLOADS])
                delivery = await producer.send(options.topic, value)
                if not batches or not delivery.is_with(batches[-1]):
                    batches.append(delivery)
                    await asyncio.sleep(0)  # now and then the sender needs a turn
            await producer.flush()
        for delivery in batches:
            await delivery

    async def read(self, tell: Callable[[int], None]) -> None:
        """Read until all came, or nothing did for the time that is given. `tell`: takes the bytes of each."""
        settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED)
        async with Consumer(self._destination, settings=settings) as consumer:
            consumer.assign(self._ends)
            while not self._is_over():
                if not self._ends:
                    await self._look_for_copy(consumer)
                for record in await consumer.take(LOOK_MS, RECORDS_AT_ONCE):
                    tell(self._take(record.value))

    async def _look_for_copy(self, consumer: Consumer) -> None:
        """Read the copy from its beginning once it is there."""
        await self._destination.refresh([self._copy])
        self._ends = {
            TopicPartition(self._copy, number): 0 for number in self._destination.partitions(self._copy)
        }
        consumer.assign(self._ends)

    def _is_over(self) -> bool:
        if len(self._sent_at) < self._options.count:
            return False
        quiet_since = max(self._sent_at[-1], self._last_came_at)
        return all(self._has_come) or perf_counter() - quiet_since > self._options.timeout_ms / 1000

    def _take(self, value: bytes | None) -> int:
        """Count a record; its size when it is one of ours."""
        if value is None or value[:_RUN_SIZE] != self._run:
            return 0
        number = int(value[_RUN_SIZE:SIZE_MIN])
        if self._has_come[number]:
            self._doubled += 1
            return 0
        self._has_come[number] = 1
        self._last_came_at = perf_counter()
        self._latencies.record((self._last_came_at - self._sent_at[number]) * 1000)
        return len(value)

    def passed(self) -> Passed:
        """What has come."""
        count = sum(self._has_come)
        measurement = Measurement(
            count=count,
            size=count * self._options.size,
            seconds=self._last_came_at - self._sent_at[0] if count else 0.0,
            latencies=self._latencies,
        )
        return Passed(measurement=measurement, missing=self._options.count - count, doubled=self._doubled)
