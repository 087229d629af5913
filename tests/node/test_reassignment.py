"""Replicas that move between real nodes while clients write and read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory, until
from tests.node.commands import Outcome, broker, done

TIMEOUT_SECONDS = 60
RECORDS = 2_000


@pytest.fixture
def four_nodes(cluster: ClusterFactory) -> EmbeddedCluster:
    return cluster(brokers=4)


@pytest.fixture
def bootstrap(four_nodes: EmbeddedCluster) -> str:
    return "--bootstrap-server=" + ",".join(map(str, four_nodes.bootstrap))


@pytest.fixture
def topic(four_nodes: EmbeddedCluster, bootstrap: str, tmp_path: Path) -> str:
    """Two partitions on nodes 1 and 2, with records."""
    done("topics", "create", "t", "--partitions", "2", "--replication-factor", "2", bootstrap)
    done("topics", "reassign", "t", "--brokers", "1,2", "--wait", bootstrap)
    produced(four_nodes, 0, RECORDS)
    return "t"


def produced(cluster: EmbeddedCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": addresses(cluster), "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce("t", str(number), partition=number % 2)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def addresses(cluster: EmbeddedCluster) -> str:
    return ",".join(map(str, cluster.bootstrap))


def consumed(cluster: EmbeddedCluster, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": addresses(cluster), "group.id": "unused"})
    consumer.assign([TopicPartition("t", number, 0) for number in range(2)])
    found: list[int] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=TIMEOUT_SECONDS)
            assert messages, f"{len(found)} of {count}"
            found += [int(message.value()) for message in messages]
    finally:
        consumer.close()
    return found


def replicas(bootstrap: str) -> list[list[int]]:
    return [row["replicas"] for row in done("topics", "describe", "t", "--output", "json", bootstrap).json]


def in_sync(bootstrap: str) -> list[set[int]]:
    rows = done("topics", "describe", "t", "--output", "json", bootstrap).json
    return [set(row["isr"]) for row in rows]


def directory(cluster: EmbeddedCluster, node: int, partition: int) -> Path:
    return cluster.spec.directory / f"node-{node}" / f"t-{partition}"


class Load:
    """An idempotent producer that writes all the time."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._addresses = addresses(cluster)
        self._has_ended = threading.Event()
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def stop(self) -> None:
        self._has_ended.set()
        self._writer.join()

    def goes_on(self) -> None:
        """Return once some more records were acknowledged."""
        seen = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > seen + 10)

    def _write(self) -> None:
        settings = {"bootstrap.servers": self._addresses, "enable.idempotence": True, "linger.ms": 1}
        producer, number = Producer(settings), RECORDS
        while not self._has_ended.is_set():
            producer.produce("t", str(number), partition=number % 2, on_delivery=self._delivered)
            producer.poll(0.002)
            number += 1
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def _delivered(self, error: object, message: Message) -> None:
        if error:
            self.failures.append(str(error))
        else:
            self.acknowledged.append(int(message.value()))


@pytest.fixture
def load(four_nodes: EmbeddedCluster, topic: str) -> Iterator[Load]:
    running = Load(four_nodes)
    try:
        running.goes_on()
        yield running
    finally:
        running.stop()


def test_a_topic_moves_to_other_nodes_under_load_and_nothing_is_lost(
    four_nodes: EmbeddedCluster, bootstrap: str, load: Load
) -> None:
    moved = done("topics", "reassign", "t", "--brokers", "3,4", "--wait", bootstrap)
    assert moved.lines == [
        "Topic: t\tPartition: 0\tReplicas: 3,4",
        "Topic: t\tPartition: 1\tReplicas: 4,3",
    ]
    assert replicas(bootstrap) == [[3, 4], [4, 3]]
    assert done("topics", "reassign", "--status", bootstrap).lines == []
    load.goes_on()
    load.stop()
    assert load.failures == []
    found = consumed(four_nodes, RECORDS + len(load.acknowledged))
    for parity in range(2):
        wanted = [*range(parity, RECORDS, 2), *(n for n in load.acknowledged if n % 2 == parity)]
        assert [value for value in found if value % 2 == parity] == wanted
    until(lambda: not any(directory(four_nodes, node, p).exists() for node in (1, 2) for p in (0, 1)))


