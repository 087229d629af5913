"""A data root: one directory with the logs of many partitions.

`root_claim` sees to it that the root is this broker's, and `.lock` keeps a second process out. What is stored
of all logs together is with `root_checkpoints`. `.kafka_cleanshutdown` is written as the last thing of a
clean end and removed once all logs are open, so that its presence means: no log needs a check.

Everything here blocks on the disk and may run in any thread while the event loop goes on appending: the map
of logs is replaced, never changed, and logs are made and deleted under a lock. Whoever deletes a log no
longer uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from broker.clock import Clock
from broker.errors import StorageError
from broker.storage.boot_note import BootNote
from broker.storage.closed_logs import ClosedLog
from broker.storage.disk import Disk, DiskLock, Space
from broker.storage.filenames import (
    BOOT_FILE,
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    SESSION_FILE,
    DirectoryState,
    PartitionDirectoryName,
    deleted_directory_name,
    future_directory_name,
    parse_directory_name,
    stray_directory_name,
)
from broker.storage.flush_watch import FlushWatch
from broker.storage.free_space import FreeSpace
from broker.storage.index import IndexCache
from broker.storage.late_writes import LateWrites
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_map import LogMap
from broker.storage.log_opening import open_log
from broker.storage.open_files import FilePool
from broker.storage.partition_directory import remove_partition_directory
from broker.storage.private_note import PrivateNote
from broker.storage.recovery_events import tell
from broker.storage.removals import Removals
from broker.storage.root_checkpoints import RootCheckpoints
from broker.storage.root_claim import claim, refuse_foreign
from broker.storage.transaction_index_sizes import IndexSizes
from broker.telemetry import logger
from broker.types import BrokerId, TopicId, TopicPartition

ConfigOf = Callable[[TopicPartition], LogConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log that is to be made."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    config: LogConfig


class LogDirectory:
    """See the module's description."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        lock: DiskLock,
        clock: Clock,
        *,
        recovery_threads: int,
        pool: FilePool | None,
        cache: IndexCache | None,
        free_bytes_min: int | None,
    ) -> None:
        self.path = path
        self.clean = disk.exists(path / CLEAN_SHUTDOWN_FILE)
        self.free_space = FreeSpace(str(path), self.space, minimum=free_bytes_min)
        self._disk = disk
        self._lock = lock
        self._clock = clock
        self._recovery_threads = recovery_threads
        self.lock_identity = lock.identity
        self.session_note = PrivateNote(disk, path / SESSION_FILE)
        self.boot_note = BootNote(disk, path / BOOT_FILE, was_clean=self.clean)
        self.flush_watch = FlushWatch()
        self._pool = pool or FilePool(disk)
        self._cache = cache or IndexCache()
        self._found: Sequence[tuple[str, PartitionDirectoryName]] | None = None
        self._logs = LogMap()
        self._futures = LogMap()
        self._removable = Removals()
        self._events = logger("storage").bind(log_directory=str(path))
        self.checkpoints = RootCheckpoints(disk, path, self._all_logs, self._events)
        self.late_writes = LateWrites((), self._events)

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: Path,
        clock: Clock,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        recovery_threads: int = 2,
        pool: FilePool | None = None,
        cache: IndexCache | None = None,
        free_bytes_min: int | None = 0,
    ) -> LogDirectory:
        """Lock the root at `path` and take it into use, making it when there is none. Roots of one process
        may share a pool of open files and a cache of indexes. Clients write while `free_bytes_min` are left
        (None: by the size of the file system).

        Raises StorageError when another process uses it, when it belongs to another broker or cluster, or
        holds foreign directories.
        """
        disk.make_directory(path)
        lock = disk.lock(path / LOCK_FILE)
        try:
            claim(disk, path, broker_id, cluster_id)
            directory = cls(
                disk,
                path,
                lock,
                clock,
                recovery_threads=recovery_threads,
                pool=pool,
                cache=cache,
                free_bytes_min=free_bytes_min,
            )
            refuse_foreign(disk, path, directory._events)
        except StorageError:
            lock.release()
            raise
        return directory

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every open log."""
        return self._logs.current

    @property
    def futures(self) -> Mapping[TopicPartition, Log]:
        """Copies of logs of other roots that are about to move in."""
        return self._futures.current

    def _all_logs(self) -> tuple[Log, ...]:
        return (*self.logs.values(), *self.futures.values())

    def stored(self, state: DirectoryState = DirectoryState.LIVE) -> dict[TopicPartition, str]:
        """The partitions that have a directory in this state, open or not, and its name. Raises
        StorageError.
        """
        return {name.topic_partition: text for text, name in self._listed() if name.state is state}

    def _listed(self) -> Sequence[tuple[str, PartitionDirectoryName]]:
        """The directories of partitions, by name; listed once for all that is asked before the logs are
        open.
        """
        if self._found is None:
            self._found = [
                (entry.name, name)
                for entry in self._disk.list_directory(self.path)
                if entry.is_directory and (name := parse_directory_name(entry.name)) is not None
            ]
        return self._found

    def load(self, config_of: ConfigOf) -> Mapping[TopicPartition, Log]:
        """Open every log found, checking what an unclean end left. Raises StorageError."""
        recovery_points = self.checkpoints.read_recovery_points()
        start_offsets = self.checkpoints.read_start_offsets()
        closed = self.checkpoints.read_log_ends() if self.clean else {}
        index_sizes = self.checkpoints.read_transaction_index_sizes()
        live = []
        for text, name in self._listed():
            match name.state:
                case DirectoryState.LIVE:
                    live.append(name.topic_partition)
                case DirectoryState.DELETE:
                    self._removable.add([self.path / text], due_ms=0)
                case DirectoryState.FUTURE | DirectoryState.STRAY:
                    self._events.warning("partition_directory_left_alone", name=text)
        compacted_ends = self.checkpoints.read_compacted_ends(live)

        def open_one(partition: TopicPartition) -> Log:
            recovery_point, start_offset = recovery_points.get(partition, 0), start_offsets.get(partition, 0)
            return self._open_log(
                partition,
                config_of(partition),
                recovery_point,
                start_offset,
                compacted_ends.get(partition),
                clean=self.clean,
                closed=closed.get(partition),
                transaction_index_sizes=index_sizes.get(partition),
                on_cut=self.boot_note.note_cut,
            )

        self._found = None
        self._logs.replace(self._open_all(live, open_one))
        # Recovery points that a cut lowered must be on the disk before anything is appended.
        self.checkpoints.store_recovered(recovery_points)
        self.late_writes = LateWrites(self.logs.values(), self._events)
        self._disk.remove(self.path / CLEAN_SHUTDOWN_FILE)
        self.checkpoints.remove_log_ends()
        self._disk.sync_directory(self.path)
        self.remove_deleted()
        reports = [log.recovery_report for log in self.logs.values()]
        self._events.info(
            "log_directory_loaded",
            logs=len(reports),
            clean=self.clean,
            checked_logs=sum(report.scanned for report in reports),
            checked_bytes=sum(report.checked_size for report in reports),
        )
        return self.logs

    def _open_all(
        self, partitions: Sequence[TopicPartition], open_one: Callable[[TopicPartition], Log]
    ) -> dict[TopicPartition, Log]:
        """Open logs in several threads. Raises StorageError, and then none stays open."""
        opened: dict[TopicPartition, Log] = {}
        failures: list[StorageError] = []

        remaining = iter(partitions)  # shared: each thread takes the next, which is one step in CPython

        def work() -> None:
            for partition in remaining:
                try:
                    opened[partition] = open_one(partition)
                except StorageError as error:
                    failures.append(error)

        threads = min(self._recovery_threads, len(partitions)) or 1
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as executor:
            done = [executor.submit(work) for _ in range(threads)]
        for each in done:
            each.result()
        if failures:
            for log in opened.values():
                log.abandon()
            raise failures[0]
        return {partition: opened[partition] for partition in partitions}

    def create_log(self, topic_partition: TopicPartition, topic_id: TopicId | None, config: LogConfig) -> Log:
        """As `create_logs` for one. Raises StorageError, also when there is one already."""
        failed = self.create_logs([NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)])
        if failed:
            raise failed[topic_partition]
        return self.logs[topic_partition]

    def create_logs(self, wanted: Sequence[NewLog]) -> dict[TopicPartition, StorageError]:
        """Make the directories and the empty logs of partitions, with one sync of the root for all; those
        that could not be made, and why, be it that there is one already. Raises StorageError when all failed.
        """
        made: dict[TopicPartition, Log] = {}
        failed: dict[TopicPartition, StorageError] = {}
        for new in wanted:
            try:
                made[new.topic_partition] = self._create(new)
            except StorageError as error:
                failed[new.topic_partition] = error
        self._disk.sync_directory(self.path)
        self._logs.put(*made.values())
        self.checkpoints.forget_earlier(made)
        return failed

    def _create(self, new: NewLog) -> Log:
        path = self.path / str(new.topic_partition)
        if new.topic_partition in self.logs or self._disk.exists(path):
            raise StorageError(f"{path} exists already")
        log = self._open_log(new.topic_partition, new.config, 0, 0, None, clean=True)
        if new.topic_id is not None:
            log.assign_topic_id(new.topic_id)
        return log

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Take a log out of use at once; `remove_deleted` frees its space after its `file.delete.delay.ms`.
        Raises StorageError.
        """
        log = self._take_out(topic_partition)
        self._discard(log.directory, due_ms=self._clock.monotonic_ms() + log.config.file_delete_delay_ms)

    def set_aside(self, topic_partition: TopicPartition) -> Path:
        """Take a log out of use, durably, but keep it under the name of a stray one; where. Raises
        StorageError.
        """
        self.logs[topic_partition].flush()
        path = self.path / stray_directory_name(topic_partition)
        self._rename(self._take_out(topic_partition), path)
        return path

    # Moving a log between roots; every step blocks and raises StorageError

    def begin_future(self, of: Log, start_offset: int) -> Log:
        """Make the empty copy of a log that is to move in; it begins at `start_offset`."""
        name = future_directory_name(of.topic_partition)
        log = self._open_log(of.topic_partition, of.config, 0, start_offset, None, clean=True, name=name)
        if of.topic_id is not None:
            log.assign_topic_id(of.topic_id)
        if of.compacted_end is not None:
            log.compacted_to(of.compacted_end)
        self._disk.sync_directory(self.path)
        self._futures.put(log)
        return log

    def drop_future(self, topic_partition: TopicPartition) -> None:
        """Give a copy up; harmless when there is none."""
        log = self._futures.take(topic_partition)
        if log is not None:
            log.abandon()
            self._discard(log.directory, due_ms=0)

    def prepare_future(self, topic_partition: TopicPartition, of: Log) -> None:
        """Take over what batches do not tell, and make the copy durable: from here on a crash may find it
        to be all there is.
        """
        future = self.futures[topic_partition]
        future.advance_start(of.log_start_offset)
        future.producers.take_over(of.producers)
        if future.compacted_end is not None:
            self.checkpoints.store_compaction()
        future.flush()
        self.checkpoints.store_offsets()

    def withdraw_log(self, topic_partition: TopicPartition) -> Path:
        """Take a log out of use, durably, whose copy is complete; the directory to discard or put back."""
        path = self.path / deleted_directory_name(topic_partition)
        self._rename(self._take_out(topic_partition), path)
        return path

    def put_back_log(self, of: Log, path: Path) -> None:
        """Undo `withdraw_log`: the log is opened anew."""
        self._disk.rename(path, of.directory)
        self._disk.sync_directory(self.path)
        log = self._open_log(
            of.topic_partition,
            of.config,
            of.recovery_point,
            of.log_start_offset,
            of.compacted_end,
            clean=False,
        )
        self._logs.put(log)

    def discard(self, path: Path) -> None:
        """Free the space of what `withdraw_log` returned."""
        self._removable.add([path], due_ms=0)

    def adopt_future(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        """Let the copy be the log from now on."""
        future = self._futures.take(topic_partition)
        assert future is not None, "there is a copy to adopt"
        closed = future.close()
        self.promote(topic_partition, future.directory.name)
        log = self._open_log(
            topic_partition,
            config,
            future.log_end_offset,
            future.log_start_offset,
            future.compacted_end,
            clean=True,
            closed=closed,
        )
        self._logs.put(log)
        self.checkpoints.store_offsets()

    def promote(self, topic_partition: TopicPartition, name: str) -> None:
        """Give the directory of a complete copy the name of a log, durably."""
        self._found = None
        self._disk.rename(self.path / name, self.path / str(topic_partition))
        self._disk.sync_directory(self.path)

    def remove_directory(self, name: str) -> None:
        """Remove what is left of an interrupted move."""
        self._found = None
        remove_partition_directory(self._disk, self.path / name)

    def _take_out(self, topic_partition: TopicPartition) -> Log:
        """Let a log be in use no longer."""
        log = self._logs.take(topic_partition)
        assert log is not None, "there is a log to take out"
        log.abandon()
        return log

    def _rename(self, log: Log, path: Path) -> None:
        self._disk.rename(log.directory, path)
        self._disk.sync_directory(self.path)

    def _discard(self, directory: Path, *, due_ms: int) -> None:
        partition = parse_directory_name(directory.name)
        assert partition is not None, "made by this module"
        removable = self.path / deleted_directory_name(partition.topic_partition)
        self._disk.rename(directory, removable)
        self._removable.add([removable], due_ms=due_ms)

    def remove_deleted(self, now_ms: int | None = None) -> int:
        """Free the space of logs and segments taken out of use, of those that are due at `now_ms` (monotonic;
        None: of all); how many files and directories went. Blocks; any thread. Raises StorageError.
        """
        removable = self._removable.take(now_ms)
        for path in removable:
            remove_partition_directory(self._disk, path)
        return len(removable) + sum(
            log.files.remove_deleted(now_ms) for log in self.logs.values() if log.files.awaits_removal
        )

    def space(self) -> Space:
        """The size of the root's file system, and what is free on it. Raises StorageError."""
        return self._disk.space(self.path)

    def close(self, *, as_clean: bool = True) -> None:
        """Flush and close every log, mark the end as clean where it is to count `as_clean`, and let the root
        go. Blocks. Raises StorageError: then it was not clean.
        """
        try:
            for future in self.futures.values():
                future.abandon()
            with ThreadPoolExecutor(self._recovery_threads, thread_name_prefix="log-close") as executor:
                closed = dict(zip(self.logs, executor.map(Log.close, self.logs.values()), strict=True))
            self.remove_deleted()
            self.checkpoints.store_offsets()
            ends = {partition: end for partition, end in closed.items() if end is not None}
            self.checkpoints.store_log_ends(ends)
            if as_clean and not any(log.failed for log in self.logs.values()):
                self._disk.write_file(self.path / CLEAN_SHUTDOWN_FILE, b"")
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Let everything go as it is: the end will count as a crash. For a disk that failed. Raises
        StorageError.
        """
        try:
            for log in self._all_logs():
                log.abandon()
        finally:
            self._lock.release()

    def _open_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        recovery_point: int,
        log_start_offset: int,
        compacted_end: int | None,
        *,
        clean: bool,
        closed: ClosedLog | None = None,
        transaction_index_sizes: IndexSizes | None = None,
        on_cut: Callable[[], None] = lambda: None,
        name: str | None = None,
    ) -> Log:
        log = open_log(
            self._disk,
            self.path / (name or str(partition)),
            config,
            self._clock,
            topic_partition=partition,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            closed=closed,
            transaction_index_sizes=transaction_index_sizes,
            watch=self.flush_watch,
            pool=self._pool,
            cache=self._cache,
            compacted_end=compacted_end,
            on_recovery_point_lowered=self.checkpoints.store_offsets,
            on_gap=self.checkpoints.store_compaction,
            on_cut=on_cut,
        )
        tell(self._events, log)
        return log
