"""Apache Kafka's Java clients and tools on three of our nodes that stand in racks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.conformance.test_confluent_kafka import produce
from tests.conformance.test_follower_reads import create_led_by, leader_of
from tests.interop.apache import JAVA
from tests.interop.conftest import Tool
from tests.racks import racked_cluster

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORDS = 4000


@pytest.fixture
def racks(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    settings = {"replica.selector.class": "rack", "zookeeper.session.timeout.ms": 18_000}
    with racked_cluster(zookeeper, tmp_path, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def bootstrap(racks: EmbeddedCluster) -> str:
    return ",".join(map(str, racks.bootstrap))


@pytest.mark.parametrize("classpath", ["kafka_classpath", "newest_classpath"])
def test_a_consumer_reads_from_its_rack_while_the_leader_stands_still(
    racks: EmbeddedCluster, bootstrap: str, classpath: str, request: pytest.FixtureRequest
) -> None:
    """It stops fetching while nobody takes its output, of which there is more than a pipe holds."""
    create_led_by(bootstrap, "t", [1, 2, 3])
    values = [f"{number} {'x' * 900}" for number in range(RECORDS)]
    produce(bootstrap, "t", values, batch_size=20_000, enable_idempotence=True)  # in their order
    options = ["--topic", "t", "--partition", "0", "--offset", "earliest", "--max-messages", str(RECORDS)]
    for setting in ("client.rack=rack-3", "max.partition.fetch.bytes=10000", "max.poll.records=10"):
        options += ["--consumer-property", setting]
    command = [*JAVA, "-Xmx256m", "-cp", request.getfixturevalue(classpath), CONSOLE_CONSUMER]
    command += ["--bootstrap-server", bootstrap, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
        assert consumer.stdout is not None
        lines = [consumer.stdout.readline()]
        os.kill(racks.pids[1], signal.SIGSTOP)
        try:
            lines += [consumer.stdout.readline() for _ in range(RECORDS - 1)]
            leader = leader_of(str(racks.bootstrap[2]), "t")
        finally:
            os.kill(racks.pids[1], signal.SIGCONT)
            consumer.kill()
    assert "".join(lines).splitlines() == values
    assert leader == 1, "it moved: the rest may have come from the new one"


def test_the_reassignment_tool_throttles_cancels_and_verifies(
    racks: EmbeddedCluster, bootstrap: str, java_tool: Tool, tmp_path: Path
) -> None:
    create_led_by(bootstrap, "t", [1])
    produce(bootstrap, "t", ["x" * 900] * RECORDS, batch_size=20_000)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]})
    )

    def reassign(*arguments: str) -> str:
        return java_tool(REASSIGNMENT, "--bootstrap-server", bootstrap, *arguments)

    begun = reassign("--reassignment-json-file", str(plan), "--execute", "--throttle", "1000")
    assert "Successfully started partition reassignment for t-0" in begun
    assert "t-0: replicas: 2,1. adding: 2. removing: 1." in reassign("--list")
    under_way = reassign("--reassignment-json-file", str(plan), "--verify")
    assert "Reassignment of partition t-0 is still in progress" in under_way
    cancelled = reassign("--reassignment-json-file", str(plan), "--cancel")
    assert "Successfully cancelled partition reassignment for: t-0" in cancelled
    assert "No partition reassignments found" in reassign("--list")
    begun = reassign("--reassignment-json-file", str(plan), "--execute", "--throttle", "1000000000")
    assert "Successfully started" in begun
    told = ""
    while "is completed" not in told:
        told = reassign("--reassignment-json-file", str(plan), "--verify")
        assert "Error" not in told
    assert "Clearing topic-level throttles on topic t" in told
