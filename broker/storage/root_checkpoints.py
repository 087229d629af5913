"""What a data root stores of all its logs together: recovery points, log start offsets, high watermarks, how
far compaction came, which segments have an index of aborted transactions, and the ends that a clean end
notes.

A lost or damaged checkpoint costs a longer scan, not data, and is logged. Only that of compaction is not
taken for empty: it names every log that may have gaps in its offsets, before it has any, so while it is
damaged all of them may.

Everything blocks on the disk and may run in any thread; what is stored is looked at under the lock, so that
nothing older replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from structlog.typing import FilteringBoundLogger

from broker.errors import DiskFullError, StorageError
from broker.storage.checkpoints import read_offsets, write_offsets
from broker.storage.closed_logs import ClosedLog, read_closed_logs, write_closed_logs
from broker.storage.disk import Disk
from broker.storage.filenames import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_ENDS_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    TRANSACTION_INDEX_SIZES_FILE,
)
from broker.storage.log import Log
from broker.storage.transaction_index_sizes import (
    IndexSizes,
    index_sizes,
    read_index_sizes,
    write_index_sizes,
)
from broker.types import TopicPartition

CurrentLogs = Callable[[], Sequence[Log]]
"""The root's logs at this moment."""

Offsets = Mapping[TopicPartition, int]


class RootCheckpoints:
    """See the module's description."""

    def __init__(self, disk: Disk, path: Path, logs: CurrentLogs, events: FilteringBoundLogger) -> None:
        self._disk = disk
        self._path = path
        self._logs = logs
        self._events = events
        self._lock = Lock()
        self._stored: dict[str, Offsets] = {}
        self._stored_index_sizes: Mapping[TopicPartition, IndexSizes] | None = None
        self._named: set[TopicPartition] = set()
        self._compacted: Offsets = {}

    # Reading, before logs are opened

    def read_recovery_points(self) -> Offsets:
        return self._read_named(RECOVERY_POINT_FILE)

    def read_start_offsets(self) -> Offsets:
        return self._read_named(LOG_START_OFFSET_FILE)

    def read_compacted_ends(self, live: Iterable[TopicPartition]) -> Offsets:
        """Up to where logs are compacted; of all that are `live`, when that was damaged."""
        try:
            self._compacted = read_offsets(self._disk, self._path / CLEANER_OFFSET_FILE)
        except StorageError as error:
            self._ignored(error)
            self._compacted = dict.fromkeys(live, 0)
        return self._compacted

    def read_log_ends(self) -> Mapping[TopicPartition, ClosedLog]:
        """What the last clean end noted of each log."""
        try:
            return read_closed_logs(self._disk, self._path / LOG_ENDS_FILE)
        except StorageError as error:
            self._ignored(error)
            return {}

    def read_transaction_index_sizes(self) -> Mapping[TopicPartition, IndexSizes]:
        """The sizes that indexes of aborted transactions have at least."""
        try:
            return read_index_sizes(self._disk, self._path / TRANSACTION_INDEX_SIZES_FILE)
        except StorageError as error:
            self._ignored(error)
            return {}

    def read_high_watermarks(self) -> Offsets:
        """The high watermarks stored last; none when the checkpoint was lost or damaged."""
        return self._read(HIGH_WATERMARK_FILE)

    def _read_named(self, name: str) -> Offsets:
        offsets = self._read(name)
        self._named |= offsets.keys()
        return offsets

    def _read(self, name: str) -> Offsets:
        try:
            return read_offsets(self._disk, self._path / name)
        except StorageError as error:
            self._ignored(error)
            return {}

    def _ignored(self, error: StorageError) -> None:
        self._events.warning("checkpoint_ignored", problem=str(error))

    # Storing, durably; each raises StorageError

    def forget_earlier(self, partitions: Iterable[TopicPartition]) -> None:
        """Let nothing that is stored of earlier logs of these names be taken for those that have them now."""
        made = set(partitions)
        if not self._named.isdisjoint(made):
            self.store_offsets()
        if not made.isdisjoint(self._compacted):
            self.store_compaction()

    def store_offsets(self) -> None:
        """Store the logs' recovery points and start offsets."""
        with self._lock:
            logs = self._logs()
            recovery_points = {log.topic_partition: log.recovery_point for log in logs}
            self._named |= recovery_points.keys()
            self._store_transaction_index_sizes(logs)  # those below the recovery points are among them
            self._store(RECOVERY_POINT_FILE, recovery_points)
            starts = {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > 0}
            self._store(LOG_START_OFFSET_FILE, starts)
            self._named = set(recovery_points)

    def store_recovered(self, earlier: Offsets) -> None:
        """As `store_offsets`, before anything is appended; `earlier` are the recovery points that are stored.
        Without room for others they go, if any of them is above what recovery left.
        """
        try:
            self.store_offsets()
        except DiskFullError as error:
            self._events.warning("checkpoint_not_stored", reason=str(error))
            points = {log.topic_partition: log.recovery_point for log in self._logs()}
            if any(point < earlier.get(partition, 0) for partition, point in points.items()):
                self._disk.remove(self._path / RECOVERY_POINT_FILE)

    def store_compaction(self) -> None:
        """Store which logs were compacted, and up to where."""
        with self._lock:
            ends = {
                log.topic_partition: log.compacted_end
                for log in self._logs()
                if log.compacted_end is not None
            }
            write_offsets(self._disk, self._path / CLEANER_OFFSET_FILE, ends)
            self._compacted = ends
            self._store_transaction_index_sizes(self._logs())

    def store_high_watermarks(self, high_watermarks: Offsets) -> None:
        with self._lock:
            self._store(HIGH_WATERMARK_FILE, high_watermarks)

    def store_log_ends(self, ends: Mapping[TopicPartition, ClosedLog]) -> None:
        """Store how a clean end left each log."""
        write_closed_logs(self._disk, self._path / LOG_ENDS_FILE, ends)

    def remove_log_ends(self) -> None:
        """Remove that note, not yet durably: from now on it is no longer true."""
        self._disk.remove(self._path / LOG_ENDS_FILE)

    def _store_transaction_index_sizes(self, logs: Iterable[Log]) -> None:
        """As `_store`; a root whose logs have none gets no file. The caller holds the lock."""
        sizes = index_sizes(logs)
        stored, self._stored_index_sizes = self._stored_index_sizes, None
        path = self._path / TRANSACTION_INDEX_SIZES_FILE
        if stored != sizes and (sizes or stored or self._disk.exists(path)):
            write_index_sizes(self._disk, path, sizes)
        self._stored_index_sizes = sizes

    def _store(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint, unless it is the one stored last. The caller holds the lock."""
        if self._stored.pop(name, None) != offsets:
            write_offsets(self._disk, self._path / name, offsets)
        self._stored[name] = offsets
