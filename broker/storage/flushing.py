"""What of a log is durable: the recovery point, and the flushes that move it.

A flush blocks on the disk and may run in any thread; flushes of one log take turns, so that the names which
one has taken to sync are synced before another can call anything durable. It captures the log's end and pins
the files under `lock`, syncs them without it, and takes it again to move the recovery point. The event loop's
thread holds the same lock for the moments in which it rolls, cuts or removes segments, never while anything
is synced.

The recovery point stays at a segment that was rolled while a flush ran, as its indexes are not synced yet,
and at one whose indexes wait in memory for room. A cut that comes in between keeps it where the cut has put
it. A sync that fails is never tried again, as the kernel may have dropped what it could not write: the log
takes no appends after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from broker.clock import Clock
from broker.errors import DiskFailedError, StorageError
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_config import LogConfig
from broker.storage.partition_directory import PartitionDirectory, sync_file
from broker.storage.segment import Segment

SEGMENTS_PINNED_MAX = 32
"""How many sealed segments a flush keeps open at a time."""

LogEnd = Callable[[], tuple[int, Sequence[Segment]]]
"""The log's end offset and its segments at this moment."""


@dataclass(slots=True)
class _Names:
    """What a flush must sync beside segments: producer snapshots, and the directory itself."""

    snapshots: list[Path] = field(default_factory=list)
    directory: bool = False

    def __bool__(self) -> bool:
        return self.directory or bool(self.snapshots)

    def merged(self, other: _Names) -> _Names:
        return _Names([*other.snapshots, *self.snapshots], self.directory or other.directory)


class Flushing:
    """The durable part of one log; see the module's description. Everything below `recovery_point` was
    flushed.
    """

    __slots__ = (
        "_clock",
        "_cuts",
        "_directory",
        "_failure",
        "_flushed_ms",
        "_leader_epochs",
        "_names",
        "_open",
        "_turn",
        "flushed_end",
        "lock",
        "recovery_point",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        leader_epochs: LeaderEpochs,
        clock: Clock,
        recovery_point: int,
        *,
        names_durable: bool,
    ) -> None:
        self.lock = Lock()
        self._turn = Lock()
        self.recovery_point = recovery_point
        self.flushed_end = recovery_point
        self._directory = directory
        self._leader_epochs = leader_epochs
        self._clock = clock
        self._names = _Names(directory=not names_durable)
        self._flushed_ms = clock.monotonic_ms()
        self._cuts = 0
        self._open = True
        self._failure: DiskFailedError | None = None

    @property
    def cut_count(self) -> int:
        """How often the log was cut since it was opened."""
        return self._cuts

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def closed(self) -> bool:
        """Whether the log is no longer in use."""
        return not self._open

    def check_not_failed(self) -> None:
        """Raises StorageError once a sync has failed."""
        if self._failure is not None:
            path = self._directory.path
            raise StorageError(f"{path} takes no writes after: {self._failure}") from self._failure

    @property
    def rolled(self) -> bool:
        """Whether a segment was begun that no flush has seen yet."""
        return bool(self._names.snapshots)

    def is_due(self, end: int, config: LogConfig) -> bool:
        """Whether the settings, or a roll, ask for a flush of a log that ends at `end` now; never once a sync
        has failed.
        """
        unflushed_count = end - self.flushed_end
        if not (unflushed_count or self._names.snapshots) or self.failed:
            return False
        if self._names.snapshots:
            return True
        waited_ms = self._clock.monotonic_ms() - self._flushed_ms
        return unflushed_count > 0 and (
            unflushed_count >= config.flush_messages or waited_ms >= config.flush_ms
        )

    def is_idle(self, end: int) -> bool:
        """Whether everything up to `end` was durable when the log was opened, and nothing changed since."""
        return end == self.flushed_end and not (self._names or self._cuts or self._leader_epochs.dirty)

    def names_changed(self, snapshot: Path | None = None) -> None:
        """Let the next flush sync the directory, and a producer snapshot. The caller holds the lock."""
        self._names.directory = True
        if snapshot is not None:
            self._names.snapshots.append(snapshot)

    def cut(self, end: int) -> bool:
        """The log now ends at `end`; whether that lowered the recovery point. The caller holds the lock."""
        lowered = end < self.recovery_point
        self._cuts += 1
        self.recovery_point = min(self.recovery_point, end)
        self.flushed_end = min(self.flushed_end, end)
        return lowered

    def close(self) -> None:
        """No flush has anything to do any more, nor anything to complain about."""
        with self.lock:
            self._open = False

    def flush(self, log_end: LogEnd) -> int:
        """Make durable what is in the log now; the offset up to which everything is, below the log's end only
        when the log was cut or closed meanwhile. Raises StorageError.
        """
        with self._turn:
            with self.lock:
                end, segments = log_end()
                if self._is_closed() or not segments:  # none while a log begins anew
                    return self.flushed_end
                self.check_not_failed()
                sealed = [segment for segment in self._unsynced(segments) if segment.is_sealed]
                if end <= self.flushed_end and not sealed and not self._names:
                    return self.flushed_end
                cuts = self._cuts
                active = segments[-1].log
                newest = active.pin()  # before the names are taken: it may fail, and they must not be lost
                names, self._names = self._names, _Names()
            try:
                for start in range(0, len(sealed), SEGMENTS_PINNED_MAX):
                    self._sync_sealed(sealed[start : start + SEGMENTS_PINNED_MAX], log_end)
                newest.sync()
                self._sync(names)
            except StorageError as error:
                return self._not_flushed(names, error)
            finally:
                active.release()
            with self.lock:
                if cuts == self._cuts:
                    self._flushed(end, sealed, log_end()[1])
                return self.flushed_end

    def _not_flushed(self, names: _Names, error: StorageError) -> int:
        """Raises the error, unless the log was closed and its directory moved away meanwhile."""
        if self._is_closed():
            return self.flushed_end
        with self.lock:
            self._names = self._names.merged(names)
        if isinstance(error, DiskFailedError):
            self._failure = error
        raise error

    def _unsynced(self, segments: Sequence[Segment]) -> list[Segment]:
        """Sealed segments that a flush must sync, newest first: below the recovery point there is none."""
        found = []
        for index in range(len(segments) - 2, -1, -1):
            if not segments[index].indexes_durable:
                found.append(segments[index])
            elif segments[index].base_offset < self.recovery_point:
                break
        return found

    def _sync_sealed(self, sealed: Sequence[Segment], log_end: LogEnd) -> None:
        """Sync the files of segments, but for those that were removed meanwhile. Few are pinned at a time, as
        each takes descriptors.
        """
        with ExitStack() as pins:
            with self.lock:
                current = set(log_end()[1])
                files = [
                    pins.enter_context(file)
                    for segment in sealed
                    if segment in current
                    for file in segment.files()
                ]
            for file in files:
                file.sync()

    def _sync(self, names: _Names) -> None:
        for path in names.snapshots:
            sync_file(self._directory.disk, path)
        self._leader_epochs.sync()
        if names.directory:
            self._directory.sync()

    def _flushed(self, end: int, sealed: Sequence[Segment], segments: Sequence[Segment]) -> None:
        for segment in sealed:
            segment.indexes_durable = True
        self.flushed_end = max(self.flushed_end, end)
        self._flushed_ms = self._clock.monotonic_ms()
        unsynced = [segment.base_offset for segment in self._unsynced(segments)]
        self.recovery_point = max(self.recovery_point, min([end, *unsynced]))

    def _is_closed(self) -> bool:
        return not self._open
