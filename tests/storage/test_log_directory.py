"""A data root: identity, lock, checkpoints, clean and unclean ends, and files that are not a broker's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.storage.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.types import BrokerId, TopicId, TopicPartition
from tests.storage.samples import DiskAt, ManualClock, append, contents

TOPIC_ID = TopicId(UUID("fb0c8a56-7ab1-4d3c-9a4f-3c2b1a000102"))
FIRST = TopicPartition("flights", 0)
SECOND = TopicPartition("with-dash.and_more", 12)
CONFIG = LogConfig(segment_bytes=1000)


def opened(place: DiskAt, *, broker_id: int = 1, cluster_id: str = "jfk") -> LogDirectory:
    return LogDirectory.open(
        place.disk, place.path / "root", ManualClock(), broker_id=BrokerId(broker_id), cluster_id=cluster_id
    )


def loaded(place: DiskAt, **options: Any) -> LogDirectory:
    directory = opened(place, **options)
    directory.load(lambda partition: CONFIG)
    return directory


def names(place: DiskAt) -> list[str]:
    return [entry.name for entry in place.disk.list_directory(place.path / "root")]


def test_logs_are_found_again_after_a_clean_end(place: DiskAt) -> None:
    directory = loaded(place)
    for partition in (FIRST, SECOND):
        append(directory.create_log(partition, TOPIC_ID, CONFIG), str(partition).encode())
    directory.logs[FIRST].advance_start(1)
    directory.close()
    assert CLEAN_SHUTDOWN_FILE in names(place)
    again = opened(place)
    assert again.clean
    logs = again.load(lambda partition: CONFIG)
    assert set(logs) == {FIRST, SECOND}
    assert CLEAN_SHUTDOWN_FILE not in names(place)
    assert contents(logs[SECOND]) == [(0, str(SECOND).encode())]
    assert logs[FIRST].log_start_offset == 1
    assert logs[FIRST].topic_id == TOPIC_ID
    assert not any(log.recovery_report.scanned for log in logs.values())
    again.close()


def test_an_unclean_end_is_recovered_from(place: DiskAt) -> None:
    directory = loaded(place)
    log = directory.create_log(FIRST, TOPIC_ID, CONFIG)
    for _ in range(30):
        append(log, b"x" * 50)
    log.flush()
    directory.checkpoints.store_offsets()
    append(log, b"last")
    directory.abandon()
    again = loaded(place)
    assert not again.clean
    log = again.logs[FIRST]
    assert log.log_end_offset == 31
    assert log.recovery_report.scanned
    assert log.recovery_report.checked_size < log.size
    assert log.recovery_point == 30
    again.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"broker_id": 2}, "belongs to broker.id 1, this is 2"),
        ({"cluster_id": "lga"}, "belongs to cluster jfk"),
    ],
)
def test_a_root_of_another_broker_or_cluster_is_refused(
    place: DiskAt, options: dict[str, Any], problem: str
) -> None:
    loaded(place).close()
    with pytest.raises(StorageError, match=problem):
        opened(place, **options)
    loaded(place).close()


def test_a_root_of_a_kafka_without_zookeeper_is_refused_and_left_as_it_is(place: DiskAt) -> None:
    loaded(place).close()
    path = place.path / "root" / "meta.properties"
    meta = b"version=1\nnode.id=1\ncluster.id=jfk\n"
    place.disk.write_file(path, meta)
    with pytest.raises(StorageError, match="KRaft"):
        opened(place)
    assert place.disk.read_file(path) == meta


def test_a_root_in_use_is_refused(place: DiskAt) -> None:
    directory = loaded(place)
    with pytest.raises(StorageError, match="another process"):
        opened(place)
    directory.close()
    loaded(place).close()


def test_foreign_files_are_left_alone_and_foreign_directories_refused(place: DiskAt) -> None:
    loaded(place).close()
    root = place.path / "root"
    place.disk.write_file(root / "notes.txt", b"mine")
    place.disk.make_directory(root / "lost+found")
    loaded(place).close()
    assert place.disk.read_file(root / "notes.txt") == b"mine"
    place.disk.make_directory(root / "photos")
    place.disk.make_directory(root / "year-2024")
    place.disk.write_file(root / "year-2024" / "may.jpg", b"jpg")
    with pytest.raises(
        StorageError, match="no data directory of a broker: it holds the directories photos, year-2024"
    ):
        opened(place)
    assert place.disk.read_file(root / "year-2024" / "may.jpg") == b"jpg"


def test_a_deleted_log_is_gone_at_once_and_its_space_later(place: DiskAt) -> None:
    directory = loaded(place)
    log = directory.create_log(FIRST, TOPIC_ID, CONFIG)
    append(log, b"x" * 50)
    part = log.read(0, max_bytes=100, up_to=1).pin()
    directory.delete_log(FIRST)
    assert FIRST not in directory.logs
    assert [name for name in names(place) if name.endswith("-delete")]
    assert part.file.pread(part.size, part.position)
    assert directory.remove_deleted() == 1
    assert not [name for name in names(place) if name.endswith("-delete")]
    part.release()
    fresh = directory.create_log(FIRST, None, CONFIG)
    assert fresh.log_end_offset == 0
    directory.close()


def test_space_is_freed_after_the_delay_of_the_topic(place: DiskAt) -> None:
    clock = ManualClock()
    directory = LogDirectory.open(
        place.disk, place.path / "root", clock, broker_id=BrokerId(1), cluster_id="jfk"
    )
    directory.load(lambda partition: CONFIG)
    config = LogConfig(segment_bytes=200, retention_bytes=0, file_delete_delay_ms=1000)
    directory.create_log(FIRST, TOPIC_ID, config)
    log = directory.create_log(SECOND, TOPIC_ID, config)
    for _ in range(5):
        append(log, b"x" * 50)
    directory.delete_log(FIRST)
    removed = len(log.delete_old_segments(clock.now_ms())) * 3
    assert removed
    clock.advance(999)
    assert directory.remove_deleted(clock.monotonic_ms()) == 0
    clock.advance(1)
    assert directory.remove_deleted(clock.monotonic_ms()) == 1 + removed
    assert directory.remove_deleted() == 0
    directory.close()


def test_a_deletion_that_a_crash_interrupted_is_finished(place: DiskAt) -> None:
    directory = loaded(place)
    append(directory.create_log(FIRST, TOPIC_ID, CONFIG), b"x")
    directory.delete_log(FIRST)
    directory.abandon()
    again = loaded(place)
    assert not again.logs
    assert not [name for name in names(place) if name.endswith("-delete")]
    again.close()


def test_checkpoints_of_an_earlier_log_of_the_name_are_not_taken_for_the_new_one(place: DiskAt) -> None:
    directory = loaded(place)
    log = directory.create_log(FIRST, TOPIC_ID, CONFIG)
    for _ in range(20):
        append(log, b"x")
    log.flush()
    log.advance_start(15)
    directory.checkpoints.store_offsets()
    directory.delete_log(FIRST)
    append(directory.create_log(FIRST, None, CONFIG), b"new")
    directory.abandon()
    again = loaded(place)
    assert contents(again.logs[FIRST]) == [(0, b"new")]
    assert again.logs[FIRST].recovery_point == 0
    again.close()


def test_a_damaged_checkpoint_costs_a_scan_only(place: DiskAt) -> None:
    directory = loaded(place)
    log = directory.create_log(FIRST, TOPIC_ID, CONFIG)
    append(log, b"x")
    directory.close()
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, "replication-offset-checkpoint"):
        place.disk.write_file(place.path / "root" / name, b"0\n7\nflig")
    place.disk.remove(place.path / "root" / CLEAN_SHUTDOWN_FILE)
    again = loaded(place)
    assert contents(again.logs[FIRST]) == [(0, b"x")]
    assert again.checkpoints.read_high_watermarks() == {}
    again.close()


def test_high_watermarks_are_kept(place: DiskAt) -> None:
    directory = loaded(place)
    directory.checkpoints.store_high_watermarks({FIRST: 5, SECOND: 0})
    directory.close()
    again = loaded(place)
    assert again.checkpoints.read_high_watermarks() == {FIRST: 5, SECOND: 0}
    again.close()


def test_logs_are_made_and_deleted_by_several_threads_at_once(place: DiskAt) -> None:
    directory = loaded(place)
    partitions = [TopicPartition("many", number) for number in range(40)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda partition: directory.create_log(partition, None, CONFIG), partitions))
        assert set(directory.logs) == set(partitions)
        list(executor.map(directory.delete_log, partitions[:30]))
    assert set(directory.logs) == set(partitions[30:])
    assert directory.remove_deleted() == 30
    directory.close()


def test_a_log_that_exists_is_not_made_again(place: DiskAt) -> None:
    directory = loaded(place)
    directory.create_log(FIRST, TOPIC_ID, CONFIG)
    with pytest.raises(StorageError, match="exists already"):
        directory.create_log(FIRST, TOPIC_ID, CONFIG)
    directory.close()


def test_a_topic_id_is_given_once(place: DiskAt) -> None:
    directory = loaded(place)
    log = directory.create_log(FIRST, None, CONFIG)
    log.assign_topic_id(TOPIC_ID)
    log.assign_topic_id(TOPIC_ID)
    with pytest.raises(ProtocolError) as caught:
        log.assign_topic_id(TopicId(UUID(int=1)))
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    directory.close()


@pytest.mark.parametrize("damaged", [b"", b"version: 0\ntopic_id: -wyKVnq", b"\0" * 43, b"\xff"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_topic_id_is_told_and_costs_no_records(
    place: DiskAt, damaged: bytes, is_clean: bool
) -> None:
    directory = loaded(place)
    append(directory.create_log(FIRST, TOPIC_ID, CONFIG), b"kept")
    if is_clean:
        directory.close()
    else:
        directory.abandon()
    place.disk.write_file(place.path / "root" / str(FIRST) / PARTITION_METADATA_FILE, damaged)
    again = loaded(place)
    log = again.logs[FIRST]
    assert contents(log) == [(0, b"kept")]
    assert log.topic_id is None
    assert log.recovery_report.topic_id_lost
    assert log.recovery_report.is_notable
    log.assign_topic_id(TOPIC_ID)
    again.close()
    log = loaded(place).logs[FIRST]
    assert log.topic_id == TOPIC_ID
    assert not log.recovery_report.is_notable


def test_a_log_that_cannot_be_opened_leaves_the_root_free(place: DiskAt) -> None:
    directory = loaded(place)
    append(directory.create_log(FIRST, TOPIC_ID, CONFIG), b"x")
    directory.create_log(SECOND, TOPIC_ID, CONFIG)
    directory.close()
    again = opened(place)

    def config_of(partition: TopicPartition) -> LogConfig:
        if partition == SECOND:
            raise StorageError(f"{partition} cannot be read")
        return CONFIG

    with pytest.raises(StorageError, match="cannot be read"):
        again.load(config_of)
    again.abandon()
    loaded(place).close()
