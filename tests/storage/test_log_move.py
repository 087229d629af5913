"""A log that moves to another root: wherever it ends, there is one log, and it has everything."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import pytest

from broker.errors import DiskFailedError, StorageError
from broker.replication.log_moves import _exchange
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import ManualClock, append, build, contents, numbered
from tests.storage.sudden_ends import POWERS, finishes

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=0)
FIRST, SECOND = Path("/data/first"), Path("/data/second")
PARTITION = TopicPartition("t", 0)
VALUES = numbered(20, size=20)


def opened(disk: MemoryDisk) -> LogDirectories:
    directories = LogDirectories(disk, ManualClock(), recovery_threads=1, on_failure=lambda root: None)
    directories.open([FIRST, SECOND], lambda _: CONFIG, broker_id=BrokerId(1), cluster_id="jfk")
    return directories


def copied(directories: LogDirectories) -> Log:
    """A durable log in FIRST with a complete copy for SECOND; the log."""
    log = directories.live[FIRST].create_log(PARTITION, None, CONFIG)
    for number, value in enumerate(VALUES):
        log.append(build([value], producer=(7, 0, number)), 3, now_ms=0)
    log.advance_start(2)
    log.flush()
    directories.live[FIRST].checkpoints.store_offsets()
    future = directories.live[SECOND].begin_future(log, 2)
    while future.log_end_offset < log.log_end_offset:
        position = max(future.log_end_offset, 2)
        future.append_as_follower(log.read(position, max_bytes=300, up_to=log.log_end_offset).read())
    return log


def exchange(directories: LogDirectories, log: Log) -> None:
    _exchange(directories.live[FIRST], directories.live[SECOND], log)


def assert_whole(log: Log) -> None:
    assert contents(log) == list(enumerate(VALUES))[2:]
    assert log.log_start_offset == 2
    assert log.leader_epochs.latest == 3
    repeated = log.append(build([VALUES[-1]], producer=(7, 0, len(VALUES) - 1)), 3, now_ms=0)
    assert repeated.duplicate


def test_a_moved_log_is_what_it_was_and_goes_on() -> None:
    disk = cast(MemoryDisk, memory_place().disk)
    directories = opened(disk)
    exchange(directories, copied(directories))
    moved = directories.live[SECOND].logs[PARTITION]
    assert directories.find(PARTITION) is directories.live[SECOND]
    assert not directories.live[SECOND].futures
    assert_whole(moved)
    append(moved, b"more", epoch=3)
    directories.close()
    assert [entry.name for entry in disk.list_directory(FIRST) if entry.is_directory] == []
    again = opened(disk)
    assert contents(again.live[SECOND].logs[PARTITION])[-1] == (len(VALUES), b"more")
    again.close()


@pytest.mark.parametrize("power", POWERS)
def test_a_move_that_ends_anywhere_leaves_one_whole_log(power: str) -> None:
    step, is_finished = 0, False
    while not is_finished:
        disk = cast(MemoryDisk, memory_place().disk)
        directories = opened(disk)
        log = copied(directories)
        is_finished = finishes(disk, partial(exchange, directories, log), step, power)
        again = opened(disk)
        home = again.find(PARTITION)
        assert home is not None, step
        assert_whole(home.logs[PARTITION])
        assert sum(PARTITION in directory.logs for directory in again.live.values()) == 1
        again.close()
        third = opened(disk)
        assert not third.interrupted
        third.close()
        step += 1
    assert step > 10


def test_an_interrupted_copy_is_named_and_removed() -> None:
    disk = cast(MemoryDisk, memory_place().disk)
    copied(opened(disk))
    disk.kill()
    again = opened(disk)
    assert again.interrupted == {PARTITION: SECOND}
    assert_whole(again.live[FIRST].logs[PARTITION])
    assert [entry.name for entry in disk.list_directory(SECOND) if entry.is_directory] == []
    again.close()


def test_a_copy_is_left_alone_while_its_log_may_be_on_an_offline_root() -> None:
    disk = cast(MemoryDisk, memory_place().disk)
    copied(opened(disk))
    disk.kill()
    disk.failed_roots.add(FIRST)
    again = opened(disk)
    assert again.find(PARTITION) is None
    assert any(entry.name.endswith("-future") for entry in disk.list_directory(SECOND))
    again.close()


def test_a_target_that_fails_at_the_swap_leaves_the_log_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = cast(MemoryDisk, memory_place().disk)
    directories = opened(disk)
    log = copied(directories)
    monkeypatch.setattr(
        directories.live[SECOND], "promote", lambda *_: (_ for _ in ()).throw(DiskFailedError("dead"))
    )
    with pytest.raises(StorageError, match="dead"):
        exchange(directories, log)
    assert_whole(directories.live[FIRST].logs[PARTITION])
