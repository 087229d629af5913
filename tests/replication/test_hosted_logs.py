"""Logs of partitions that a node is told to host: where they are made, and what one that fails leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.errors import DiskFailedError, StorageError
from broker.replication.hosted_logs import Obtained, WantedLog, obtain_logs
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.storage.log_directory import NewLog
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicPartition
from tests.storage.samples import ManualClock

CONFIG = LogConfig()
FIRST, SECOND = Path("/data/first"), Path("/data/second")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def directories(disk: MemoryDisk) -> Iterator[LogDirectories]:
    found = LogDirectories(disk, ManualClock(), recovery_threads=1, on_failure=lambda _: None)
    found.open([FIRST, SECOND], lambda _: CONFIG, broker_id=BrokerId(1), cluster_id="jfk")
    yield found
    found.close()


def wanted(count: int, *, is_new: bool = True) -> list[WantedLog]:
    partitions = [TopicPartition("t", number) for number in range(count)]
    return [
        WantedLog(new=NewLog(topic_partition=partition, topic_id=None, config=CONFIG), is_new=is_new)
        for partition in partitions
    ]


def obtain(directories: LogDirectories, logs: Sequence[WantedLog]) -> Obtained:
    with ThreadPoolExecutor(4) as threads:
        return asyncio.run(obtain_logs(directories, logs, threads))


def test_logs_that_are_made_at_once_are_spread_evenly(directories: LogDirectories) -> None:
    obtained = obtain(directories, wanted(100))
    assert len(obtained) == 100
    assert [len(directory.logs) for directory in directories.live.values()] == [50, 50]
    for partition, directory in obtained.items():
        assert directories.find(partition) is directory


def test_a_log_that_is_there_is_found_where_it_is(directories: LogDirectories) -> None:
    first = obtain(directories, wanted(3))
    again = obtain(directories, wanted(5, is_new=False))
    assert {partition: again[partition] for partition in first} == first
    assert sum(len(directory.logs) for directory in directories.live.values()) == 5


def test_one_that_cannot_be_made_keeps_no_other_from_being_made(
    disk: MemoryDisk, directories: LogDirectories
) -> None:
    for root in (FIRST, SECOND):
        disk.make_directory(root / "t-3")
    obtained = obtain(directories, wanted(20))
    refused = {partition: found for partition, found in obtained.items() if isinstance(found, StorageError)}
    assert list(refused) == [TopicPartition("t", 3)]
    assert "t-3 exists already" in str(refused[TopicPartition("t", 3)])
    assert sum(len(directory.logs) for directory in directories.live.values()) == 19


def test_what_may_be_in_a_directory_that_is_offline_is_not_made_elsewhere(
    disk: MemoryDisk, directories: LogDirectories
) -> None:
    directories.offline = {SECOND: "it failed"}
    directories.release(SECOND)
    obtained = obtain(directories, [*wanted(1, is_new=False), *wanted(2)[1:]])
    assert isinstance(obtained[TopicPartition("t", 0)], DiskFailedError)
    assert obtained[TopicPartition("t", 1)] is directories.live[FIRST]
