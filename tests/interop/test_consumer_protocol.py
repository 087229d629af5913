"""The consumer protocol (KIP-848) as the clients that people have speak it."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory, until
from tests.interop.conftest import Tool

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
NEW = ("--consumer-property", "group.protocol=consumer")


def test_the_newest_java_consumer_reads_as_a_member_and_is_described(
    newest_java_tool: Tool, bootstrap: str, topic: str
) -> None:
    server, group = ("--bootstrap-server", bootstrap), f"group-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200):
        producer.produce(topic, str(number))
    producer.flush()
    reading = ("--group", group, "--from-beginning", "--max-messages", "200", "--timeout-ms", "60000")
    consumed = newest_java_tool(CONSUMER, *server, "--topic", topic, *reading, *NEW)
    assert sorted(map(int, consumed.split())) == list(range(200))
    listed = newest_java_tool(GROUPS, *server, "--list", "--type")
    assert re.search(rf"^{group}\s+Consumer\s*$", listed, re.MULTILINE)
    described = newest_java_tool(GROUPS, *server, "--describe", "--group", group)
    assert re.search(rf"{topic}\s+0\s+200\s+200\s+0 ", described)
    by_pattern = newest_java_tool(
        CONSUMER, *server, "--include", f"{topic[:-1]}.", *reading[2:], "--group", f"{group}-2", *NEW
    )
    assert len(by_pattern.split()) == 200
    newest_java_tool(GROUPS, *server, "--delete", "--group", group)
    assert group not in newest_java_tool(GROUPS, *server, "--list").split()


class Reader:
    """A member of librdkafka's; `has` are its partitions."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, **settings: object) -> None:
        self.has: set[int] = set()
        self.values: list[str] = []
        self.lost = False
        self.is_closed = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": str(cluster.bootstrap[0]),
                "group.id": "g",
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has |= {each.partition for each in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has -= {each.partition for each in partitions}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost = True
        self._revoked(consumer, partitions)

    def poll(self) -> None:
        if self.is_closed:
            return
        message = self._consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(message.value().decode())

    def close(self) -> None:
        if not self.is_closed:
            self._consumer.close()
        self.is_closed = True
        self.has = set()


@pytest.fixture
def quick(cluster: ClusterFactory) -> EmbeddedCluster:
    settings = {
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 200,
        "num.partitions": 4,
    }
    return cluster(settings=settings)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_group_is_upgraded_and_downgraded_under_its_members(quick: EmbeddedCluster, strategy: str) -> None:
    topic = "t"
    producer = Producer({"bootstrap.servers": str(quick.bootstrap[0])})
    sent: list[str] = []

    def produce() -> None:
        for _ in range(40):
            sent.append(str(len(sent)))
            producer.produce(topic, sent[-1], partition=len(sent) % 4)
        producer.flush()

    old = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    new = {"group.protocol": "consumer"}
    readers: list[Reader] = []
    with ExitStack() as stack:

        def join(settings: dict[str, object]) -> Reader:
            readers.append(Reader(quick, topic, **settings))
            stack.callback(readers[-1].close)
            return readers[-1]

        def is_settled() -> bool:
            for reader in readers:
                reader.poll()
            held = sorted(number for reader in readers for number in reader.has)
            read = {value for reader in readers for value in reader.values}
            everyone_has = all(reader.has for reader in readers if not reader.is_closed)
            return held == [0, 1, 2, 3] and everyone_has and len(read) == len(sent)

        def settle() -> None:
            """Until the partitions are shared out, and all that was sent is read."""
            produce()
            until(is_settled, seconds=60)

        first = join(old)
        settle()
        second = join(new)
        settle()
        join(old)
        settle()
        second.close()
        settle()
        join(new)
        settle()
        first.close()
        settle()
        values = [int(value) for reader in readers for value in reader.values]
        assert sorted(values) == list(range(len(sent))), "each once"
        assert not any(reader.lost for reader in readers)
