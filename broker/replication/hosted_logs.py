"""The logs of partitions that this node is told to host: found where they are, or made, many at a time.

Making a log is mostly waiting for the disk, so a topic of many partitions is made by all disk threads at
once, each of which syncs a log directory once for its share. Whoever asks holds the lock of orders, so that
no two make the same log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from broker.errors import DiskFailedError, StorageError
from broker.storage.filenames import is_topic_name
from broker.storage.log_directories import LogDirectories
from broker.storage.log_directory import LogDirectory, NewLog
from broker.types import TopicPartition

SHARES_MAX = 8
"""How many threads make the logs of one directory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLog:
    """A log to be found, or made; `is_new`: it is not expected to be anywhere."""

    new: NewLog
    is_new: bool


Obtained = dict[TopicPartition, LogDirectory | StorageError]
"""The directory that holds the log of each partition, or why none does."""


async def obtain_logs(
    directories: LogDirectories, wanted: Sequence[WantedLog], executor: Executor
) -> Obtained:
    """Find each log, or make it in the live directory with the fewest; DiskFailedError stands for those that
    may be in a directory that is offline.
    """
    obtained: Obtained = {}
    missing: dict[Path, list[NewLog]] = {}
    placed: Counter[Path] = Counter()
    for each in wanted:
        partition = each.new.topic_partition
        if not is_topic_name(partition.topic):
            obtained[partition] = StorageError(f"{partition.topic!r} cannot be the name of a topic")
            continue
        try:
            directory = directories.find(partition)
            if directory is None:
                directory = directories.place(partition, is_new=each.is_new, placed=placed)
                placed[directory.path] += 1
                missing.setdefault(directory.path, []).append(each.new)
            obtained[partition] = directory
        except DiskFailedError as error:
            obtained[partition] = error
    async with asyncio.TaskGroup() as tasks:
        for path, logs in missing.items():
            directory = directories.live[path]
            for share in range(min(SHARES_MAX, len(logs))):
                tasks.create_task(_make(directory, logs[share::SHARES_MAX], executor, obtained))
    _refuse_released(directories, obtained)
    return obtained


async def _make(
    directory: LogDirectory, logs: Sequence[NewLog], executor: Executor, obtained: Obtained
) -> None:
    """Make logs in a thread, putting the errors of those that fail in place."""
    make = partial(directory.create_logs, logs)
    try:
        obtained.update(await asyncio.get_running_loop().run_in_executor(executor, make))
    except StorageError as error:
        obtained.update(dict.fromkeys((log.topic_partition for log in logs), error))


def _refuse_released(directories: LogDirectories, obtained: Obtained) -> None:
    """A directory that went offline meanwhile holds nothing any more."""
    for partition, found in obtained.items():
        if isinstance(found, LogDirectory) and directories.live.get(found.path) is not found:
            obtained[partition] = DiskFailedError(f"{found.path} is offline")
