"""Which leader epoch began at which offset: how a follower finds where its log parts from a new leader's.

Entries ascend in both epoch and offset. They are kept in `leader-epoch-checkpoint`, which is replaced at each
change. A change is not synced on its own: batches carry their epoch, so recovery restores the entries of what
was not flushed, and a flush of the log syncs this file before the recovery point moves. What a full disk does
not take waits in memory until then. Owned by the event loop's thread, but for `sync`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from broker.errors import DiskFullError, StorageError
from broker.storage.checkpoints import EpochStart, decode_leader_epochs, read_if_any, write_leader_epochs
from broker.storage.disk import Disk

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEnd(NamedTuple):
    """The newest epoch not above the one asked for, and the offset where it ends (exclusive); both -1 when
    unknown.
    """

    epoch: int
    end_offset: int


class LeaderEpochs:
    """See the module's description."""

    __slots__ = ("_disk", "_entries", "_gathers", "_path", "_writing", "dirty", "latest", "waits_for_room")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._entries: list[EpochStart] = []
        self._gathers = False
        self.latest = NO_EPOCH
        self.dirty = False
        self.waits_for_room = False
        self._writing = Lock()

    def load(self) -> None:
        """Read the file. Raises StorageError when it is malformed, or empty: then a crash may have kept it
        from being written.
        """
        data = read_if_any(self._disk, self._path)
        if data == b"":
            raise StorageError(f"{self._path}: is empty")
        self._set([] if data is None else decode_leader_epochs(data, self._path))

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`. Entries that contradict it go; an epoch known already
        stays as it is.
        """
        if epoch < 0 or epoch == self.latest:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace([*kept, EpochStart(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ends in this log, as OffsetForLeaderEpoch answers it. Never beyond the log's end,
        though an append that failed may have left entries there.
        """
        if epoch < 0 or epoch > self.latest or not self._entries:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end = min(self._entries[after].start_offset, log_end_offset)
        return EpochEnd(self._entries[after - 1].epoch if after else epoch, end)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, NO_EPOCH when unknown."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else NO_EPOCH

    def cut_end(self, offset: int) -> None:
        """Forget epochs that began at or after `offset`: the log was cut there."""
        if self._entries and self._entries[-1].start_offset >= offset:
            self._replace([entry for entry in self._entries if entry.start_offset < offset])

    def cut_start(self, offset: int) -> None:
        """Forget epochs that ended at or before `offset`; the one that holds it begins there now."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if after and self._entries[0].start_offset < offset:
            held = EpochStart(self._entries[after - 1].epoch, offset)
            self._replace([held, *self._entries[after:]])

    def restore(self, entries: Sequence[EpochStart]) -> None:
        """Let these be all, as the batches of the log say."""
        self._replace(list(entries))

    def clear(self) -> None:
        if self._entries:
            self._replace([])

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Replace the file once for all changes within, and not at all when they lead back to what it holds:
        so it is with nearly every log that is checked after a crash. Raises StorageError.
        """
        before, self._gathers = self._entries, True
        try:
            yield
        finally:
            self._gathers = False
        if self._entries != before:
            self._write_if_room()

    def settle(self) -> None:
        """Write what waited for room. Raises StorageError, DiskFullError when there is still none."""
        if self.waits_for_room:
            self._write()

    def sync(self) -> None:
        """Make the entries durable. Any thread. Raises StorageError."""
        if not self.dirty:
            return
        self.settle()
        self.dirty = False
        file = self._disk.open(self._path)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self._path.parent)

    def _replace(self, entries: list[EpochStart]) -> None:
        self._set(entries)
        if not self._gathers:
            self._write_if_room()
        self.dirty = True  # only now: a flush meanwhile has synced the file that was there before

    def _write_if_room(self) -> None:
        with suppress(DiskFullError):
            self._write()

    def _write(self) -> None:
        with self._writing:
            try:
                write_leader_epochs(self._disk, self._path, self._entries, durable=False)
            except DiskFullError:
                self.waits_for_room = True
                raise
            self.waits_for_room = False

    def _set(self, entries: list[EpochStart]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else NO_EPOCH
