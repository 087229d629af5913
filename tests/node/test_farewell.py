"""How nodes leave a cluster and come back: leaderships move first, and records may be gone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from broker.errors import ConnectionFailedError
from broker.storage.filenames import BOOT_FILE, CLEAN_SHUTDOWN_FILE
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import connected

PARTITIONS = 6
TIMEOUT_MS = 30_000


@pytest.fixture
def cluster_of_two(cluster: ClusterFactory) -> EmbeddedCluster:
    """Two nodes with a replicated topic `t`."""
    running = cluster(brokers=2)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=2)
    with connected(running.bootstrap[0]) as client:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    assert response.topics[0].error_code == 0
    return running


def leaders(cluster: EmbeddedCluster, *, asked: int) -> list[int]:
    """Of the partitions of `t`, as one node knows them."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    with connected(cluster.bootstrap[asked - 1]) as client:
        (topic,) = client.request(request).topics
    return [partition.leader_id for partition in sorted(topic.partitions, key=lambda p: p.partition_index)]


def log_of(cluster: EmbeddedCluster, node: int) -> str:
    return (cluster.spec.directory / f"node-{node}.log").read_text()


def root_of(cluster: EmbeddedCluster, node: int) -> Path:
    return cluster.spec.directory / f"node-{node}"


@pytest.mark.parametrize("node", [1, 2])
def test_a_node_that_stops_hands_its_leaderships_over_first(
    cluster_of_two: EmbeddedCluster, node: int
) -> None:
    other = 3 - node
    until(lambda: set(leaders(cluster_of_two, asked=other)) == {1, 2})
    seen: list[list[int]] = []
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.is_set():
            seen.append(leaders(cluster_of_two, asked=other))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert cluster_of_two.stop_node(node) == 0
    finally:
        has_ended.set()
        watcher.join()
    assert all(leader in (1, 2) for found in seen for leader in found)
    assert set(leaders(cluster_of_two, asked=other)) == {other}
    assert "leaderships_handed_over" in log_of(cluster_of_two, node)


def test_a_node_may_stop_without_handing_over(cluster: ClusterFactory) -> None:
    running = cluster(settings={"controlled.shutdown.enable": False})
    assert running.stop_node(1) == 0
    assert "leaderships_" not in log_of(running, 1)


def test_a_whole_cluster_stops_without_waiting_for_those_that_are_gone(
    cluster_of_two: EmbeddedCluster,
) -> None:
    cluster_of_two.stop()
    for node in (1, 2):
        assert "node_stopped" in log_of(cluster_of_two, node)
        assert (root_of(cluster_of_two, node) / CLEAN_SHUTDOWN_FILE).exists()


def test_after_a_loss_of_power_a_node_waits_for_others_that_were_in_sync(
    cluster_of_two: EmbeddedCluster,
) -> None:
    """Both were in sync when both ended, but only what the other had is certainly all."""
    for node in (2, 1):
        cluster_of_two.kill_node(node)
    (root_of(cluster_of_two, 1) / BOOT_FILE).write_text("another start of the machine")
    cluster_of_two.start_node(1)
    assert 1 not in leaders(cluster_of_two, asked=1)
    cluster_of_two.start_node(2)
    until(lambda: set(leaders(cluster_of_two, asked=1)) == {2})


def test_after_the_end_of_its_process_a_node_waits_for_nobody(cluster_of_two: EmbeddedCluster) -> None:
    for node in (2, 1):
        cluster_of_two.kill_node(node)
    cluster_of_two.start_node(1)
    until(lambda: set(leaders(cluster_of_two, asked=1)) == {1})


def test_a_stopped_node_is_told_to_nobody_any_more(cluster_of_two: EmbeddedCluster) -> None:
    cluster_of_two.stop_node(2)
    with pytest.raises((ConnectionFailedError, OSError)):
        leaders(cluster_of_two, asked=2)
    with connected(cluster_of_two.bootstrap[0]) as client:
        assert [broker.node_id for broker in client.request(MetadataRequest(topics=[])).brokers] == [1]


def test_a_topic_may_have_a_replica_on_each_node_as_soon_as_all_are_ready(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3)
    for number, address in enumerate(running.bootstrap):
        topic = CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=3)
        with connected(address) as client:
            response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        assert response.topics[0].error_code == 0
