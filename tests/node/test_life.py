"""A node's life: start and its obstacles, clean stop, crash and recovery."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from broker.child_process import ChildProcess
from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import accepts, free_ports
from broker.types import HostPort, TopicPartition
from broker.wire.messages.metadata import MetadataRequest
from tests.conftest import TEST_SETTINGS, ClusterFactory, until
from tests.node.raw_client import (
    FETCH_VERSION,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch,
    fetch_request,
    produce,
    values_of,
)

TIMEOUT_SECONDS = 60
LONG_MS = 60_000


class Refusal:
    """How a start ended that had to fail."""

    def __init__(self, finished: subprocess.CompletedProcess[str]) -> None:
        self.code = finished.returncode
        self.messages = [line for line in finished.stderr.splitlines() if line.startswith("broker: ")]
        self.all = finished.stderr

    def assert_one_message(self, *words: str) -> None:
        """One readable message with these words, no traceback, a code that is not 0."""
        assert self.code == 1
        assert "Traceback" not in self.all
        assert len(self.messages) == 1, self.all
        for word in words:
            assert word in self.messages[0]


def settings_of(zookeeper: EmbeddedZooKeeper, tmp_path: Path, **changes: object) -> dict[str, object]:
    """Settings of a node that would start, with changes; names with underscores for dots."""
    return {
        **TEST_SETTINGS,
        "broker.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "zookeeper.connect": zookeeper.connect_string(tmp_path.name),
        "log.dirs": str(tmp_path / "data"),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }


def start(tmp_path: Path, settings: Mapping[str, object], *overrides: str) -> Refusal:
    """Start a node that is expected to refuse."""
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(dict(settings)))
    command = [sys.executable, "-m", "broker.cli", "start", str(path)]
    return Refusal(
        subprocess.run(
            [*command, *overrides], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    )


# Obstacles


def test_a_missing_zookeeper_is_told_in_one_message(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = settings_of(
        zookeeper, tmp_path, zookeeper_connect=f"127.0.0.1:{port}/x", zookeeper_connection_timeout_ms=1000
    )
    start(tmp_path, settings).assert_one_message(f"127.0.0.1:{port}")


def test_a_port_in_use_is_told_before_anything_is_touched(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    taken = cluster().bootstrap[0]
    settings = settings_of(zookeeper, tmp_path, listeners=f"PLAINTEXT://{taken}")
    start(tmp_path, settings).assert_one_message(str(taken), "in use")
    assert not (tmp_path / "data").exists()


def test_an_unknown_setting_is_told_with_file_and_line(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    settings = settings_of(zookeeper, tmp_path, log_retention_hour=3)
    start(tmp_path, settings).assert_one_message(
        "node.yaml:", "log.retention.hour", "did you mean log.retention.hours?"
    )


def test_the_data_directory_of_another_node_is_refused(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    running = cluster()
    running.stop_node(1)
    data = tmp_path / "cluster" / "node-1"
    settings = settings_of(zookeeper, tmp_path, broker_id=2, log_dirs=str(data))
    start(tmp_path, settings).assert_one_message(str(data), "broker.id 1")


def test_a_data_directory_in_use_is_refused(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    cluster()
    data = tmp_path / "cluster" / "node-1"
    start(tmp_path, settings_of(zookeeper, tmp_path, log_dirs=str(data))).assert_one_message(str(data))


def test_a_directory_of_something_else_is_refused(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    (tmp_path / "data" / "photos").mkdir(parents=True)
    start(tmp_path, settings_of(zookeeper, tmp_path)).assert_one_message("photos")


def test_an_id_in_use_is_refused_once_its_session_had_time_to_end(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    running = cluster()
    settings = settings_of(
        zookeeper,
        tmp_path,
        zookeeper_connect=running.spec.zookeeper_connect,
        zookeeper_session_timeout_ms=1000,
    )
    start(tmp_path, settings).assert_one_message("broker id 1", str(running.bootstrap[0]))


# Stop and start


def test_a_cluster_of_one_keeps_offsets_without_being_told_how_often(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    settings = settings_of(zookeeper, tmp_path)
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(settings))
    address = HostPort.parse(str(settings["listeners"]).removeprefix("PLAINTEXT://"))
    node = ChildProcess.start(
        "node", [sys.executable, "-m", "broker.cli", "start", str(path)], tmp_path / "node.log"
    )
    try:
        node.wait_until(lambda: accepts(address), timeout_ms=TIMEOUT_SECONDS * 1000)
        partition = TopicPartition("topic", 0)

        async def commit_and_fetch() -> int | None:
            async with Cluster([address]) as cluster:
                await Admin(cluster).create_topic(NewTopic(name="topic", partitions=1, replication_factor=1))
                await commit_offsets(cluster, "group", {partition: OffsetAndMetadata(offset=7)})
                found = await fetch_offsets(cluster, "group", [partition])
                return found[partition].offset if found[partition] else None

        assert asyncio.run(commit_and_fetch()) == 7
    finally:
        assert node.stop(timeout_ms=TIMEOUT_SECONDS * 1000) == 0


def test_sigterm_ends_with_code_0_and_answers_what_waits(cluster: ClusterFactory) -> None:
    running = cluster()
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        poll = fetch_request("t", 0, max_wait_ms=LONG_MS)
        waiting = client.send(poll, FETCH_VERSION)
        until(lambda: _is_waiting(client))
        assert running.stop_node(1) == 0
        assert client.receive(poll, waiting, FETCH_VERSION).responses[0].partitions[0].error_code == 0
        assert client.is_closed_by_peer()


def _is_waiting(client: RawClient) -> bool:
    """Whether the node took the request off the socket: nothing of it is left in the kernel."""
    unsent = fcntl.ioctl(client.socket.fileno(), termios.TIOCOUTQ, bytes(4))
    return unsent == bytes(4)


def test_sigint_ends_with_code_0(cluster: ClusterFactory) -> None:
    running = cluster()
    os.kill(running.pids[1], signal.SIGINT)
    assert running.stop_node(1) == 0


def test_a_clean_stop_is_marked_and_the_next_start_scans_nothing(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    running = cluster(settings={"replica.high.watermark.checkpoint.interval.ms": LONG_MS})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        produce(client, "t", batch_of(b"kept"))
    running.stop_node(1)
    root = tmp_path / "cluster" / "node-1"
    assert (root / ".kafka_cleanshutdown").exists()
    assert "t 0 1" in (root / "replication-offset-checkpoint").read_text().splitlines()
    assert "node_stopped" in (tmp_path / "cluster" / "node-1.log").read_text()
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        assert values_of(fetch(client, "t", 0).records) == [b"kept"]
    events = map(json.loads, (tmp_path / "cluster" / "node-1.log").read_text().splitlines())
    loads = [event for event in events if event["event"] == "log_directory_loaded"]
    assert [load["clean"] for load in loads] == [False, True]


@pytest.mark.parametrize("flush_messages", [1, 10**6])
def test_a_killed_node_comes_back_with_every_acknowledged_record(
    cluster: ClusterFactory, flush_messages: int
) -> None:
    running = cluster(settings={"log.segment.bytes": 100_000, "log.flush.interval.messages": flush_messages})
    acknowledged = produce_until_killed(running)
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        # What was in the page cache is flushed before anybody reads it, where the settings ask for that.
        until(lambda: read_all_values(client, "t")[: len(acknowledged)] == acknowledged)
        assert produce(client, "t", batch_of(b"after")).error_code == 0


def produce_until_killed(running: EmbeddedCluster) -> list[bytes]:
    """Produce one after another until the node is killed under way; the values that were acknowledged."""
    acknowledged: list[bytes] = []
    enough = threading.Event()

    def kill() -> None:
        enough.wait(TIMEOUT_SECONDS)
        running.kill_node(1)

    killer = threading.Thread(target=kill)
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        killer.start()
        try:
            while True:
                value = b"%06d" % len(acknowledged) + b"x" * 500
                answer = produce(client, "t", batch_of(value))
                assert answer.error_code == 0
                acknowledged.append(value)
                if len(acknowledged) == 1000:
                    enough.set()
        except (AssertionError, ConnectionError):
            pass
    killer.join()
    assert len(acknowledged) >= 1000
    return acknowledged


def read_all_values(client: RawClient, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    while True:
        fetched = fetch(client, topic, len(values))
        assert fetched.error_code == 0
        found = values_of(fetched.records)
        if not found:
            return values
        values += found


def test_a_restarted_node_remembers_producers_and_their_sequences(cluster: ClusterFactory) -> None:
    running = cluster()
    batch = batch_of(b"once", producer_id=7, epoch=0, sequence=0)
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        assert produce(client, "t", batch).base_offset == 0
    running.kill_node(1)
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        repeated = produce(client, "t", batch)
        assert (repeated.error_code, repeated.base_offset) == (0, 0)
        assert fetch(client, "t", 0).high_watermark == 1


def test_acknowledged_means_on_the_disk_when_every_record_is_flushed(cluster: ClusterFactory) -> None:
    running = cluster(settings={"log.flush.interval.messages": 1})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        for number in range(20):
            assert produce(client, "t", batch_of(b"%d" % number)).base_offset == number


# Without ZooKeeper


def test_a_node_that_lost_its_session_serves_on_and_registers_again(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", fsync=False) as own_zookeeper:
        settings = settings_of(own_zookeeper, tmp_path, zookeeper_session_timeout_ms=1000)
        address = HostPort.parse(str(settings["listeners"]).removeprefix("PLAINTEXT://"))
        with started(tmp_path, settings) as (process, log):
            until(lambda: "node_started" in log.read_text())
            with connected(address) as client:
                create_topic(client, "t")
                own_zookeeper.stop()
                until(lambda: "zookeeper_suspended" in log.read_text())
                assert produce(client, "t", batch_of(b"without")).error_code == 0
                assert values_of(fetch(client, "t", 0).records) == [b"without"]
                own_zookeeper.start()
                until(lambda: _can_create(client))
                assert client.request(MetadataRequest(topics=None)).brokers
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


def _can_create(client: RawClient) -> bool:
    try:
        create_topic(client, "again")
    except AssertionError:
        return False
    return True


def test_sigterm_ends_a_node_that_waits_for_its_id(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    running = cluster()
    settings = settings_of(zookeeper, tmp_path, zookeeper_connect=running.spec.zookeeper_connect)
    with started(tmp_path, settings) as (process, log):
        until(lambda: "log_directory_loaded" in log.read_text())
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert "node_started" not in log.read_text()


def test_sigterm_ends_a_node_whose_zookeeper_is_away(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", fsync=False) as own_zookeeper:
        settings = settings_of(own_zookeeper, tmp_path)
        with started(tmp_path, settings) as (process, log):
            until(lambda: "node_started" in log.read_text())
            own_zookeeper.stop()
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@contextmanager
def started(tmp_path: Path, settings: Mapping[str, object]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A node of one's own, with its log; killed in the end unless it ended by itself."""
    path, log = tmp_path / "node.yaml", tmp_path / "node.log"
    path.write_text(yaml.safe_dump(dict(settings)))
    command = [sys.executable, "-m", "broker.cli", "start", str(path)]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            yield process, log
        finally:
            process.kill()