@pytest.mark.long
def test_a_topic_gets_more_and_fewer_replicas(
    four_nodes: EmbeddedCluster, bootstrap: str, topic: str
) -> None:
    done("topics", "reassign", "t", "--brokers", "1,2,3,4", "--replication-factor", "3", "--wait", bootstrap)
    assert [len(found) for found in replicas(bootstrap)] == [3, 3]
    until(lambda: [len(found) for found in in_sync(bootstrap)] == [3, 3])
    done("topics", "reassign", "t", "--brokers", "2", "--replication-factor", "1", "--wait", bootstrap)
    assert replicas(bootstrap) == [[2], [2]]
    assert sorted(consumed(four_nodes, RECORDS)) == list(range(RECORDS))


def test_a_drained_node_can_go(four_nodes: EmbeddedCluster, bootstrap: str, topic: str) -> None:
    done("topics", "reassign", "--drain", "1", "--wait", bootstrap)
    assert all(1 not in found for found in replicas(bootstrap))
    four_nodes.kill_node(1)
    assert sorted(consumed(four_nodes, RECORDS)) == list(range(RECORDS))
    assert not list((four_nodes.spec.directory / "node-1").glob("t-[01]"))


def test_a_move_to_a_node_that_died_can_be_cancelled(
    four_nodes: EmbeddedCluster, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    four_nodes.kill_node(3)  # its session lives on for a while: the move is begun all the same
    begun = broker("topics", "reassign", "--plan", plan(tmp_path, {0: [3, 1]}), bootstrap)
    if begun.code == 0:
        status = done("topics", "reassign", "--status", bootstrap).lines
        assert status == ["Topic: t\tPartition: 0\tReplicas: 3,1,2\tAdding: 3\tRemoving: 2"]
        assert done("topics", "reassign", "--cancel", bootstrap).lines == ["Cancelled: t-0"]
    else:
        assert "INVALID_REPLICA_ASSIGNMENT" in begun.errors
    until(lambda: sorted(replicas(bootstrap)[0]) == [1, 2])
    assert sorted(consumed(four_nodes, RECORDS)) == list(range(RECORDS))


def test_a_move_survives_its_controller(
    four_nodes: EmbeddedCluster, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    done("topics", "reassign", "--plan", plan(tmp_path, {0: [3, 4], 1: [4, 3]}), bootstrap)
    killed = controller(four_nodes)
    four_nodes.kill_node(killed)
    four_nodes.start_node(killed)
    until(lambda: replicas(bootstrap) == [[3, 4], [4, 3]])
    assert sorted(consumed(four_nodes, RECORDS)) == list(range(RECORDS))


def controller(cluster: EmbeddedCluster) -> int:
    metadata = Producer({"bootstrap.servers": addresses(cluster)}).list_topics(timeout=TIMEOUT_SECONDS)
    return int(metadata.controller_id)


def plan(tmp_path: Path, partitions: dict[int, list[int]]) -> str:
    """A file in the format of Kafka's tools."""
    path = tmp_path / "plan.json"
    entries = [{"topic": "t", "partition": p, "replicas": r} for p, r in partitions.items()]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


@pytest.mark.long
def test_the_first_replica_leads_again_where_it_is_asked_for(
    four_nodes: EmbeddedCluster, bootstrap: str, topic: str
) -> None:
    assert four_nodes.stop_node(1) == 0
    four_nodes.start_node(1)
    until(lambda: in_sync(bootstrap) == [{1, 2}, {1, 2}])
    assert [row["leader"] for row in described(bootstrap)] == [2, 2]
    done("topics", "elect", "t", bootstrap)
    until(lambda: [row["leader"] for row in described(bootstrap)] == [1, 2])


def described(bootstrap: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = done("topics", "describe", "t", "--output", "json", bootstrap).json
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moved", "--brokers", "1,9"], "broker 9 is not there"),
        (["moved", "--brokers", "1", "--replication-factor", "2"], "2 replicas for 1 brokers"),
        (["--brokers", "1,2"], "--brokers needs the names of topics"),
        (["nothing", "--brokers", "1"], "UNKNOWN_TOPIC_OR_PARTITION: topic nothing"),
        (["moved", "--drain", "1"], "no other broker is left"),
        (["moved", "--drain", "1", "--throttle", "5"], "--throttle needs --wait"),
        (["--plan", "/nowhere.json"], "/nowhere.json: No such file"),
        (["--cancel", "--wait"], "--status and --cancel go alone"),
    ],
)
def test_moves_that_cannot_be_are_refused_before_anything_moves(
    node: EmbeddedCluster, arguments: list[str], words: str
) -> None:
    bootstrap = f"--bootstrap-server={node.bootstrap[0]}"
    done("topics", "create", "moved", "--if-not-exists", bootstrap)
    refused: Outcome = broker("topics", "reassign", *arguments, bootstrap)
    assert refused.code == 1
    assert words in refused.errors
    assert "Traceback" not in refused.errors
