"""Consumers that read from the replica in their rack (KIP-392): librdkafka and the own client."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer as OwnConsumer
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.types import TopicPartition
from tests.conformance.test_confluent_kafka import DEADLINE_SECONDS, consume, produce
from tests.racks import racked_cluster

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NEVER_MS = 100_000
"""A wait that no test outlasts."""


@pytest.fixture
def racks(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Three nodes; what followers learn of the high watermark comes when it moves, or not at all."""
    settings = {
        "replica.selector.class": RACK_AWARE,
        "replica.fetch.wait.max.ms": NEVER_MS,
        "replica.socket.timeout.ms": 2 * NEVER_MS,
        "replica.lag.time.max.ms": 3 * NEVER_MS,
        "zookeeper.session.timeout.ms": 18_000,
    }
    with racked_cluster(zookeeper, tmp_path, settings=settings) as cluster:
        yield cluster


def create_led_by(bootstrap: str, topic: str, replicas: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[replicas])])
    made[topic].result(DEADLINE_SECONDS)


def leader_of(bootstrap: str, topic: str) -> int:
    """Of partition 0, as that node knows it."""
    told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=DEADLINE_SECONDS)
    return int(told.topics[topic].partitions[0].leader)


def reader(bootstrap: str, rack: str) -> Consumer:
    """It asks for little at a time, so that whoever serves it has to serve it to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "client.rack": rack,
            "fetch.message.max.bytes": 10_000,
            "queued.max.messages.kbytes": 10,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([Place("t", 0, 0)])
    return consumer


def test_a_consumer_reads_from_its_rack_while_the_leader_stands_still(racks: EmbeddedCluster) -> None:
    bootstrap = ",".join(map(str, racks.bootstrap))
    create_led_by(bootstrap, "t", [1, 2, 3])
    values = [f"{number} {'x' * 900}" for number in range(500)]
    produce(bootstrap, "t", values, batch_size=20_000)
    consumer = reader(bootstrap, "rack-3")
    first = consume(consumer, 1)
    os.kill(racks.pids[1], signal.SIGSTOP)
    try:
        rest = consume(consumer, len(values) - 1)
        leader = leader_of(str(racks.bootstrap[2]), "t")
    finally:
        os.kill(racks.pids[1], signal.SIGCONT)
    assert [message.value().decode() for message in first + rest] == values
    assert leader == 1, "it moved: the rest may have come from the new one"
    consumer.close()


def test_what_was_committed_reaches_consumers_of_followers_at_once(racks: EmbeddedCluster) -> None:
    """The followers' own fetches would wait far longer than the test does."""
    bootstrap = ",".join(map(str, racks.bootstrap))
    create_led_by(bootstrap, "t", [1, 2, 3])
    consumers = [reader(bootstrap, f"rack-{number}") for number in (1, 2, 3)]
    for value in ("one", "two", "three"):
        produce(bootstrap, "t", [value], acks="all")
        for consumer in consumers:
            assert [message.value().decode() for message in consume(consumer, 1)] == [value]
    for consumer in consumers:
        consumer.close()


def test_the_own_client_reads_from_its_rack_while_the_leader_stands_still(racks: EmbeddedCluster) -> None:
    bootstrap = ",".join(map(str, racks.bootstrap))
    create_led_by(bootstrap, "t", [1, 2, 3])
    values = [b"%d %s" % (number, b"x" * 900) for number in range(500)]
    produce(bootstrap, "t", [value.decode() for value in values], batch_size=20_000)
    settings = ConsumerSettings(
        rack="rack-3", offset_reset=OffsetReset.EARLIEST, partition_max_bytes=10_000, buffer_bytes=20_000
    )

    async def scenario() -> tuple[list[bytes | None], int]:
        async with Cluster(racks.bootstrap) as cluster, OwnConsumer(cluster, settings=settings) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            read = [record.value for record in await consumer.take(DEADLINE_SECONDS * 1000, max_records=1)]
            os.kill(racks.pids[1], signal.SIGSTOP)
            try:
                while len(read) < len(values):
                    read += [record.value for record in await consumer.take(DEADLINE_SECONDS * 1000)]
                return read, leader_of(str(racks.bootstrap[2]), "t")
            finally:
                os.kill(racks.pids[1], signal.SIGCONT)

    read, leader = asyncio.run(scenario())
    assert read == values
    assert leader == 1, "it moved: the rest may have come from the new one"
