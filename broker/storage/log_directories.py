"""All data roots of a node: what is live, what is offline, and where a partition's log is or goes.

Roots share one pool of open files and one cache of indexes, so that what a node holds does not grow with the
number of its disks. A root whose disk fails, at the start or later, goes offline for the rest of the process
and the others go on; nothing below it is touched any more, and no clean end is marked there. A full one waits
for room; only one in which the first files of a node or of a log cannot be made goes offline at the start. A
root that is not this node's, or is in use, is no failed disk: that refuses the start. So does a partition
that two roots hold, as nobody can say which log is the right one.

A log moves between roots as a copy in a `-future` directory. Once that is complete the old log gets the name
of a deleted one, durably, and only then the copy that of a log: so a copy without any log beside it is
complete, and a start takes it for the log; beside its log it is what a crash left of a move, and
`interrupted` names it.

Blocking calls may come from any thread; `live` and `offline` are replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

from broker.clock import Clock
from broker.errors import DiskFailedError, DiskFullError, StorageError
from broker.storage.disk import Disk
from broker.storage.filenames import DirectoryState
from broker.storage.guarded_disk import GuardedDisk
from broker.storage.index import IndexCache
from broker.storage.log_directory import ConfigOf, LogDirectory
from broker.storage.open_files import FilePool
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition

_log = logger("storage")


class LogDirectories:
    """See the module's description. `on_failure` is told of each root that fails once all are loaded, in the
    thread that met the failure.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        recovery_threads: int,
        on_failure: Callable[[Path], None],
        free_bytes_min: int | None = 0,
    ) -> None:
        self._disk = GuardedDisk(disk, self._failed)
        self._clock = clock
        self._recovery_threads = recovery_threads
        self._on_failure = on_failure
        self._free_bytes_min = free_bytes_min
        self._pool = FilePool(self._disk)
        self._cache = IndexCache()
        self._lock = Lock()
        self._is_loaded = False
        self.live: Mapping[Path, LogDirectory] = {}
        self.offline: Mapping[Path, str] = {}
        self.interrupted: Mapping[TopicPartition, Path] = {}
        """Moves that a crash ended, and where to; their copies are gone."""
        self._preferred: dict[TopicPartition, Path] = {}

    def open(
        self, roots: Sequence[Path], config_of: ConfigOf, *, broker_id: BrokerId, cluster_id: str
    ) -> None:
        """Lock and recover every root. Blocks.

        Raises StorageError when a root is not this node's or in use, a partition is in two, or all roots
        are offline; then none stays open.
        """
        with ExitStack() as opened:
            for root in roots:
                self._disk.guard(root)
                try:
                    directory = LogDirectory.open(
                        self._disk,
                        root,
                        self._clock,
                        broker_id=broker_id,
                        cluster_id=cluster_id,
                        recovery_threads=self._recovery_threads,
                        pool=self._pool,
                        cache=self._cache,
                        free_bytes_min=self._free_bytes_min,
                    )
                except (DiskFailedError, DiskFullError) as error:
                    self._disk.give_up(root, error)
                    continue
                opened.callback(directory.abandon)
                self.live = {**self.live, root: directory}
            _refuse_duplicates(self.live.values())
            self._settle_moves()
            for root, directory in self.live.items():
                try:
                    directory.load(config_of)
                except (DiskFailedError, DiskFullError) as error:
                    self._disk.give_up(root, error)
                    self.release(root)
            self.require_live()
            opened.pop_all()
        self._is_loaded = True

    def find(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """The live root that holds a partition's log."""
        for directory in self.live.values():
            if topic_partition in directory.logs:
                return directory
        return None

    def may_have_lost(self) -> bool:
        """Whether records that were acknowledged may be gone since the last end: see `boot_note`. A root that
        is offline has lost all of its own, of which the controller is told. Blocks. Raises StorageError.
        """
        return any(directory.boot_note.may_have_lost() for directory in self.live.values())

    def short_logs(self) -> frozenset[TopicPartition]:
        """The partitions of which records are gone that were here: their logs were cut as they were damaged,
        end before a high watermark that was stored, or are not there. To be asked before high watermarks are
        stored again. Blocks.
        """
        ends: dict[TopicPartition, int] = {}
        known: dict[TopicPartition, int] = {}
        cut: set[TopicPartition] = set()
        for directory in self.live.values():
            known |= directory.checkpoints.read_high_watermarks()
            for partition, log in directory.logs.items():
                ends[partition] = log.log_end_offset
                if log.recovery_report.cut_size:
                    cut.add(partition)
        return frozenset(
            cut | {partition for partition, end in known.items() if ends.get(partition, 0) < end}
        )

    def may_be_empty(self) -> bool:
        """Whether a root may be in the place of another that had everything. Blocks. Raises StorageError."""
        return any(directory.boot_note.may_be_empty() for directory in self.live.values())

    def lacks(self, topic_partition: TopicPartition) -> bool:
        """Whether there is no record of the partition, nor ever was one in its log."""
        directory = self.find(topic_partition)
        return directory is None or directory.logs[topic_partition].log_end_offset == 0

    def note_boot(self, *, is_complete: bool = True) -> None:
        """Nobody counts on what may have been lost: note that what comes is kept until the machine ends.
        Unless that `is_complete`, roots that may be empty are noted as such. Blocks. Where the disk refuses,
        the next unclean end counts as a loss.
        """
        for root, directory in self.live.items():
            note = directory.boot_note
            try:
                if not is_complete and note.may_be_empty():
                    note.write_incomplete()
                else:
                    note.write()
            except StorageError as error:
                _log.warning("boot_not_noted", log_directory=str(root), reason=str(error))

    def place(
        self, topic_partition: TopicPartition, *, is_new: bool, placed: Mapping[Path, int]
    ) -> LogDirectory:
        """The live root with the fewest logs, those with room first, for one that is to be made; `placed`
        says how many others are to be made in each.

        Raises DiskFailedError when there is none, and for a partition that is not new while a root is
        offline: its log may be there, and an empty one must not take its place.
        """
        self.require_live()
        if self.offline and not is_new:
            roots = ", ".join(map(str, self.offline))
            raise DiskFailedError(f"the log of {topic_partition} may be in {roots}, which is offline")
        preferred = self.live.get(self._preferred.pop(topic_partition, Path()))
        return preferred or min(
            self.live.values(),
            key=lambda each: (each.free_space.is_full, len(each.logs) + placed.get(each.path, 0)),
        )

    def prefer(self, topic_partition: TopicPartition, root: Path) -> None:
        """Make the log of a partition that is not here yet in `root`, when it comes."""
        self._preferred[topic_partition] = root

    def _settle_moves(self) -> None:
        """See the module's description. Raises StorageError."""
        logs = {partition for directory in self.live.values() for partition in directory.stored()}
        for root, directory in self.live.items():
            for partition, name in directory.stored(DirectoryState.FUTURE).items():
                if partition in logs:
                    directory.remove_directory(name)
                    self.interrupted = {**self.interrupted, partition: root}
                elif not self.offline:
                    directory.promote(partition, name)
                    logs.add(partition)
                    _log.info("log_move_completed", partition=str(partition), log_directory=str(root))

    def release(self, root: Path) -> None:
        """Let the files and the lock of a root that went offline go, as far as its disk allows. Blocks."""
        with self._lock:
            live = dict(self.live)
            directory = live.pop(root, None)
            self.live = live
        if directory is not None:
            try:
                directory.abandon()
            except StorageError as error:
                _log.warning("log_directory_not_released", log_directory=str(root), reason=str(error))

    def close(self) -> None:
        """Flush and close what is live, each root marked as clean if it ended so. Blocks."""
        for root, directory in self.live.items():
            try:
                directory.close(as_clean=directory.boot_note.allows_clean_end())
            except StorageError as error:
                _log.error("log_directory_not_closed", log_directory=str(root), reason=str(error))

    def _failed(self, root: Path, error: StorageError) -> None:
        with self._lock:
            self.offline = {**self.offline, root: str(error)}
        _log.error("log_directory_offline", log_directory=str(root), reason=str(error))
        if self._is_loaded:
            self._on_failure(root)

    def require_live(self) -> None:
        """Raises DiskFailedError when every root is offline."""
        if not self.live:
            reasons = "; ".join(f"{root}: {reason}" for root, reason in self.offline.items())
            raise DiskFailedError(f"every log directory is offline: {reasons}")


def _refuse_duplicates(directories: Iterable[LogDirectory]) -> None:
    """Raises StorageError that names every partition with a log in more than one root."""
    places: dict[TopicPartition, list[Path]] = {}
    for directory in directories:
        for partition in directory.stored():
            places.setdefault(partition, []).append(directory.path / str(partition))
    problems = [
        f"{partition} is in {' and in '.join(map(str, found))}"
        for partition, found in sorted(places.items())
        if len(found) > 1
    ]
    if problems:
        raise StorageError(
            f"{'; '.join(problems)}: keep the directory of the right one and move the other away"
        )
