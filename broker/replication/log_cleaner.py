"""The cleaner threads of a node: which log is compacted next, and how the passes over logs are driven.

Each worker is a task of the event loop with one thread: it takes the dirtiest of the logs that are due,
drives a pass over it, and looks again; when there is none it rests. What a pass does to names and to the
log's list of segments happens on the event loop between two of its steps, everything else in the thread. So
neither readers nor appends ever wait for it.

A pass that its log ends (cut, deleted, closed) or that the node ends (it stops) leaves nothing behind. A log
with a damaged segment is told of once and left alone until the node starts anew; one whose disk failed, or
had no room, is tried again after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import NamedTuple

from broker.clock import Clock
from broker.errors import CorruptRecordsError, StorageError
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.storage.cleaning_schedule import CleaningSchedule
from broker.storage.compaction.cleanable import CleanableRange, DirtySegment, cleanable_range
from broker.storage.compaction.cleaning import Cleaning, CleaningBounds, CleaningEndedError
from broker.storage.compaction.unpacking import UNPACKED_MAX
from broker.storage.log import Log
from broker.storage.log_directory import LogDirectory
from broker.storage.throttle import Throttle
from broker.telemetry import logger
from broker.types import TopicPartition

log_event = logger("cleaner")

REST_MS = 60_000
"""How long a log is left alone whose disk failed, or on which a pass got nowhere."""
DEBT_SECONDS_MAX = 0.01
"""How far ahead of its budget a thread may be before it waits."""
SLICE_SECONDS = 0.000_3
"""A thread lets the event loop have its turn once it has worked for so long: the interpreter itself would
let it wait for 5 ms each time that it comes back from the kernel, some times per request.
"""
TURN_SECONDS = 0.000_05


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Bounds of all cleaner threads together; each field names its setting."""

    enable: bool = True
    """`log.cleaner.enable`."""
    threads: int = 1
    """`log.cleaner.threads`."""
    bytes_per_second_max: float = float("inf")
    """`log.cleaner.io.max.bytes.per.second`."""
    map_bytes: int = 134_217_728
    """`log.cleaner.dedupe.buffer.size`."""
    map_load_factor: float = 0.9
    """`log.cleaner.io.buffer.load.factor`."""
    buffer_bytes: int = 524_288
    """`log.cleaner.io.buffer.size`: half of it is read at a time, half is written."""
    backoff_ms: int = 15_000
    """`log.cleaner.backoff.ms`."""
    batch_size_max: int = 1 << 30
    """One batch as it is stored."""
    unpacked_max: int = UNPACKED_MAX
    """One batch uncompressed."""

    @property
    def bounds(self) -> CleaningBounds:
        """What one thread may use."""
        threads = max(self.threads, 1)
        return CleaningBounds(
            map_bytes=self.map_bytes // threads,
            map_load_factor=self.map_load_factor,
            buffer_bytes=max(self.buffer_bytes // threads // 2, 1),
            batch_size_max=self.batch_size_max,
            unpacked_max=self.unpacked_max,
        )


class _Candidate(NamedTuple):
    replica: Replica
    directory: LogDirectory
    cleanable: CleanableRange


class LogCleaner:
    """See the module's description. Owned by the event loop."""

    def __init__(
        self, replicas: Replicas, settings: CleanerSettings, *, schedule: CleaningSchedule, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._schedule = schedule
        self._clock = clock
        self._throttle = Throttle(settings.bytes_per_second_max, monotonic=time.monotonic)
        self._stopping = Event()
        self._reconfigured = asyncio.Event()
        self._under_way: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, Log] = {}
        self._resting_until_ms: dict[TopicPartition, int] = {}

    @property
    def uncleanable(self) -> frozenset[TopicPartition]:
        """Partitions that are left alone because a segment is damaged."""
        return frozenset(self._uncleanable)

    async def run(self) -> None:
        """All workers, anew whenever the settings change; ends by cancellation, once their threads ended."""
        while self._settings.enable:
            self._reconfigured.clear()
            self._stopping.clear()
            workers = asyncio.create_task(self._work_in_threads(self._settings.threads))
            change = asyncio.create_task(self._reconfigured.wait())
            try:
                await asyncio.wait((workers, change), return_when=asyncio.FIRST_COMPLETED)
            finally:
                workers.cancel()
                change.cancel()
                await asyncio.wait((workers, change))
            if not workers.cancelled() and (error := workers.exception()) is not None:
                raise error

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Clean by other settings from now on; passes that are under way end and begin again."""
        if settings == self._settings:
            return
        self._settings = settings
        self._throttle = Throttle(settings.bytes_per_second_max, monotonic=time.monotonic)
        self._reconfigured.set()

    async def _work_in_threads(self, threads: int) -> None:
        if not threads:
            await asyncio.Event().wait()
        with ThreadPoolExecutor(threads, thread_name_prefix="log-cleaner") as executor:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(threads):
                        tasks.create_task(self._work(executor))
            finally:
                self._stopping.set()

    async def _work(self, executor: Executor) -> None:
        while True:
            candidate = self._dirtiest()
            if candidate is None:
                await asyncio.sleep(self._settings.backoff_ms / 1000)
                continue
            partition = candidate.replica.topic_partition
            self._under_way.add(partition)
            try:
                await self._clean(candidate, executor)
            finally:
                self._under_way.discard(partition)
            await asyncio.sleep(0)

    # Choosing

    def _dirtiest(self) -> _Candidate | None:
        """The log most in need of a pass, of those that are due for one and not under way."""
        now_ms = self._clock.now_ms()
        if not self._schedule.allows(now_ms):
            return None
        self._forget_past()
        due = [
            _Candidate(replica, directory, found)
            for directory in self._replicas.directories.live.values()
            for replica in self._compacted_in(directory)
            if (found := _range(replica, replica.last_stable_offset, now_ms)).is_due(replica.log.config)
        ]
        return max(due, key=lambda candidate: candidate.cleanable.dirty_ratio, default=None)

    def _compacted_in(self, directory: LogDirectory) -> list[Replica]:
        excluded = self._under_way | self._uncleanable.keys() | self._resting_until_ms.keys()
        return [
            replica
            for partition, log in directory.logs.items()
            if log.config.compacts
            and partition not in excluded
            and (replica := self._replicas.get(*partition)) is not None
            and replica.log is log
            and not (log.failed or log.being_cut)
        ]

    def _forget_past(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._resting_until_ms = {
            partition: until_ms for partition, until_ms in self._resting_until_ms.items() if now_ms < until_ms
        }
        self._uncleanable = {partition: log for partition, log in self._uncleanable.items() if not log.closed}

    # Cleaning

    async def _clean(self, candidate: _Candidate, executor: Executor) -> None:
        """One pass, whose end is logged whatever it is."""
        replica = candidate.replica
        partition, log = replica.topic_partition, replica.log
        started_ms = self._clock.monotonic_ms()
        try:
            if log.recovery_point < candidate.cleanable.end_offset:
                await self._in_thread(executor, log.flush)
            now_ms = self._clock.now_ms()
            # What a crash of the machine could take must not be what lets older records go.
            end_offset_max = min(replica.last_stable_offset, log.recovery_point)
            cleaning = Cleaning(
                log,
                _range(replica, end_offset_max, now_ms),
                self._settings.bounds,
                now_ms=now_ms,
                pace=self._pace_of(log),
                checkpoint=candidate.directory.checkpoints.store_compaction,
            )
            with closing(cleaning.steps()) as steps:
                for step in steps:
                    await self._in_thread(executor, step)
        except CleaningEndedError as error:
            log_event.info("cleaning_ended", partition=str(partition), reason=str(error))
            return
        except CorruptRecordsError as error:
            self._uncleanable[partition] = log
            log_event.error("log_uncleanable", partition=str(partition), reason=error.message)
            return
        except StorageError as error:
            self._rest(partition)
            log_event.error("cleaning_failed", partition=str(partition), reason=str(error))
            return
        report = cleaning.report
        if report.unopened:
            log_event.warning(
                "batches_not_compacted",
                partition=str(partition),
                count=report.unopened,
                first_offset=report.first_unopened_offset,
                reason="they unpack to too much",
            )
        if report.end_offset == report.start_offset:
            self._rest(partition)
        log_event.info(
            "log_cleaned",
            partition=str(partition),
            start_offset=report.start_offset,
            end_offset=report.end_offset,
            keys=report.keys,
            segments_before=report.segments_before,
            segments_after=report.segments_after,
            bytes_before=report.size_before,
            bytes_after=report.size_after,
            bytes_read=report.read_size,
            duration_ms=self._clock.monotonic_ms() - started_ms,
        )

    async def _in_thread(self, executor: Executor, work: Callable[[], object]) -> None:
        """Do what blocks. Whoever is cancelled meanwhile waits for its end: files are in use there."""
        future = asyncio.get_running_loop().run_in_executor(executor, work)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            self._stopping.set()
            await asyncio.gather(future, return_exceptions=True)
            raise

    def _rest(self, partition: TopicPartition) -> None:
        self._resting_until_ms[partition] = self._clock.monotonic_ms() + REST_MS

    def _pace_of(self, log: Log) -> Callable[[int], None]:
        """What a pass calls for every so many bytes, in its thread."""
        turn = time.perf_counter()

        def pace(size: int) -> None:
            nonlocal turn
            if self._stopping.is_set():
                raise CleaningEndedError("the node stops")
            if log.closed:
                raise CleaningEndedError("the log is no longer in use")
            if not log.config.compacts:
                raise CleaningEndedError("the topic is no longer compacted")
            ahead_seconds = self._throttle.spend(size)
            if ahead_seconds > DEBT_SECONDS_MAX:
                self._stopping.wait(ahead_seconds)
            if time.perf_counter() - turn >= SLICE_SECONDS:
                time.sleep(TURN_SECONDS)
                turn = time.perf_counter()

        return pace


def _range(replica: Replica, end_offset_max: int, now_ms: int) -> CleanableRange:
    log = replica.log
    bases = [segment.base_offset for segment in log.segments]
    segments = [
        DirtySegment(
            segment.base_offset, after, segment.size, segment.first_timestamp, segment.largest_timestamp
        )
        for segment, after in zip(log.segments[:-1], bases[1:], strict=True)
    ]
    return cleanable_range(
        segments,
        log.config,
        first_dirty_offset=max(log.compacted_end or 0, log.log_start_offset),
        end_offset_max=end_offset_max,
        now_ms=now_ms,
    )
