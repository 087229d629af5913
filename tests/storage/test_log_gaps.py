"""Gaps in offsets: right for a log that was compacted, here or at its leader, and damage in any other."""

from __future__ import annotations

import pytest

from broker.records.batch import rebase
from broker.storage.filenames import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicPartition
from tests.storage.compaction_samples import COMPACTED, compact, keyed, put, seen
from tests.storage.samples import DiskAt, ManualClock, append, build

PARTITION = TopicPartition("state", 0)
DELETED = LogConfig(segment_bytes=400, index_interval_bytes=0)


def loaded(place: DiskAt, config: LogConfig) -> LogDirectory:
    directory = LogDirectory.open(
        place.disk, place.path, ManualClock(), broker_id=BrokerId(1), cluster_id="jfk"
    )
    directory.load(lambda partition: config)
    return directory


def compacted(directory: LogDirectory) -> Log:
    log = directory.create_log(PARTITION, None, COMPACTED)
    for number in range(60):
        put(log, (b"k%d" % (number % 4), b"%d" % number))
    compact(log, checkpoint=directory.checkpoints.store_compaction)
    return log


def crashed(place: DiskAt, directory: LogDirectory) -> None:
    """End the process, and forget what needs no check."""
    if isinstance(place.disk, MemoryDisk):
        place.disk.kill()
    else:
        directory.abandon()
    place.disk.remove(place.path / RECOVERY_POINT_FILE)


def test_a_log_that_was_compacted_and_is_no_longer_loses_nothing(place: DiskAt) -> None:
    directory = loaded(place, COMPACTED)
    log = compacted(directory)
    left = seen(log)
    assert len(left) < 20
    log.update_config(DELETED)
    crashed(place, directory)
    for _ in range(2):
        directory = loaded(place, DELETED)
        recovered = directory.logs[PARTITION]
        assert recovered.recovery_report.scanned
        assert recovered.recovery_report.cut_size == 0
        assert seen(recovered) == left
        assert recovered.log_end_offset == 60
        crashed(place, directory)


def test_a_log_is_named_before_there_is_a_gap_in_it(place: DiskAt) -> None:
    directory = loaded(place, COMPACTED)
    log = directory.create_log(PARTITION, None, COMPACTED)
    for number in range(60):
        put(log, (b"k%d" % (number % 4), b"%d" % number))
    whole = seen(log)
    named: list[list[str]] = []

    def checkpoint() -> None:
        directory.checkpoints.store_compaction()
        named.append(place.disk.read_file(place.path / CLEANER_OFFSET_FILE).decode().splitlines())
        if len(named) == 1:
            assert seen(log) == whole

    compact(log, checkpoint=checkpoint)
    assert named[0] == ["0", "1", "state 0 0"]
    assert named[-1] == ["0", "1", f"state 0 {log.compacted_end}"]
    directory.close()


def test_a_damaged_checkpoint_leaves_it_open_who_has_gaps(place: DiskAt) -> None:
    directory = loaded(place, COMPACTED)
    left = seen(compacted(directory))
    crashed(place, directory)
    place.disk.write_file(place.path / CLEANER_OFFSET_FILE, b"0\n2\nstate 0 1")
    directory = loaded(place, DELETED)
    assert seen(directory.logs[PARTITION]) == left
    assert directory.logs[PARTITION].compacted_end == 0
    directory.close()


def test_a_new_log_of_an_old_name_was_never_compacted(place: DiskAt) -> None:
    directory = loaded(place, COMPACTED)
    compacted(directory)
    directory.delete_log(PARTITION)
    log = directory.create_log(PARTITION, None, DELETED)
    assert log.compacted_end is None
    directory.close()
    directory = loaded(place, DELETED)
    assert directory.logs[PARTITION].compacted_end is None
    directory.close()


def test_a_follower_of_a_compacted_log_is_named_at_its_first_gap(place: DiskAt) -> None:
    directory = loaded(place, DELETED)
    log = directory.create_log(PARTITION, None, DELETED)
    for offset in (0, 1, 5, 9):
        records = keyed([(b"k", b"%d" % offset)])
        rebase(records, 0, offset, 0)
        log.append_as_follower(records)
        assert (log.compacted_end is None) is (offset < 5)
    left = seen(log)
    crashed(place, directory)
    directory = loaded(place, DELETED)
    assert seen(directory.logs[PARTITION]) == left
    directory.close()


@pytest.mark.parametrize("config", [DELETED, COMPACTED])
def test_a_cut_below_the_compacted_part_makes_it_shorter(place: DiskAt, config: LogConfig) -> None:
    log = place.log(COMPACTED)
    for number in range(60):
        put(log, (b"own%d" % number, b"x"))
    compact(log)
    assert log.compacted_end is not None
    assert log.compacted_end > 20
    log.truncate_to(20)
    assert log.compacted_end == 20


def test_a_gap_in_a_log_that_was_never_compacted_is_damage(place: DiskAt) -> None:
    directory = loaded(place, DELETED)
    log = directory.create_log(PARTITION, None, DELETED)
    for number in range(3):
        append(log, b"%d" % number)
    far = build([b"far"])
    rebase(far, 0, 7, 0)
    path = log.directory / f"{0:020d}.log"
    file = place.disk.open(path)
    file.pwrite(far, file.size())
    file.close()
    crashed(place, directory)
    directory = loaded(place, DELETED)
    assert directory.logs[PARTITION].log_end_offset == 3
    directory.close()
