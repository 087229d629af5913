"""Nodes with several data directories whose disks really fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.types import HostPort
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from tests.conftest import until
from tests.node.file_systems import fail, mounted_ext4
from tests.node.raw_client import (
    FETCH_VERSION,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch_request,
    produce_request,
    values_of,
)
from tests.node.test_life import TIMEOUT_SECONDS, settings_of, start, started

FAILED_DISK_SIZE = 32 << 20


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Path]:
    with mounted_ext4(tmp_path / "bad", size=FAILED_DISK_SIZE) as path:
        yield path


@pytest.fixture
def settings(zookeeper: EmbeddedZooKeeper, tmp_path: Path, bad: Path) -> dict[str, object]:
    return settings_of(zookeeper, tmp_path, log_dirs=f"{bad},{tmp_path / 'good'}", log_dir_min_free_bytes=0)


def address_of(settings: Mapping[str, object]) -> HostPort:
    return HostPort.parse(str(settings["listeners"]).removeprefix("PLAINTEXT://"))


@contextmanager
def running(tmp_path: Path, settings: Mapping[str, object]) -> Iterator[RawClient]:
    """A node that has started, and a connection to it; it stops with code 0."""
    with started(tmp_path, settings) as (process, log):
        until(lambda: process.poll() is not None or "node_started" in log.read_text())
        assert process.poll() is None, log.read_text()
        with connected(address_of(settings)) as client:
            yield client
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()


def produce_code(client: RawClient, partition: int, *, version: int | None = None, acks: int = -1) -> int:
    request = produce_request("t", batch_of(b"%d" % partition), partition=partition, acks=acks)
    return client.request(request, version).responses[0].partition_responses[0].error_code


def partitions_of(client: RawClient, topic: str = "t") -> list[MetadataResponsePartition]:
    response = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return sorted(response.topics[0].partitions, key=lambda partition: partition.partition_index)


def list_offsets_code(client: RawClient, partition: int) -> int:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])], timeout_ms=1000
    )
    return client.request(request).topics[0].partitions[0].error_code


def fetched(client: RawClient, version: int = FETCH_VERSION) -> list[tuple[int, list[bytes | None]]]:
    response = client.request(fetch_request("t", 0, 0, 0, 0), version)
    return [
        (partition.error_code, values_of(partition.records)) for partition in response.responses[0].partitions
    ]


def lost_partitions(bad: Path) -> set[int]:
    return {number for number in range(4) if (bad / f"t-{number}").exists()}


def test_a_failed_disk_takes_only_its_partitions(
    tmp_path: Path, settings: dict[str, object], bad: Path
) -> None:
    with running(tmp_path, settings) as client:
        create_topic(client, "t", partitions=4)
        assert [produce_code(client, number) for number in range(4)] == [0] * 4
        lost = lost_partitions(bad)
        assert len(lost) == 2
        fail(bad)
        storage_error = ErrorCode.KAFKA_STORAGE_ERROR
        for number in range(4):
            assert produce_code(client, number) == (storage_error if number in lost else 0)
        until(lambda: {p.partition_index for p in partitions_of(client) if p.leader_id == -1} == lost)
        for partition in partitions_of(client):
            assert list(partition.offline_replicas) == [1] * (partition.partition_index in lost)
        for number, (code, values) in enumerate(fetched(client)):
            expected = (storage_error, []) if number in lost else (0, [b"%d" % number] * 2)
            assert (code, values) == expected
            assert list_offsets_code(client, number) == (storage_error if number in lost else 0)
        one_lost = min(lost)
        assert fetched(client, 5)[one_lost][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produce_code(client, one_lost, version=3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        roots = {
            result.log_dir: result for result in client.request(DescribeLogDirsRequest(topics=None)).results
        }
        assert roots[str(bad)].error_code == storage_error
        good = roots[str(tmp_path / "good")]
        assert good.error_code == 0
        assert {p.partition_index for topic in good.topics for p in topic.partitions} == set(range(4)) - lost
        assert good.total_bytes > good.usable_bytes > 0
        create_topic(client, "after", partitions=2)
        until(lambda: [p.leader_id for p in partitions_of(client, "after")] == [1, 1])
        assert (tmp_path / "good" / "after-0").exists()
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "good" / f"t-{one_lost}").exists()


def test_a_partition_of_a_failed_disk_stays_lost_over_a_restart_and_comes_back_with_its_disk(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    settings = settings_of(zookeeper, tmp_path, log_dirs=f"{bad},{good}")
    with running(tmp_path, settings) as client:
        create_topic(client, "t", partitions=4)
        assert [produce_code(client, number) for number in range(4)] == [0] * 4
    lost = lost_partitions(bad)
    bad.rename(tmp_path / "away")
    bad.write_text("no directory any more")
    with running(tmp_path, settings) as client:
        until(lambda: {p.partition_index for p in partitions_of(client) if p.leader_id == -1} == lost)
        codes = [code for code, _ in fetched(client)]
        assert {number for number, code in enumerate(codes) if code} == lost
        assert not any((good / f"t-{number}").exists() for number in lost)
    bad.unlink()
    (tmp_path / "away").rename(bad)
    with running(tmp_path, settings) as client:
        assert fetched(client) == [(0, [b"%d" % number]) for number in range(4)]


def test_a_topic_with_a_partition_on_a_failed_disk_is_deleted_where_it_can_be(
    tmp_path: Path, settings: dict[str, object], bad: Path
) -> None:
    with running(tmp_path, settings) as client:
        create_topic(client, "t", partitions=4)
        lost = lost_partitions(bad)
        fail(bad)
        for number in range(4):
            produce_code(client, number)
        until(lambda: {p.partition_index for p in partitions_of(client) if p.leader_id == -1} == lost)
        client.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
        until(lambda: not any((tmp_path / "good" / f"t-{number}").exists() for number in range(4)))


def test_a_node_without_any_disk_left_ends_with_an_error(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, bad: Path
) -> None:
    settings = settings_of(zookeeper, tmp_path, log_dirs=str(bad), log_dir_min_free_bytes=0)
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t")
            fail(bad)
            client.send(produce_request("t", batch_of(b"lost")))
            assert process.wait(TIMEOUT_SECONDS) == 1, log.read_text()
    assert "every log directory is offline" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_start_without_any_usable_directory_is_refused(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file")
    start(tmp_path, settings_of(zookeeper, tmp_path)).assert_one_message(
        "every log directory is offline", str(tmp_path / "data")
    )
