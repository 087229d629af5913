"""The name server as a process: clients find a cluster by it alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import accepts, free_ports
from broker.types import HostPort
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.conftest import ClusterFactory, cluster_spec, forked, until
from tests.node.raw_client import connected, create_topic

TIMEOUT_SECONDS = 30
TIMEOUT_MS = 30_000


class NameServer:
    """A name server of a cluster, started and ended as its operator would."""

    def __init__(self, zookeeper_connect: str, log: Path) -> None:
        self.address = HostPort("127.0.0.1", free_ports(1)[0])
        options = ["--zookeeper", zookeeper_connect, "--listen", str(self.address)]
        command = [sys.executable, "-m", "broker.cli", "nameserver", *options]
        self.process = ChildProcess.start("nameserver", command, log)
        self.process.wait_until(lambda: accepts(self.address), timeout_ms=TIMEOUT_MS)

    def metadata(self, *names: str) -> MetadataResponse:
        """What it tells of these topics, or of all."""
        asked = [MetadataRequestTopic(name=name) for name in names] if names else None
        with connected(self.address) as client:
            return client.request(MetadataRequest(topics=asked, allow_auto_topic_creation=False))

    def close(self) -> None:
        """As its operator would."""
        assert self.process.stop(timeout_ms=TIMEOUT_MS) == 0


@pytest.fixture
def two_nodes(cluster: ClusterFactory) -> EmbeddedCluster:
    return cluster(brokers=2)


@pytest.fixture
def nameserver(two_nodes: EmbeddedCluster, tmp_path: Path) -> Iterator[NameServer]:
    server = NameServer(two_nodes.spec.zookeeper_connect, tmp_path / "nameserver.log")
    with contextlib.closing(server):
        yield server


def test_a_foreign_client_that_knows_only_the_name_server_writes_and_reads_in_a_group(
    nameserver: NameServer,
) -> None:
    producer = Producer({"bootstrap.servers": str(nameserver.address)})
    for number in range(100):
        producer.produce("made-by-asking", str(number))
    assert producer.flush(TIMEOUT_SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": str(nameserver.address),
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["made-by-asking"])
    with contextlib.closing(consumer):
        found = consumer.consume(100, timeout=TIMEOUT_SECONDS)
    assert [message.value() for message in found] == [str(number).encode() for number in range(100)]


def test_only_what_names_need_is_served(nameserver: NameServer) -> None:
    with connected(nameserver.address) as client:
        answer = client.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
    assert [api.api_key for api in answer.api_keys] == [3, 10, 18, 60]


def test_changes_of_leaders_brokers_and_topics_are_followed(
    two_nodes: EmbeddedCluster, nameserver: NameServer
) -> None:
    with connected(two_nodes.bootstrap[0]) as client:
        create_topic(client, "followed", partitions=2)
    until(lambda: _leaders(nameserver, "followed") == {1, 2})
    assert len(nameserver.metadata().brokers) == 2
    assert two_nodes.stop_node(2) == 0
    until(lambda: len(nameserver.metadata().brokers) == 1)
    until(lambda: _leaders(nameserver, "followed") == {1, -1})
    two_nodes.start_node(2)
    until(lambda: _leaders(nameserver, "followed") == {1, 2})
    with connected(two_nodes.bootstrap[0]) as client:
        client.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="followed")], timeout_ms=TIMEOUT_MS))
    until(lambda: "followed" not in {topic.name for topic in nameserver.metadata().topics})


def _leaders(nameserver: NameServer, topic: str) -> set[int]:
    (found,) = nameserver.metadata(topic).topics
    return {partition.leader_id for partition in found.partitions}


def test_the_last_known_answers_hold_while_zookeeper_is_away(tmp_path: Path) -> None:
    (tmp_path / "zookeeper").mkdir()
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper", fsync=False) as zookeeper,
        EmbeddedCluster(cluster_spec(zookeeper, tmp_path, "away"), forked) as cluster,
        contextlib.closing(NameServer(cluster.spec.zookeeper_connect, tmp_path / "names.log")) as server,
    ):
        before = server.metadata()
        zookeeper.stop()
        assert server.metadata() == before
        zookeeper.start()
        producer = Producer({"bootstrap.servers": str(server.address)})
        producer.produce("later", "record")
        assert producer.flush(TIMEOUT_SECONDS) == 0
        until(lambda: "later" in {topic.name for topic in server.metadata().topics})


def test_group_coordinators_are_those_that_brokers_name(
    two_nodes: EmbeddedCluster, nameserver: NameServer
) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{n}" for n in range(20)])

    def told_by(address: HostPort) -> FindCoordinatorResponse:
        with connected(address) as client:
            return client.request(request)

    def is_named(told: FindCoordinatorResponse) -> bool:
        return not any(found.error_code for found in told.coordinators)

    until(lambda: is_named(told_by(two_nodes.bootstrap[0])), "all partitions of the offsets have leaders")
    until(lambda: told_by(nameserver.address) == told_by(two_nodes.bootstrap[0]), "the same is named")
    assert is_named(told_by(nameserver.address))


def test_a_zookeeper_without_a_cluster_is_named_as_such(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    finished = _refused("--zookeeper", zookeeper.connect_string(tmp_path.name))
    assert "no broker was ever registered" in finished.stderr


def test_a_zookeeper_that_is_away_is_named() -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    finished = _refused("--zookeeper", away, "--session-timeout-ms", "500")
    assert f"no ZooKeeper at {away}" in finished.stderr


def _refused(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker.cli", "nameserver", *options]
    listen = ["--listen", f"127.0.0.1:{free_ports(1)[0]}"]
    finished = subprocess.run(
        [*command, *listen], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    return finished
