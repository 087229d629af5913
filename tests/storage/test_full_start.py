"""A root on a full file system is opened after any end, served, and completed when there is room."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.errors import DiskFullError
from broker.storage.log import Log
from broker.storage.log_directory import LogDirectory
from tests.storage.samples import NOW_MS, append, contents, numbered
from tests.storage.test_closed_logs import WatchedDisk
from tests.storage.test_lost_files import (
    ABORTS,
    EPOCHS,
    ROOT,
    Expected,
    Files,
    all_files,
    disk_of,
    made,
    opened,
    state,
    transaction_indexes,
)
from tests.storage.test_transactions import mark, write

DERIVED = (".index", ".timeindex", ".txnindex")


def grown(*, flushed: bool) -> tuple[Files, Expected]:
    """A root after a crash, with many segments behind the recovery points unless all was `flushed`."""
    files, _ = made(is_clean=True)
    disk = disk_of(files)
    directory = opened(disk)
    aborts, epochs = directory.logs[ABORTS], directory.logs[EPOCHS]
    for number in range(24, 48):
        write(aborts, 7, number, b"%d" % number)
        mark(aborts, 7, commit=number % 3 == 0)
        append(epochs, *numbered(2), epoch=number // 3, timestamps=[NOW_MS + number, NOW_MS + number])
    if flushed:
        for log in directory.logs.values():
            log.flush()
    directory.checkpoints.store_offsets()
    expected = state(directory)
    directory.abandon()
    return all_files(disk), expected


def derived(disk: WatchedDisk) -> Files:
    return {path: data for path, data in all_files(disk).items() if path.suffix in DERIVED}


def full(files: Files, *, room: int = 0) -> WatchedDisk:
    disk = disk_of(files)
    disk.space_left = room
    return disk


def closed_with_room(files: Files) -> Files:
    disk = disk_of(files)
    opened(disk).close()
    return derived(disk)


def flush_what_can_be(directory: LogDirectory) -> None:
    for log in directory.logs.values():
        with suppress(DiskFullError):
            log.flush()


def times(log: Log) -> list[int | None]:
    found = [log.offset_for_timestamp(NOW_MS + at) for at in range(24, 48)]
    return [each.offset if each is not None else None for each in found]


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("lost", ["nothing", "indexes", "epochs", "aborted", "all"])
def test_a_full_root_is_served_as_it_is_and_completed_when_there_is_room(flushed: bool, lost: str) -> None:
    files, expected = grown(flushed=flushed)
    complete = closed_with_room(files)
    kinds = {"indexes": DERIVED[:2], "aborted": DERIVED[2:], "all": DERIVED}.get(lost, ())
    left = {
        path: data
        for path, data in files.items()
        if path.suffix not in kinds
        and not (lost in ("epochs", "all") and path.name == "leader-epoch-checkpoint")
    }
    whole = opened(disk_of(files))
    for room in (0, 1, 100, 500, 2000):
        disk = full(left, room=room)
        directory = opened(disk)
        assert state(directory) == expected
        assert contents(directory.logs[EPOCHS]) == contents(whole.logs[EPOCHS])
        assert times(directory.logs[EPOCHS]) == times(whole.logs[EPOCHS])
        disk.space_left = 0
        with pytest.raises(DiskFullError):
            append(directory.logs[EPOCHS], b"x" * 100)
        directory.late_writes.settle()  # finds no room, and waits on
        flush_what_can_be(directory)
        assert state(directory) == expected
        disk.space_left = None
        directory.late_writes.settle()
        assert state(directory) == expected
        directory.close()
        assert derived(disk) == complete
        assert state(opened(disk)) == expected


@pytest.mark.parametrize("flushed", [True, False])
def test_a_crash_before_there_is_room_costs_nothing(flushed: bool) -> None:
    files, expected = grown(flushed=flushed)
    left = {path: data for path, data in files.items() if path.suffix not in DERIVED}
    for room in (0, 50, 300, 1000):
        disk = full(left, room=room)
        for _ in range(2):
            directory = opened(disk)
            assert state(directory) == expected
            flush_what_can_be(directory)
            directory.abandon()
        disk.space_left = None
        directory = opened(disk)
        assert state(directory) == expected
        directory.close()
        again = opened(disk)
        assert state(again) == expected
        assert not any(log.recovery_report.is_notable for log in again.logs.values())


def test_recovery_points_that_are_no_longer_true_go_when_they_cannot_be_replaced() -> None:
    files, _ = grown(flushed=True)
    log = max(path for path in files if path.parent.name == str(EPOCHS) and path.suffix == ".log")
    disk = full(files | {log: files[log][:-1]})
    directory = opened(disk)
    cut = directory.logs[EPOCHS].log_end_offset
    assert not disk.exists(ROOT / "recovery-point-offset-checkpoint")
    directory.abandon()
    disk.space_left = None
    again = opened(disk).logs[EPOCHS]
    assert again.log_end_offset == cut
    assert contents(again)[-1][0] == cut - 1


def test_the_indexes_of_what_was_lost_stay_known_while_they_wait() -> None:
    files, expected = made(is_clean=True)
    indexes = transaction_indexes(files)
    disk = full({path: data for path, data in files.items() if path not in indexes})
    directory = opened(disk)
    disk.space_left = 1000
    directory.checkpoints.store_offsets()
    directory.abandon()
    disk.space_left = None
    assert state(opened(disk)) == expected


def test_leader_epochs_that_wait_keep_the_recovery_point_where_it_is() -> None:
    files, _ = grown(flushed=True)
    disk = full({path: data for path, data in files.items() if path.name != "leader-epoch-checkpoint"})
    log = opened(disk).logs[EPOCHS]
    before = log.recovery_point
    with pytest.raises(DiskFullError):
        log.flush()
    assert log.recovery_point == before
    disk.space_left = None
    offset = append(log, b"more", epoch=99)
    assert log.flush() == offset + 1 == log.recovery_point
