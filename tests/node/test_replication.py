"""Three real nodes: what acks=all acknowledged outlives the leader, and who comes back catches up."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from broker.errors import ErrorCode
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import connected, values_of
from tests.node.test_transactions import (
    READ_COMMITTED,
    aborted_in,
    end_offset,
    fetch_committed,
    open_transactions,
)
from tests.node.transactions import UNVERIFIED, RawTransactions

TOPIC = "flights"
PARTITIONS = 3


@pytest.fixture
def three(cluster: ClusterFactory) -> EmbeddedCluster:
    return cluster(brokers=3, settings={"replica.lag.time.max.ms": 3000, **UNVERIFIED})


def bootstrap(nodes: EmbeddedCluster) -> str:
    return ",".join(map(str, nodes.bootstrap))


@pytest.fixture
def admin(three: EmbeddedCluster) -> AdminClient:
    client = AdminClient({"bootstrap.servers": bootstrap(three)})
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    for created in client.create_topics([topic]).values():
        created.result(30)
    return client


def isr(admin: AdminClient) -> list[list[int]]:
    """The in-sync replicas of each partition, sorted."""
    partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return [sorted(partition.isrs) for _, partition in sorted(partitions.items())]


def leader(admin: AdminClient, partition: int) -> int:
    found: int = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[partition].leader
    return found


class Load:
    """An idempotent producer with acks=all; `acknowledged` are the values that it was told are stored."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self.acknowledged: list[bytes] = []
        self._count = 0

    def send(self, count: int) -> None:
        """Send so many records over all partitions, and wait for every answer."""
        for number in range(self._count, self._count + count):
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
        self._count += count
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value = message.value()
        assert isinstance(value, bytes)
        self.acknowledged.append(value)


def read_on(servers: str, count: int) -> dict[int, list[int]]:
    """The next `count` values that a group gets, by partition in their order; they are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    try:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, found
            for message in consumer.consume(300, timeout=0.5):
                value = message.value()
                assert message.error() is None
                assert isinstance(value, bytes)
                found[message.partition() or 0].append(int(value))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_what_was_acknowledged_outlives_its_leader_and_who_comes_back_catches_up(
    three: EmbeddedCluster, admin: AdminClient
) -> None:
    servers = bootstrap(three)
    load = Load(servers)
    load.send(3000)
    found = read_on(servers, 3000)
    first = leader(admin, 0)
    three.kill_node(first)
    load.send(3000)
    left = sorted({1, 2, 3} - {first})
    until(lambda: isr(admin) == [left] * PARTITIONS)
    three.start_node(first)
    load.send(300)
    until(lambda: isr(admin) == [[1, 2, 3]] * PARTITIONS)
    second = leader(admin, 0)
    three.kill_node(second)
    load.send(300)
    assert len(load.acknowledged) == 6600
    further = read_on(servers, 3600)
    for partition, values in found.items():
        assert values + further[partition] == list(range(partition, 6600, PARTITIONS))
    assert not three.dead_nodes()


def test_transactions_bind_the_readers_of_the_next_leader_too(
    three: EmbeddedCluster, admin: AdminClient
) -> None:
    first = leader(admin, 0)
    with connected(three.bootstrap[first - 1]) as client:
        until(lambda: end_offset(client, TOPIC, READ_COMMITTED) == 0)
        aborted, open_one = RawTransactions(client, TOPIC), RawTransactions(client, TOPIC)
        assert aborted.write(b"aborted") is ErrorCode.NONE
        assert aborted.end(commit=False) is ErrorCode.NONE
        assert open_one.write(b"open") is ErrorCode.NONE
    three.kill_node(first)
    until(lambda: leader(admin, 0) not in (first, -1))
    with connected(three.bootstrap[leader(admin, 0) - 1]) as client:
        until(lambda: end_offset(client, TOPIC, READ_COMMITTED) == 2)
        assert open_transactions(client, TOPIC) == {open_one.producer_id: 2}
        open_one.client = client
        assert open_one.end(commit=True) is ErrorCode.NONE
        answer = fetch_committed(client, TOPIC, 0)
        assert aborted_in(answer) == [(aborted.producer_id, 0)]
        assert (answer.last_stable_offset, answer.high_watermark) == (4, 4)
        assert values_of(fetch_committed(client, TOPIC, 2).records) == [b"open"]
