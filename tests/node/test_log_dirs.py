"""Replicas that move between the data directories of a running node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from tests.conftest import until
from tests.node.raw_client import RawClient, batch_of, connected, create_topic, fetch, produce
from tests.node.test_failed_disk import address_of, running
from tests.node.test_life import TIMEOUT_SECONDS, read_all_values, settings_of, started
from tests.node.test_settings import BROKER, SET, alter

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def settings(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> dict[str, object]:
    return settings_of(
        zookeeper,
        tmp_path,
        log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}",
        log_segment_bytes=1 << 20,
        zookeeper_session_timeout_ms=1000,
    )


def home_of(tmp_path: Path, name: str = "t-0") -> Path:
    """The directory that holds the partition."""
    (home,) = [root for root in (tmp_path / "a", tmp_path / "b") if (root / name).exists()]
    return home


def other_than(home: Path) -> Path:
    return home.with_name("b" if home.name == "a" else "a")


def move(client: RawClient, root: Path, *, topic: str = "t", version: int | None = None) -> int:
    """Ask for a move; the answered code."""
    directory = AlterReplicaLogDir(
        path=str(root), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    )
    response = client.request(AlterReplicaLogDirsRequest(dirs=[directory]), version)
    return response.results[0].partitions[0].error_code


def described(client: RawClient) -> dict[str, list[tuple[bool, int, int]]]:
    """By directory of partition 0: whether it is a copy under way, its size and lag."""
    asked = [DescribableLogDirTopic(topic="t", partitions=[0])]
    return {
        Path(result.log_dir).name: [
            (partition.is_future_key, partition.partition_size, partition.offset_lag)
            for topic in result.topics
            for partition in topic.partitions
        ]
        for result in client.request(DescribeLogDirsRequest(topics=asked)).results
    }


def test_a_replica_moves_and_says_so(tmp_path: Path, settings: dict[str, object]) -> None:
    values: list[bytes] = []
    with running(tmp_path, settings) as client:
        create_topic(client, "t")
        for version in range(AlterReplicaLogDirsRequest.max_version + 1):
            values += [b"%d-%d" % (version, number) for number in range(50)]
            for value in values[-50:]:
                assert produce(client, "t", batch_of(value)).error_code == 0
            source = home_of(tmp_path)
            target = other_than(source)
            assert move(client, target, version=version) == 0
            until(lambda target=target: (target / "t-0").exists())
            until(lambda source=source: described(client)[source.name] == [])
            until(lambda: fetch(client, "t", 0).error_code == 0)  # refused for the moment of the swap
            (is_future, size, lag) = described(client)[target.name][0]
            assert not is_future
            assert size > 0
            assert lag == 0
            assert read_all_values(client, "t") == values
            assert move(client, target) == 0  # there already
    with running(tmp_path, settings) as client:
        assert read_all_values(client, "t") == values
    assert home_of(tmp_path) == target


def test_moves_that_cannot_be_are_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    with running(tmp_path, settings) as client:
        create_topic(client, "t")
        assert move(client, tmp_path / "c") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(client, tmp_path / "b", topic="later") == ErrorCode.REPLICA_NOT_AVAILABLE
        create_topic(client, "later")
        until(lambda: (tmp_path / "b" / "later-0").exists())


@contextmanager
def steady_load(bootstrap: str, accepted: dict[int, bytes]) -> Iterator[None]:
    """An idempotent producer that goes on until the end; what was acknowledged, by offset."""
    ended = threading.Event()
    failures: list[str] = []

    def note(error: object, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is not None:
            failures.append(str(error))
            return
        assert offset is not None
        assert isinstance(value, bytes)
        assert offset not in accepted
        accepted[offset] = value

    def produce_on() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        number = 0
        while not ended.is_set():
            producer.produce("t", b"%08d" % number + b"x" * 500, on_delivery=note)
            number += 1
            producer.poll(0.001 if number % 20 == 0 else 0)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    thread = threading.Thread(target=produce_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failures


def test_replicas_move_to_and_fro_under_load_and_nothing_is_lost_or_doubled(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    accepted: dict[int, bytes] = {}
    with running(tmp_path, settings) as client:
        create_topic(client, "t")
        client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
        with steady_load(str(address_of(settings)), accepted):
            until(lambda: len(accepted) > 2000)
            for _ in range(3):
                source = home_of(tmp_path)
                assert move(client, other_than(source)) == 0
                until(lambda source=source: (other_than(source) / "t-0").exists(), seconds=TIMEOUT_SECONDS)
                count = len(accepted)
                until(lambda count=count: len(accepted) > count + 500, seconds=TIMEOUT_SECONDS)
        assert read_all_values(client, "t") == [accepted[offset] for offset in range(len(accepted))]
    values = sorted(accepted.values())
    assert values == sorted(set(values))


@pytest.mark.long
def test_a_node_that_is_killed_during_a_move_ends_it_when_it_is_back(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    values = [b"%06d" % number + b"x" * 100_000 for number in range(300)]
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t")
            for value in values:
                assert produce(client, "t", batch_of(value)).error_code == 0
            source = home_of(tmp_path)
            assert move(client, other_than(source)) == 0
        process.kill()
    with running(tmp_path, settings) as client:
        until(lambda: (other_than(source) / "t-0").exists(), seconds=TIMEOUT_SECONDS)
        until(lambda: described(client)[source.name] == [], seconds=TIMEOUT_SECONDS)
        until(lambda: fetch(client, "t", 0).error_code == 0)
        assert read_all_values(client, "t") == values


def test_a_replica_that_is_killed_before_its_high_watermark_is_noted_in_its_new_place_has_everything(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    settings["replica.high.watermark.checkpoint.interval.ms"] = 3_600_000
    values = [b"%d" % number for number in range(100)]
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t")
            for value in values:
                assert produce(client, "t", batch_of(value)).error_code == 0
            target = other_than(home_of(tmp_path))
            assert move(client, target) == 0
            until(lambda: "log_move_completed" in log.read_text())
        process.kill()
    noted = target / "replication-offset-checkpoint"
    assert not noted.exists() or "t 0" not in noted.read_text()
    with running(tmp_path, settings) as client:
        until(lambda: fetch(client, "t", 0).error_code == 0)
        assert read_all_values(client, "t") == values


def test_moves_are_as_fast_as_their_setting_says_at_any_time(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    settings[THROTTLE] = 0
    values = [b"%06d" % number + b"x" * 500_000 for number in range(8)]
    with running(tmp_path, settings) as client:
        create_topic(client, "t")
        for value in values:
            assert produce(client, "t", batch_of(value)).error_code == 0
        source = home_of(tmp_path)
        target = other_than(source)
        assert move(client, target) == 0
        until(lambda: described(client)[target.name][0][1] > 0)  # a first part goes before it is counted
        (is_future, size, lag) = described(client)[target.name][0]
        assert is_future
        assert size < 2_000_000 < len(values) * 500_000
        assert lag > 0
        assert alter(client, BROKER, "1", (THROTTLE, SET, str(2**40))) == (0, "")
        until(lambda: (target / "t-0").exists(), seconds=TIMEOUT_SECONDS)
        until(lambda: fetch(client, "t", 0).error_code == 0)
        assert read_all_values(client, "t") == values


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    settings["log.segment.delete.delay.ms"] = 0
    with running(tmp_path, settings) as client:
        create_topic(client, "t")
        for _ in range(50):
            produce(client, "t", batch_of(b"x" * 500_000))
        assert move(client, other_than(home_of(tmp_path))) == 0
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert client.request(request).responses[0].error_code == 0
        roots = (tmp_path / "a", tmp_path / "b")
        until(lambda: not any(path.name.startswith("t-") for root in roots for path in root.iterdir()))
