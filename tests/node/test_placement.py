"""Where real nodes put replicas, and what they refuse to put anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import until
from tests.racks import racked_cluster

RACKS = ("a", "a", "b", "b")
TIMEOUT_SECONDS = 30


@pytest.fixture
def nodes(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Four nodes in two racks; topics that do not say get more replicas than there are nodes."""
    settings = {"default.replication.factor": 5}
    with racked_cluster(zookeeper, tmp_path, racks=RACKS, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def admin(nodes: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(map(str, nodes.bootstrap))})


def placed(admin: AdminClient, topic: str) -> list[list[int]]:
    partitions = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
    return [partition.replicas for _, partition in sorted(partitions.items())]


def refusal(admin: AdminClient, topic: NewTopic | NewPartitions) -> int:
    """The code that a topic, or its growth, is refused with."""
    begin = admin.create_topics if isinstance(topic, NewTopic) else admin.create_partitions
    (future,) = begin([topic]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(TIMEOUT_SECONDS)
    return int(refused.value.args[0].code())


def test_replicas_are_spread_over_racks_and_leaders_over_nodes(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 4, 2)])["t"].result(TIMEOUT_SECONDS)
    admin.create_topics([NewTopic("u", 8, 3)])["u"].result(TIMEOUT_SECONDS)
    admin.create_partitions([NewPartitions("t", 8)])["t"].result(TIMEOUT_SECONDS)
    until(lambda: len(placed(admin, "t")) == 8)
    for replicas in placed(admin, "t") + placed(admin, "u"):
        assert {RACKS[node - 1] for node in replicas} == {"a", "b"}
        assert len(set(replicas)) == len(replicas)
    assert sorted(replicas[0] for replicas in placed(admin, "u")) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_what_does_not_fit_on_the_nodes_is_refused(nodes: EmbeddedCluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(TIMEOUT_SECONDS)
    assert refusal(admin, NewTopic("u", 1, 5)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(admin, NewTopic("u", 1)) == KafkaError.INVALID_REPLICATION_FACTOR
    for replicas in ([9], [1, 9], [1, 1]):
        asked = NewTopic("u", 1, replica_assignment=[replicas])
        assert refusal(admin, asked) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    for replicas in ([9, 1], [1], [1, 2, 3]):
        grown = NewPartitions("t", 2, replica_assignment=[replicas])
        assert refusal(admin, grown) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert refusal(admin, NewPartitions("t", 1)) == KafkaError.INVALID_PARTITIONS
    nodes.kill_node(4)
    until(lambda: len(admin.list_topics(timeout=TIMEOUT_SECONDS).brokers) == 3)
    dead = NewTopic("u", 1, replica_assignment=[[1, 4]])
    assert refusal(admin, dead) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert refusal(admin, NewTopic("u", 1, 4)) == KafkaError.INVALID_REPLICATION_FACTOR
    first_use = Producer({"bootstrap.servers": str(nodes.bootstrap[0])}).list_topics(
        "u", timeout=TIMEOUT_SECONDS
    )
    assert first_use.topics["u"].error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    admin.create_topics([NewTopic("u", 1, 3)])["u"].result(TIMEOUT_SECONDS)
    assert sorted(placed(admin, "u")[0]) == [1, 2, 3]
