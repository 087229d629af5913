"""What logs need from time to time: flushes, archiving, retention, checkpoints.

Each kind has a loop of its own, a task of the node. Whatever blocks on the disk runs in threads; what fails
is logged and looked at again at the next turn, by when a log directory whose disk failed is offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from broker.clock import Clock
from broker.errors import StorageError
from broker.replication.archiving import Archiving
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.storage.cleaning_schedule import CleaningSchedule
from broker.storage.log_directory import LogDirectory
from broker.telemetry import logger

T = TypeVar("T")

log_event = logger("upkeep")

SPACE_LOOK_MS = 1_000
"""How often file systems are asked how much is left."""
REMOVAL_LOOK_MS = 5_000
"""How often deleted files are looked at whose delay may be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepIntervals:
    """How often, in milliseconds; each field names its setting."""

    flush_ms: int = 1_000
    """How often logs are looked at for flushing: the smaller of `log.flush.scheduler.interval.ms` and this.
    """
    retention_ms: int = 300_000
    """`log.retention.check.interval.ms`."""
    checkpoint_ms: int = 60_000
    """The smaller of `log.flush.offset.checkpoint.interval.ms` and
    `log.flush.start.offset.checkpoint.interval.ms`.
    """
    high_watermark_ms: int = 5_000
    """`replica.high.watermark.checkpoint.interval.ms`."""
    producer_expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`."""


class Upkeep:
    """The care of all logs of one node."""

    def __init__(
        self,
        replicas: Replicas,
        intervals: UpkeepIntervals,
        *,
        archiving: Archiving,
        schedule: CleaningSchedule,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._archiving = archiving
        self._schedule = schedule
        self._cleaning = True
        self.intervals = intervals
        self._clock = clock
        self._executor = executor

    async def run(self) -> None:
        """All loops; ends by cancellation."""
        intervals = self.intervals
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(intervals.flush_ms, self.flush))
            tasks.create_task(self._repeat(intervals.retention_ms, self.apply_retention))
            tasks.create_task(self._repeat(intervals.retention_ms, self.archive))
            tasks.create_task(self._repeat(REMOVAL_LOOK_MS, self.remove_deleted))
            tasks.create_task(self._repeat(SPACE_LOOK_MS, self.look_at_space))
            tasks.create_task(self._repeat(intervals.checkpoint_ms, self.checkpoint))
            tasks.create_task(self._repeat(intervals.high_watermark_ms, self.checkpoint_high_watermarks))

    async def flush(self) -> None:
        """Flush every log whose settings ask for it now; one that fails does not keep the others waiting."""
        for directory in self._replicas.directories.live.values():
            for files in directory.flush_watch.due():
                try:
                    await self._in_thread(files.flush)
                except StorageError as error:
                    partition = files.directory.path.name
                    log_event.error("flush_failed", partition=partition, reason=str(error))

    async def apply_retention(self) -> None:
        """Delete old segments when the schedule allows it; forget idle producers. Raises StorageError."""
        for replica in self._replicas:
            now_ms = self._clock.now_ms()
            if self._may_clean(now_ms):
                self._delete_old_segments(replica, now_ms)
            if not replica.log.being_cut:
                replica.log.producers.expire(now_ms, self.intervals.producer_expiration_ms)
            await asyncio.sleep(0)

    async def archive(self) -> None:
        """Archive what is due, several partitions at once, and delete it. Raises StorageError."""
        replicas = iter(self._replicas)

        async def work() -> None:
            for replica in replicas:
                now_ms = self._clock.now_ms()
                if self._may_clean(now_ms) and await self._archiving.archive(replica):
                    self._delete_old_segments(replica, now_ms)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._archiving.workers):
                tasks.create_task(work())

    def _may_clean(self, now_ms: int) -> bool:
        allowed = self._schedule.allows(now_ms)
        if allowed is not self._cleaning:
            self._cleaning = allowed
            event = "cleaning_resumed" if allowed else "cleaning_paused"
            log_event.info(event, schedule=self._schedule.expression)
        return allowed

    def _delete_old_segments(self, replica: Replica, now_ms: int) -> None:
        if replica.log.being_cut:
            return
        end = self._archiving.deletable_end(replica)
        for segment in replica.log.delete_old_segments(now_ms, end_offset_max=end):
            log_event.info(
                "segment_deleted",
                partition=str(replica.topic_partition),
                base_offset=segment.base_offset,
                size=segment.size,
            )

    async def remove_deleted(self) -> None:
        """Free the space of what was deleted long enough ago. Raises StorageError."""
        now_ms = self._clock.monotonic_ms()
        for directory in self._replicas.directories.live.values():
            await self._in_thread(partial(directory.remove_deleted, now_ms))

    async def look_at_space(self) -> None:
        """See how much is left in each directory. One that is full is relieved at once of what may go,
        whatever the schedule and the delay of deletions say; in others what waited for room is written.
        Raises StorageError.
        """
        for directory in self._replicas.directories.live.values():
            directory.free_space.measured(await self._in_thread(directory.space))
            if directory.free_space.is_full:
                await self._relieve(directory)
            else:
                directory.late_writes.settle()

    async def _relieve(self, directory: LogDirectory) -> None:
        await self._in_thread(directory.remove_deleted)
        now_ms, logs = self._clock.now_ms(), directory.logs
        for replica in self._replicas:
            if replica.topic_partition in logs:
                self._delete_old_segments(replica, now_ms)
        if await self._in_thread(directory.remove_deleted):
            directory.free_space.measured(await self._in_thread(directory.space))

    async def checkpoint(self) -> None:
        """Store recovery points and log start offsets. Raises StorageError."""
        for directory in self._replicas.directories.live.values():
            await self._in_thread(directory.checkpoints.store_offsets)

    async def checkpoint_high_watermarks(self) -> None:
        """Store the high watermarks. Raises StorageError."""
        for directory in self._replicas.directories.live.values():
            high_watermarks = self._replicas.high_watermarks_in(directory)
            await self._in_thread(partial(directory.checkpoints.store_high_watermarks, high_watermarks))

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except StorageError as error:
                log_event.error("upkeep_failed", reason=str(error))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
