"""Apache Kafka's own administrative tools on three of our nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import cluster_spec, until
from tests.interop.conftest import Tool

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
RECORDS = 5_000


@pytest.fixture(scope="module")
def cluster(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedCluster]:
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("interop-cluster"), "three", brokers=3)
    with EmbeddedCluster(spec) as running:
        yield running


@pytest.fixture
def server(cluster: EmbeddedCluster) -> tuple[str, str]:
    return "--bootstrap-server", ",".join(map(str, cluster.bootstrap))


def described(java_tool: Tool, server: tuple[str, str], topic: str, *options: str) -> list[dict[str, str]]:
    """Partitions as kafka-topics.sh shows them."""
    lines = java_tool(TOPICS, *server, "--describe", "--topic", topic, *options).splitlines()
    return [
        dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
        for line in lines
        if "Partition: " in line
    ]


def written_plan(tmp_path: Path, topic: str, replicas: list[list[int]]) -> str:
    path = tmp_path / "plan.json"
    partitions = [
        {"topic": topic, "partition": number, "replicas": wanted} for number, wanted in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_kafkas_tool_creates_a_replicated_topic_and_finds_every_replica_in_sync(
    java_tool: Tool, server: tuple[str, str]
) -> None:
    java_tool(
        TOPICS, *server, "--create", "--topic", "made", "--partitions", "4", "--replication-factor", "3"
    )
    found = described(java_tool, server, "made")
    assert [sorted(partition["Isr"].split(",")) for partition in found] == [["1", "2", "3"]] * 4
    assert {partition["Leader"] for partition in found} == {"1", "2", "3"}
    assert described(java_tool, server, "made", "--under-replicated-partitions") == []


def test_kafkas_tool_moves_replicas_with_a_throttle_and_verifies_the_move(
    java_tool: Tool, server: tuple[str, str], tmp_path: Path
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", "moved", "--replica-assignment", "1:2,2:1")
    java_tool(
        VERIFIABLE_PRODUCER, *server, "--topic", "moved", "--max-messages", str(RECORDS), "--acks", "-1"
    )
    plan = ("--reassignment-json-file", written_plan(tmp_path, "moved", [[3, 1], [2, 3]]))
    begun = java_tool(REASSIGN, *server, *plan, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun
    until(lambda: "No partition reassignments found" in java_tool(REASSIGN, *server, "--list"))
    verified = java_tool(REASSIGN, *server, *plan, "--verify")
    for number in range(2):
        assert f"Reassignment of partition moved-{number} is completed." in verified
    assert "Clearing broker-level throttles" in verified
    found = described(java_tool, server, "moved")
    assert [partition["Replicas"] for partition in found] == ["3,1", "2,3"]
    assert all("throttled" not in partition.get("Configs", "") for partition in found)


def test_kafkas_tool_elects_preferred_leaders(
    java_tool: Tool, server: tuple[str, str], cluster: EmbeddedCluster
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", "elected", "--replica-assignment", "1:2:3")
    assert cluster.stop_node(1) == 0
    (without,) = described(java_tool, server, "elected")
    assert without["Leader"] in ("2", "3")
    cluster.start_node(1)
    until(lambda: described(java_tool, server, "elected", "--under-replicated-partitions") == [])
    java_tool(ELECTION, *server, "--election-type", "preferred", "--topic", "elected", "--partition", "0")
    until(lambda: described(java_tool, server, "elected")[0]["Leader"] == "1")


def test_kafkas_tool_finds_a_written_topic_available_and_in_sync(
    java_tool: Tool, server: tuple[str, str]
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", "alike", "--replication-factor", "3")
    java_tool(
        VERIFIABLE_PRODUCER, *server, "--topic", "alike", "--max-messages", str(RECORDS), "--acks", "-1"
    )
    found = described(java_tool, server, "alike", "--unavailable-partitions")
    assert found == []
    (partition,) = described(java_tool, server, "alike")
    assert re.fullmatch(r"[123](,[123]){2}", partition["Isr"])
