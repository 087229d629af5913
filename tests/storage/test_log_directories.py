"""Several data roots: where logs go, what a failed disk takes along, and what may not be started with."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from broker.errors import DiskFailedError, DiskFullError, StorageError
from broker.storage.disk import File
from broker.storage.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    FileKind,
    segment_file_name,
)
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.storage.memory_disk import MemoryDisk
from broker.storage.partition_directory import remove_partition_directory
from broker.types import BrokerId, TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import ManualClock, append, contents

CONFIG = LogConfig()
FIRST_LOG = segment_file_name(0, FileKind.LOG)
FIRST, SECOND = Path("/data/first"), Path("/data/second")


@pytest.fixture
def disk() -> MemoryDisk:
    return cast(MemoryDisk, memory_place().disk)


def opened(disk: MemoryDisk, failed: list[Path] | None = None) -> LogDirectories:
    directories = LogDirectories(
        disk, ManualClock(), recovery_threads=1, on_failure=(failed if failed is not None else []).append
    )
    directories.open([FIRST, SECOND], lambda _: CONFIG, broker_id=BrokerId(1), cluster_id="jfk")
    return directories


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def create(directories: LogDirectories, number: int, *, is_new: bool = True) -> Path:
    """Where the log of this partition was made."""
    directory = directories.place(partition(number), is_new=is_new, placed={})
    append(directory.create_log(partition(number), None, CONFIG), b"%d" % number)
    return directory.path


def test_logs_go_where_the_fewest_are(disk: MemoryDisk) -> None:
    directories = opened(disk)
    assert [create(directories, number) for number in range(4)] == [FIRST, SECOND, FIRST, SECOND]
    directories.live[FIRST].delete_log(partition(0))
    directories.live[FIRST].delete_log(partition(2))
    assert [create(directories, number) for number in (4, 5)] == [FIRST, FIRST]
    directories.close()
    again = opened(disk)
    assert again.find(partition(3)) is again.live[SECOND]
    assert again.find(partition(0)) is None
    again.close()


def test_a_partition_in_two_roots_is_refused_and_both_are_named(disk: MemoryDisk) -> None:
    directories = opened(disk)
    create(directories, 0)
    directories.close()
    disk.make_directory(SECOND / "t-0")
    with pytest.raises(StorageError, match="t-0 is in /data/first/t-0 and in /data/second/t-0"):
        opened(disk)
    disk.remove_directory(SECOND / "t-0")
    opened(disk).close()  # nothing was left locked


def test_a_disk_that_fails_takes_only_its_root_offline(disk: MemoryDisk) -> None:
    failed: list[Path] = []
    directories = opened(disk, failed)
    directories.note_boot()
    for number in range(4):
        create(directories, number)
    disk.failed_roots.add(FIRST)
    log = directories.live[FIRST].logs[partition(0)]
    with pytest.raises(DiskFailedError):
        append(log, b"lost")
    assert failed == [FIRST]
    assert list(directories.offline) == [FIRST]
    directories.release(FIRST)
    disk.failed_roots.clear()
    assert directories.find(partition(0)) is None
    assert create(directories, 4) == SECOND
    append(directories.live[SECOND].logs[partition(1)], b"fine")
    before = disk.read_file(FIRST / RECOVERY_POINT_FILE)
    directories.close()
    assert disk.exists(SECOND / CLEAN_SHUTDOWN_FILE)
    assert not disk.exists(FIRST / CLEAN_SHUTDOWN_FILE)
    assert disk.read_file(FIRST / RECOVERY_POINT_FILE) == before


def test_a_failed_sync_is_a_failed_disk(disk: MemoryDisk) -> None:
    failed: list[Path] = []
    directories = opened(disk, failed)
    create(directories, 0)
    disk.syncs_fail = True
    with pytest.raises(DiskFailedError):
        directories.live[FIRST].logs[partition(0)].flush()
    disk.syncs_fail = False
    assert failed == [FIRST]
    with pytest.raises(StorageError, match="takes no writes"):
        append(directories.live[FIRST].logs[partition(0)], b"refused")
    with pytest.raises(DiskFailedError, match="offline"):
        directories.live[FIRST].checkpoints.store_offsets()


def test_a_partition_that_may_be_on_an_offline_root_is_not_made_elsewhere(disk: MemoryDisk) -> None:
    directories = opened(disk)
    create(directories, 0)
    directories.close()
    disk.failed_roots.add(FIRST)
    again = opened(disk)
    assert list(again.live) == [SECOND]
    with pytest.raises(DiskFailedError, match="may be in /data/first, which is offline"):
        create(again, 0, is_new=False)
    assert create(again, 1, is_new=True) == SECOND
    again.close()
    disk.failed_roots.clear()
    repaired = opened(disk)
    assert contents(repaired.live[FIRST].logs[partition(0)]) == [(0, b"0")]
    repaired.close()


def test_a_start_without_any_root_is_refused_with_every_reason(disk: MemoryDisk) -> None:
    disk.failed_roots |= {FIRST, SECOND}
    with pytest.raises(DiskFailedError, match=r"every log directory is offline: .*first.*second"):
        opened(disk)


def test_a_root_whose_logs_cannot_be_read_is_offline_from_the_start(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = opened(disk)
    create(directories, 0)
    create(directories, 1)
    directories.close()
    disk.failed_roots.add(FIRST / "t-0")
    again = opened(disk)
    assert list(again.live) == [SECOND]
    assert list(again.offline) == [FIRST]
    again.close()
    disk.failed_roots.clear()
    opened(disk).close()


def test_a_root_too_full_to_write_what_recovery_made_serves_all_the_same(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = opened(disk)
    create(directories, 0)
    create(directories, 1)
    for root in (FIRST, SECOND):
        directories.release(root)  # as a crash does: not marked as clean
    disk.remove(FIRST / "t-0" / LEADER_EPOCH_FILE)  # so that there is something to write
    open_file = disk.open

    def open_with_room(path: Path, *, create: bool = False) -> File:
        if create and FIRST / "t-0" in path.parents:
            raise DiskFullError(f"cannot open {path}: No space left on device")
        return open_file(path, create=create)

    with monkeypatch.context() as full:
        full.setattr(disk, "open", open_with_room)
        again = opened(disk)
        assert (list(again.live), list(again.offline)) == ([FIRST, SECOND], [])
        assert contents(again.live[FIRST].logs[partition(0)]) == [(0, b"0")]
        for root in (FIRST, SECOND):
            again.release(root)
    with_room = opened(disk)
    assert contents(with_room.live[FIRST].logs[partition(0)]) == [(0, b"0")]
    with_room.close()


def test_a_root_that_is_in_use_refuses_the_start_and_leaves_the_others_free(disk: MemoryDisk) -> None:
    disk.make_directory(SECOND)
    lock = disk.lock(SECOND / ".lock")
    with pytest.raises(StorageError, match="another process"):
        opened(disk)
    lock.release()
    opened(disk).close()


def test_roots_share_open_files_and_indexes(disk: MemoryDisk) -> None:
    directories = opened(disk)
    create(directories, 0)
    create(directories, 1)
    pools = {id(directory._pool) for directory in directories.live.values()}
    caches = {id(directory._cache) for directory in directories.live.values()}
    assert len(pools) == len(caches) == 1
    directories.close()


def test_logs_that_were_damaged_or_end_before_what_was_committed_are_told(disk: MemoryDisk) -> None:
    directories = opened(disk)
    directories.note_boot()
    for number in range(4):
        create(directories, number)
    first = directories.live[FIRST]
    append(first.logs[partition(0)], b"more")
    directories.live[SECOND].checkpoints.store_high_watermarks({partition(1): 1, partition(3): 1})
    first.checkpoints.store_high_watermarks({partition(2): 1})
    for root in (FIRST, SECOND):
        directories.release(root)  # as a crash does
    log = FIRST / "t-0" / FIRST_LOG
    stored = disk.read_file(log)
    disk.write_file(log, stored[:-1] + b"!")
    disk.write_file(SECOND / "t-1" / FIRST_LOG, b"")
    remove_partition_directory(disk, SECOND / "t-3")

    again = opened(disk)
    assert not again.may_have_lost()
    assert again.short_logs() == {partition(0), partition(1), partition(3)}
    assert contents(again.live[FIRST].logs[partition(0)]) == [(0, b"0")]
    for root in (FIRST, SECOND):
        again.release(root)
    later = opened(disk)
    assert later.may_have_lost(), "nobody was told of the cut"
    later.note_boot()
    later.close()
