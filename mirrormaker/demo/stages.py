"""The stages of the demo: produce at the airports, wait for the mirrors, compute on the aggregate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings
from broker.client.offsets import latest_offsets
from broker.client.producer import Producer, ProducerSettings
from broker.errors import BrokerError
from broker.records.batch import Codec
from broker.types import HostPort, TopicPartition
from mirrormaker.delays import Arrival, Delay
from mirrormaker.demo.flights import Flight
from mirrormaker.topology.model import RouteSpec

TOPIC = "flights"
PARTITIONS = 4
_POLL_SECONDS = 0.2
_YIELD_EVERY = 256
"""Records between two turns of the event loop, so that batches leave while more are made."""

Advance = Callable[[int], None]
"""Told how many records of a stage are done so far."""


class StageError(BrokerError):
    """A stage of the demo did not end as it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """What a topic holds: records, and bytes of their batches as stored."""

    records: int
    bytes: int


async def create_topic(bootstrap: Sequence[HostPort]) -> None:
    """Make the flights' topic at an airport."""
    async with Cluster(bootstrap) as cluster:
        new_topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=1)
        await Admin(cluster).create_topic(new_topic)


async def produce(
    airports: Mapping[str, Sequence[HostPort]], flights: Sequence[Flight], advance: Advance
) -> dict[str, int]:
    """Produce each flight to its airport's cluster; returns uncompressed bytes of keys and values by origin.

    Returns when every record was acknowledged. Raises BrokerError for the first that was not.
    """
    sizes = dict.fromkeys(airports, 0)
    settings = ProducerSettings(codec=Codec.SNAPPY, linger_ms=20)
    async with AsyncExitStack() as stack:
        producers = {}
        for origin, bootstrap in airports.items():
            cluster = await stack.enter_async_context(Cluster(bootstrap))
            producers[origin] = await stack.enter_async_context(Producer(cluster, settings=settings))
        deliveries = []
        for count, flight in enumerate(flights, start=1):
            sizes[flight.origin] += len(flight.value) + len(flight.key or b"")
            deliveries.append(await producers[flight.origin].send(TOPIC, flight.value, flight.key))
            if count % _YIELD_EVERY == 0:
                advance(count)
                await asyncio.sleep(0)
        for producer in producers.values():
            await producer.flush()
        for delivery in deliveries:
            await delivery
        advance(len(deliveries))
    return sizes


async def wait_until_mirrored(
    bootstrap: Sequence[HostPort], topics: Mapping[str, int], advance: Advance, *, timeout_s: float
) -> None:
    """Return when each topic at the aggregate has as many records as `topics` says.

    Raises StageError when that takes longer than `timeout_s`, or when a topic has more than it should.
    """
    deadline = time.monotonic() + timeout_s
    async with Cluster(bootstrap) as cluster:
        while True:
            counts = await _count(cluster, topics)
            advance(sum(counts.values()))
            if counts == topics:
                return
            extra = [name for name, count in counts.items() if count > topics[name]]
            if extra or time.monotonic() > deadline:
                what = "more records than were produced" if extra else "records missing"
                raise StageError(f"the aggregate has {what}: {counts}, produced were {dict(topics)}")
            await asyncio.sleep(_POLL_SECONDS)


async def _count(cluster: Cluster, topics: Mapping[str, int]) -> dict[str, int]:
    metadata = await cluster.refresh()
    counts = dict.fromkeys(topics, 0)
    partitions = [
        TopicPartition(name, number)
        for name in topics
        if name in metadata.topics
        for number in metadata.topics[name].partitions
    ]
    for partition, offset in (await latest_offsets(cluster, partitions)).items():
        counts[partition.topic] += offset
    return counts


async def lag(bootstrap: Sequence[HostPort], route: RouteSpec, *, timeout_s: float) -> int:
    """Records at the source that the route has not committed yet, once that is none or time is out."""
    deadline = time.monotonic() + timeout_s
    async with Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = await latest_offsets(cluster, partitions)
        while True:
            committed = await admin.group_offsets(route.group)
            behind = sum(
                end - (committed[partition].offset if partition in committed else 0)
                for partition, end in ends.items()
            )
            if behind == 0 or time.monotonic() > deadline:
                return behind
            await asyncio.sleep(_POLL_SECONDS)


async def measure(bootstrap: Sequence[HostPort], topics: Sequence[str]) -> dict[str, TopicSize]:
    """Read the topics' batches as they are stored, without looking into them."""
    sizes = {}
    async with Cluster(bootstrap) as cluster:
        metadata = await cluster.refresh(topics)
        for topic in topics:
            partitions = [TopicPartition(topic, number) for number in metadata.topics[topic].partitions]
            ends = {tp: end for tp, end in (await latest_offsets(cluster, partitions)).items() if end > 0}
            sizes[topic] = TopicSize(records=sum(ends.values()), bytes=await _stored_bytes(cluster, ends))
    return sizes


async def _stored_bytes(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> int:
    left, total = dict(ends), 0
    async with Consumer(cluster, settings=ConsumerSettings()) as consumer:
        consumer.assign(dict.fromkeys(ends, 0))
        while left:
            batches = await consumer.take_batches()
            if batches is None:
                continue
            total += len(batches.records)
            if batches.next_offset >= ends[batches.topic_partition]:
                left.pop(batches.topic_partition, None)
    return total


def compute(
    bootstrap: Sequence[HostPort], topics: Sequence[str]
) -> tuple[dict[str, Arrival], dict[tuple[str, str], Delay]]:
    """Load the topics into Spark on this machine; returns arrivals by topic, delays by origin and carrier."""
    from mirrormaker.spark.jobs.delays import arrivals_by_topic, delays_by_origin_and_carrier, parse_flights
    from mirrormaker.spark.session import local_session

    spark = local_session("mirrormaker demo")
    try:
        records = (
            spark.read.format("mirror")
            .option("kafka.bootstrap.servers", ",".join(map(str, bootstrap)))
            .option("subscribe", ",".join(topics))
            .load()
        )
        flights = parse_flights(records).cache()
        return arrivals_by_topic(flights), delays_by_origin_and_carrier(flights)
    finally:
        spark.stop()
