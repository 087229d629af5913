"""A node on a disk that fills up: clients wait, nothing is lost or doubled, and room lets it go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conftest import until
from tests.node.file_systems import mounted_tmpfs
from tests.node.raw_client import (
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch,
    produce,
    values_of,
)
from tests.node.test_failed_disk import address_of
from tests.node.test_life import TIMEOUT_SECONDS, settings_of, started

SIZE = 32 << 20
MINIMUM = 8 << 20
RECORD_SIZE = 20_000
RECORDS = 2_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with mounted_tmpfs(tmp_path / "small", size=SIZE) as path:
        yield path


@pytest.fixture
def settings(zookeeper: EmbeddedZooKeeper, tmp_path: Path, small: Path) -> dict[str, object]:
    return settings_of(
        zookeeper,
        tmp_path,
        log_dirs=str(small),
        log_dir_min_free_bytes=MINIMUM,
        log_segment_bytes=1 << 20,
        offsets_topic_num_partitions=1,
    )


def events_of(log: Path, name: str) -> list[dict[str, object]]:
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [event for event in events if event["event"] == name]


class Delivered:
    """What an idempotent producer was told of each record."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.failures: list[str] = []

    def __call__(self, error: object, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert offset not in self.values
        assert isinstance(value, bytes)
        self.values[offset] = value


class Reader:
    """Reads partition 0 of a topic from its start, on and on."""

    def __init__(self, bootstrap: str) -> None:
        self.values: dict[int, bytes] = {}
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        )
        self.consumer.assign([TopicPartition("t", 0, 0)])

    def read_on(self) -> int:
        """Read what there is; the offset after it."""
        for message in self.consumer.consume(500, timeout=0.05):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset == len(self.values)
            assert isinstance(value, bytes)
            self.values[offset] = value
        return len(self.values)

    def commit(self, offset: int) -> None:
        self.consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)


def test_an_idempotent_producer_waits_for_room_and_loses_and_doubles_nothing(
    tmp_path: Path, settings: dict[str, object], small: Path
) -> None:
    delivered = Delivered()
    bootstrap = str(address_of(settings))
    sent = [b"%06d" % number + b"x" * RECORD_SIZE for number in range(RECORDS)]
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t", file_delete_delay_ms="600000")
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "enable.idempotence": True,
                    "message.timeout.ms": 300_000,
                    "queue.buffering.max.messages": RECORDS,
                    "queue.buffering.max.kbytes": 1 << 20,
                    "batch.size": 200_000,
                    "retry.backoff.ms": 50,
                }
            )
            for value in sent:
                producer.produce("t", value, on_delivery=delivered)
                producer.poll(0)

            reader = Reader(bootstrap)

            def is_delivered() -> bool:
                producer.poll(0.05)
                assert not delivered.failures
                end = reader.read_on()
                if len(events_of(log, "log_directory_full")) > len(events_of(log, "log_directory_has_room")):
                    reader.commit(end)  # the cluster's own topics still have room
                    delete_records(client, end)
                return len(delivered.values) == RECORDS

            until(is_delivered, seconds=TIMEOUT_SECONDS)
            assert producer.flush(TIMEOUT_SECONDS) == 0
            until(lambda: reader.read_on() == RECORDS, seconds=TIMEOUT_SECONDS)
            reader.consumer.close()
        full, room = events_of(log, "log_directory_full"), events_of(log, "log_directory_has_room")
        assert len(full) == len(room) >= 1
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    assert not delivered.failures
    assert sorted(delivered.values.values()) == sent
    assert reader.values == delivered.values


