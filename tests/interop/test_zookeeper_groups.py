"""Consumers of long ago and ours in one group that meets in ZooKeeper: partitions are sorted as theirs do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.types import TopicPartition
from tests.conftest import cluster_spec, until
from tests.interop.apache import JAVA, kafka_jars
from tests.node.group_processes import Group

PREFERRED = [2, 1, 2, 1, 2, 1]
"""Sorted by preferred broker, these partitions are in another order than by number."""
RECORDS = 300


@pytest.fixture(scope="module")
def nodes(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedCluster]:
    """A cluster of two nodes."""
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("two"), "two", brokers=2)
    with EmbeddedCluster(spec) as cluster:
        yield cluster


class JavaMember:
    """Kafka's console consumer as a member of the group."""

    def __init__(self, version: str, zookeeper: str, pattern: str, directory: Path) -> None:
        settings = directory / "consumer.properties"
        settings.write_text(
            "group.id=g\nauto.offset.reset=smallest\nauto.commit.interval.ms=200\nconsumer.id=java\n"
            "zookeeper.session.timeout.ms=2000\nrebalance.backoff.ms=500\nrebalance.max.retries=20\n"
        )
        self._log = directory / "java.log"
        jars = kafka_jars(version, directory / "jars")
        arguments = ["--zookeeper", zookeeper, "--whitelist", pattern, "--consumer.config", str(settings)]
        command = [*JAVA, "-Xmx256m", "-cp", jars, "kafka.tools.ConsoleConsumer", *arguments]
        self._process = ChildProcess.start("java", command, self._log)

    def values(self) -> list[str]:
        return [line for line in self._log.read_text(errors="replace").splitlines() if line.isdecimal()]

    def stop(self) -> None:
        self._process.stop(timeout_ms=20_000)


def members_by_share(owners: dict[TopicPartition, str]) -> dict[str, set[int]]:
    """Who owns which partitions; Kafka's consumers put their group before their id."""
    shares: dict[str, set[int]] = {}
    for partition, owner in owners.items():
        shares.setdefault(owner, set()).add(partition.partition)
    return shares


@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_consumers_of_both_kinds_share_the_partitions_and_take_over_from_each_other(
    version: str, nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    bootstrap = str(nodes.bootstrap[0])
    topic = f"numbers-{version}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(
        topic, replica_assignment=[[broker] for broker in PREFERRED], num_partitions=len(PREFERRED)
    )
    admin.create_topics([wanted])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    sent: list[str] = []

    def send() -> None:
        for _ in range(RECORDS):
            sent.append(str(len(sent)))
            producer.produce(topic, sent[-1], partition=len(sent) % len(PREFERRED))
        assert producer.flush(30) == 0

    with Group(
        bootstrap=bootstrap, zookeeper=nodes.spec.zookeeper_connect, directory=tmp_path, pattern=topic
    ) as group:
        group.join(streams=1)
        until(lambda: group.is_shared_out({topic: len(PREFERRED)}))
        send()
        until(lambda: {entry.value for entry in group.entries()} == set(sent))

        java = JavaMember(version, nodes.spec.zookeeper_connect, topic, tmp_path)
        shares = {"g_java": {0, 1, 2}, "member-000": {3, 4, 5}}
        until(lambda: members_by_share(group.owners()) == shares, seconds=60)
        before = len(group.entries())
        send()
        read_by_both = RECORDS // 2
        until(lambda: len(java.values()) == len(group.entries()) - before == read_by_both)

        group.join(streams=1)
        until(lambda: sorted(map(len, members_by_share(group.owners()).values())) == [2, 2, 2], seconds=60)
        send()
        java.stop()
        until(lambda: group.is_shared_out({topic: len(PREFERRED)}), seconds=60)
        send()
        until(lambda: {*java.values(), *(entry.value for entry in group.entries())} == set(sent))
        times_read = Counter([*java.values(), *(entry.value for entry in group.entries())])
        assert sum(times_read.values()) == len(sent), "what one read no other reads again"
