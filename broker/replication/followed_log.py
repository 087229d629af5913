"""A replica's log as its leader has it: appended to as the leader sent it, cut where the histories part.

Appends are synchronous and small, so that the event loop is never held for long (`stretches`). A cut waits
for the disk and reads what producers left behind, so it is done in a thread; `Replica.cutting` tells of it
meanwhile. While it is set nobody reads the log or changes it, and no role is given or taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial

from broker.errors import DiskFullError
from broker.records.batch import HEADER_SIZE, peek_size, read_header
from broker.replication.following import Position
from broker.replication.replica import Replica
from broker.storage.log import Log

STRETCH_BYTES = 512 << 10
STRETCH_BATCHES = 256


def position_of(replica: Replica) -> Position:
    """Where the replica's log is."""
    log = replica.log
    return Position(log.log_end_offset, log.leader_epochs.latest, log.log_start_offset)


def stretches(records: memoryview) -> Iterator[memoryview]:
    """The batches in `records`, so many at a time as may be appended before others have their turn; one that
    is torn at the end is left out. Raises CorruptRecordsError.
    """
    start = end = count = 0
    while (size := peek_size(records, end)) is not None and end + size <= len(records):
        if count == STRETCH_BATCHES or (count and end + size - start > STRETCH_BYTES):
            yield records[start:end]
            start, count = end, 0
        end += size
        count += 1
    if end > start:
        yield records[start:end]


def append(replica: Replica, records: memoryview) -> None:
    """Store whole batches as the leader sent them.

    Raises CorruptRecordsError, and then nothing was stored; StorageError, and then a part may have been.
    """
    log = replica.log
    try:
        log.append_as_follower(records)
    except DiskFullError:
        replica.free_space.ran_out()
        raise
    finally:
        replica.machine.appended(log.log_end_offset)


async def make_room_below(replica: Replica, records: memoryview, executor: Executor) -> None:
    """Let an empty log begin where the batch begins that holds its first offset: the leader's log may start
    within a batch. Raises CorruptRecordsError, StorageError.
    """
    log = replica.log
    if log.log_start_offset < log.log_end_offset or len(records) < HEADER_SIZE:
        return
    header = read_header(records)
    if header.base_offset < log.log_end_offset <= header.last_offset:
        await restart(replica, header.base_offset, executor)


def hear(replica: Replica, high_watermark: int, log_start_offset: int) -> None:
    """Take over what the leader said of its own log, as far as this one reaches. Raises StorageError."""
    machine, log = replica.machine, replica.log
    if high_watermark > machine.high_watermark:
        before = machine.high_watermark
        machine.told_high_watermark(high_watermark)
        replica.committed_since(before)
    if log_start_offset > log.log_start_offset:
        log.advance_start(min(log_start_offset, log.log_end_offset))


async def cut(replica: Replica, offset: int, executor: Executor) -> None:
    """Remove everything from `offset` on. Raises CorruptRecordsError for a damaged log, StorageError."""
    await _change(replica, partial(_cut, replica.log, offset), executor)


async def restart(replica: Replica, offset: int, executor: Executor) -> None:
    """Remove everything, and go on from `offset`. Raises StorageError."""
    await _change(replica, partial(replica.log.truncate_fully_and_start_at, offset), executor)


def _cut(log: Log, offset: int) -> None:
    log.truncate_to(offset)
    # An epoch whose records are all gone already would be told to the leader again and again.
    log.leader_epochs.cut_end(log.log_end_offset)


async def _change(replica: Replica, work: Callable[[], None], executor: Executor) -> None:
    """Do `work` on the log in a thread, to its end, even for a task that is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    log, done = replica.log, loop.create_future()
    replica.cutting, log.being_cut = done, True
    changing = loop.run_in_executor(executor, work)
    is_cancelled = False
    while not changing.done():
        try:
            await asyncio.wait([changing])
        except asyncio.CancelledError:
            is_cancelled = True
    replica.machine.truncated(log.log_end_offset)
    replica.cutting, log.being_cut = None, False
    done.set_result(None)
    changing.result()
    if is_cancelled:
        raise asyncio.CancelledError