def delete_records(client: object, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000
    )
    answer = client.request(request)  # type: ignore[attr-defined]
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_full_node_refuses_serves_and_starts_again(
    tmp_path: Path, settings: dict[str, object], small: Path
) -> None:
    storage_error, batch = ErrorCode.KAFKA_STORAGE_ERROR, batch_of(b"x" * 1000)
    ballast = small / "ballast"
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t", retention_ms="-1")
            once = batch_of(b"once", producer_id=7, epoch=0, sequence=0)
            assert produce(client, "t", once).error_code == 0
            ballast.write_bytes(bytes(SIZE - MINIMUM - (64 << 10)))
            until(lambda: produce(client, "t", batch).error_code == storage_error)
            assert produce(client, "t", batch, version=3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            repeated = produce(client, "t", once)
            assert (repeated.error_code, repeated.base_offset) == (0, 0)
            assert fetch(client, "t", 0).error_code == 0
            create_topic(client, "u")
            assert produce(client, "u", batch).error_code == storage_error
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
        assert len(events_of(log, "log_directory_full")) == 1
    assert (small / ".kafka_cleanshutdown").exists()
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            assert produce(client, "t", batch).error_code == storage_error
            ballast.unlink()
            until(lambda: produce(client, "t", batch).error_code == 0)
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()


def test_a_small_disk_can_be_used_by_default(tmp_path: Path, settings: dict[str, object]) -> None:
    del settings["log.dir.min.free.bytes"]
    with started(tmp_path, settings) as (_, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t")
            for _ in range(20):
                assert produce(client, "t", batch_of(bytes(SIZE // 40))).error_code == 0


def test_a_disk_that_is_really_full_is_refused_and_not_taken_for_failed(
    tmp_path: Path, settings: dict[str, object], small: Path
) -> None:
    settings["log.dir.min.free.bytes"] = 0
    batch, accepted = batch_of(b"x" * 100_000), 0
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t", retention_ms="-1")
            ballast = small / "ballast"
            ballast.write_bytes(bytes(SIZE - (2 << 20)))
            while (answer := produce(client, "t", batch)).error_code == 0:
                assert answer.base_offset == accepted
                accepted += 1
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetch(client, "t", 0).high_watermark == accepted > 0
            ballast.unlink()
            until(lambda: produce(client, "t", batch).error_code == 0)
            assert fetch(client, "t", 0).high_watermark == accepted + 1
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    assert not events_of(log, "log_directory_offline")


@pytest.mark.parametrize("minimum", [0, pytest.param(MINIMUM, marks=pytest.mark.long)])
def test_a_node_that_was_killed_starts_without_any_room_and_goes_on_when_there_is_some(
    tmp_path: Path, settings: dict[str, object], small: Path, minimum: int
) -> None:
    settings["log.dir.min.free.bytes"] = minimum
    storage_error, accepted = ErrorCode.KAFKA_STORAGE_ERROR, 0
    ballast = small / "ballast"
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            create_topic(client, "t", retention_ms="-1")
            ballast.write_bytes(bytes(SIZE // 2))
            while (answer := produce(client, "t", numbered_batch(accepted))).error_code == 0:
                accepted += 1
            assert answer.error_code == storage_error
        process.kill()
    assert accepted > 50
    for path in (*small.rglob("*.index"), *small.rglob("*.timeindex"), *small.rglob("*.snapshot")):
        path.unlink()  # so that recovery has something to write that takes new room
    fill(small / "filler")
    for _ in range(2):  # what the first start could not write costs the second nothing
        with started(tmp_path, settings) as (process, log):
            until(lambda: "node_started" in log.read_text())
            with connected(address_of(settings)) as client:
                assert produce(client, "t", numbered_batch(accepted)).error_code == storage_error
                assert all_numbers(client) == list(range(accepted))
            process.kill()
        assert events_of(log, "log_recovered")[-1]["lacked_room"]
        assert not events_of(log, "log_directory_offline")
        fill(small / "filler-2")
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        for file in (ballast, small / "filler", small / "filler-2"):
            file.unlink()
        with connected(address_of(settings)) as client:
            until(lambda: produce(client, "t", numbered_batch(accepted)).error_code == 0)
            assert all_numbers(client) == list(range(accepted + 1))
            until(lambda: bool(events_of(log, "late_writes_settled")))
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    with started(tmp_path, settings) as (_, log):
        until(lambda: "node_started" in log.read_text())
        with connected(address_of(settings)) as client:
            assert all_numbers(client) == list(range(accepted + 1))
        assert not events_of(log, "log_recovered")


def fill(path: Path) -> None:
    """Take all room there is, to the last byte."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)) > 0:
            pass


def numbered_batch(number: int) -> bytearray:
    return batch_of(b"%06d" % number + b"x" * 50_000)


def all_numbers(client: RawClient) -> list[int]:
    """The numbers of all batches of the topic, in order."""
    numbers: list[int] = []
    while data := fetch(client, "t", len(numbers)).records:
        numbers += [int((value or b"")[:6]) for value in values_of(data)]
    return numbers
