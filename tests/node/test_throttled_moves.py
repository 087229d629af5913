"""Replicas that move slowly between real nodes, and everything else that does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory, until
from tests.node.commands import done
from tests.node.test_reassignment import plan

TIMEOUT_SECONDS = 60
RATE = 1000
DATA_BYTES = 3_000_000
SOON_BYTES = 200_000
"""Far more than the rate lets through while the test runs, and far less than there is."""
RATES = "leader.replication.throttled.rate,follower.replication.throttled.rate"


@pytest.fixture
def nodes(cluster: ClusterFactory) -> EmbeddedCluster:
    """Three, of which the first has a topic `t` of some size."""
    running = cluster(brokers=3)
    admin = AdminClient({"bootstrap.servers": addresses(running)})
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[1]])])["t"].result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": addresses(running), "batch.size": 20_000})
    for _ in range(DATA_BYTES // 1000):
        producer.produce("t", bytes(1000))
        producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return running


@pytest.fixture
def bootstrap(nodes: EmbeddedCluster) -> str:
    return f"--bootstrap-server={addresses(nodes)}"


@pytest.fixture
def move(nodes: EmbeddedCluster, bootstrap: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command that moves the topic to node 2, at a rate that would take it an hour."""
    arguments = ["topics", "reassign", "--plan", plan(tmp_path, {0: [2]}), "--throttle", str(RATE), "--wait"]
    command = [sys.executable, "-m", "broker.cli", *arguments, bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def addresses(cluster: EmbeddedCluster) -> str:
    return ",".join(map(str, cluster.bootstrap))


def size_on(cluster: EmbeddedCluster, node: int) -> int:
    """Bytes of the topic on a node."""
    directory = cluster.spec.directory / f"node-{node}" / "t-0"
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def replicate_another(cluster: EmbeddedCluster) -> None:
    """A topic on all nodes takes as much as the first holds, acknowledged by all of them."""
    admin = AdminClient({"bootstrap.servers": addresses(cluster)})
    made = admin.create_topics([NewTopic("u", 1, replica_assignment=[[1, 2, 3]])])
    made["u"].result(TIMEOUT_SECONDS)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": addresses(cluster), "acks": "all"})
    for _ in range(DATA_BYTES // 1000):
        producer.produce(
            "u", bytes(1000), on_delivery=lambda error, _: failures.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert not failures


def test_a_throttled_move_goes_slowly_beside_everything_else_and_freely_once_it_may(
    nodes: EmbeddedCluster, bootstrap: str, move: subprocess.Popen[str]
) -> None:
    until(lambda: size_on(nodes, 2) > 0)
    replicate_another(nodes)
    assert size_on(nodes, 2) < SOON_BYTES
    moving = done("topics", "reassign", "--status", bootstrap).lines
    assert moving == ["Topic: t\tPartition: 0\tReplicas: 2,1\tAdding: 2\tRemoving: 1"]
    assert done("topics", "describe", "t", bootstrap).lines == [
        "Topic: t\tPartition: 0\tLeader: 1\tReplicas: 2,1\tIsr: 1\tAdding: 2\tRemoving: 1"
    ]
    assert done("topics", "describe", "--under-replicated", bootstrap).lines == []
    coming, going = done("topics", "describe", "t", "--lag", "--output", "json", bootstrap).json
    assert (going["end"], going["lag"], going["in_sync"]) == (DATA_BYTES // 1000, 0, True)
    assert 0 < coming["end"] < SOON_BYTES // 1000
    assert (coming["lag"], coming["in_sync"]) == (going["end"] - coming["end"], False)
    for node in (1, 2, 3):
        altered = ["--entity-type", "brokers", "--entity-name", str(node), "--delete", RATES]
        done("configs", "alter", *altered, bootstrap)
    output, errors = move.communicate(timeout=TIMEOUT_SECONDS)
    assert (move.returncode, output) == (0, "Topic: t\tPartition: 0\tReplicas: 2\n"), errors
    assert size_on(nodes, 2) > DATA_BYTES
    until(lambda: size_on(nodes, 1) == 0)


def test_a_throttled_move_can_be_cancelled_and_leaves_no_throttle(
    nodes: EmbeddedCluster, bootstrap: str, move: subprocess.Popen[str]
) -> None:
    until(lambda: size_on(nodes, 2) > 0)
    assert done("topics", "reassign", "--cancel", bootstrap).lines == ["Cancelled: t-0"]
    assert move.wait(TIMEOUT_SECONDS) == 0
    until(lambda: size_on(nodes, 2) == 0)
    described = done("topics", "describe", "t", bootstrap).lines
    assert described == ["Topic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1"]
    of_topic = done("configs", "describe", "--entity-type", "topics", "--entity-name", "t", bootstrap).lines
    of_node = done("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", bootstrap).lines
    assert not [line for line in of_topic + of_node if ".throttled." in line]
    done("topics", "reassign", "t", "--brokers", "3", "--wait", bootstrap)
    assert size_on(nodes, 3) > DATA_BYTES
