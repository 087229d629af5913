"""Flushing: what it covers, when it is due, what runs beside it, and what a failed sync means."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from broker.errors import StorageError
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.memory_disk import MemoryDisk, MemoryFile
from tests.storage.conftest import memory_place
from tests.storage.samples import SMALL, DiskAt, ManualClock, append, contents, numbered


def test_a_flush_moves_the_recovery_point_to_the_end(place: DiskAt) -> None:
    log = place.log()
    for value in numbered(20):
        append(log, value)
    assert log.recovery_point == 0
    assert log.unflushed_count == 20
    assert log.flush() == 20
    assert log.recovery_point == 20
    assert log.unflushed_count == 0
    assert not log.files.flush_due()


def test_a_flush_is_due_by_count_by_time_and_after_a_roll(place: DiskAt) -> None:
    clock = ManualClock()
    log = place.log(LogConfig(flush_messages=3, flush_ms=1000), clock=clock)
    assert not log.files.flush_due()
    append(log, b"a", b"b")
    assert not log.files.flush_due()
    append(log, b"c")
    assert log.files.flush_due()
    log.flush()
    append(log, b"d")
    clock.advance(999)
    assert not log.files.flush_due()
    clock.advance(1)
    assert log.files.flush_due()
    log.flush()
    append(log, b"e")
    log.roll()
    assert log.files.flush_due()
    log.flush()
    assert not log.files.flush_due()


@dataclass(frozen=True, slots=True)
class HeldSync:
    """The first sync on the disk in memory waits until it is let go."""

    started: Event
    released: Event


@pytest.fixture
def held_sync(monkeypatch: pytest.MonkeyPatch) -> HeldSync:
    held = HeldSync(Event(), Event())
    sync, first = MemoryFile.sync, iter([True])

    def wait_and_sync(file: MemoryFile) -> None:
        if next(first, False):
            held.started.set()
            assert held.released.wait(30)
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", wait_and_sync)
    return held


@contextmanager
def during_flush(log: Log, held: HeldSync) -> Iterator[Future[int]]:
    """What is done inside happens while a thread flushes the log."""
    with ThreadPoolExecutor(1) as executor:
        flushed = executor.submit(log.flush)
        assert held.started.wait(30)
        try:
            yield flushed
        finally:
            held.released.set()
        flushed.result(30)


def test_appends_and_rolls_go_on_during_a_flush(held_sync: HeldSync) -> None:
    log = memory_place().log(SMALL)
    append(log, b"first")
    with during_flush(log, held_sync) as flushed:
        for value in numbered(30):
            append(log, value)
    assert flushed.result() == 1
    assert log.recovery_point <= 1
    assert log.flush() == 31
    assert log.recovery_point == 31


def test_a_cut_during_a_flush_keeps_the_recovery_point_down(held_sync: HeldSync) -> None:
    log = memory_place().log(LogConfig())
    for value in numbered(10):
        append(log, value)
    with during_flush(log, held_sync):
        log.truncate_to(4)
        append(log, b"other")
    assert log.recovery_point <= 4


def test_a_flush_while_a_log_begins_anew_finds_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    log = memory_place().log(SMALL)
    for value in numbered(30):
        append(log, value)
    flushed = log.flush()
    rename, seen = MemoryDisk.rename, []

    def flush_and_rename(disk: MemoryDisk, source: Path, target: Path) -> None:
        with ThreadPoolExecutor(1) as executor:
            seen.append(executor.submit(log.flush).result(30))
        rename(disk, source, target)

    monkeypatch.setattr(MemoryDisk, "rename", flush_and_rename)
    log.truncate_fully_and_start_at(100)
    assert seen[0] == flushed
    monkeypatch.undo()
    append(log, b"first")
    assert log.flush() == 101


def test_segments_may_be_removed_during_a_flush(held_sync: HeldSync) -> None:
    log = memory_place().log(LogConfig(segment_bytes=500, retention_bytes=0))
    for value in numbered(30):
        append(log, value)
    with during_flush(log, held_sync) as flushed:
        assert log.delete_old_segments(0)
        log.files.remove_deleted()
    assert flushed.result() == 30


def test_a_log_deleted_during_a_flush_is_no_failed_disk(held_sync: HeldSync) -> None:
    place = memory_place()
    log = place.log(SMALL)
    for value in numbered(30):
        append(log, value)
    with during_flush(log, held_sync):
        log.abandon()
        place.disk.rename(log.directory, place.path / "elsewhere")
    assert not log.failed


def test_a_sync_that_fails_is_never_tried_again() -> None:
    place = memory_place()
    disk = cast(MemoryDisk, place.disk)
    log = place.log()
    append(log, b"a")
    disk.syncs_fail = True
    with pytest.raises(StorageError, match="sync"):
        log.flush()
    disk.syncs_fail = False
    syncs = disk.sync_count
    for action in (log.flush, lambda: append(log, b"b")):
        with pytest.raises(StorageError, match="takes no writes after"):
            action()
    assert disk.sync_count == syncs
    assert log.failed
    assert contents(log) == [(0, b"a")]
    log.close()
    assert log.recovery_point == 0


def test_what_was_flushed_survives_a_loss_of_power() -> None:
    place = memory_place()
    disk = cast(MemoryDisk, place.disk)
    log = place.log()
    for value in numbered(30):
        append(log, value)
    log.flush()
    append(log, b"lost")
    disk.crash()
    assert contents(place.log()) == list(enumerate(numbered(30)))
