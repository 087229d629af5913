"""The transactions that were aborted, by the markers in one segment: its `.txnindex`, in Kafka's format.

Entry (big-endian): `version int16 = 0 | producerId int64 | firstOffset int64 | lastOffset int64 |
lastStableOffset int64`. The last offset is the abort marker's, and lies in the segment; the first may lie in
an earlier one. The last stable offset is the log's right after the marker: no transaction that is aborted
later began below it, which is what ends a search. Last offsets ascend strictly, stable ones never descend.

The file is made by the first abort: a segment without aborted transactions has no index, and so no
descriptor. An entry is written as soon as its marker is in the log and the disk has room. A crash loses
entries that were not synced; recovery makes the index anew for every segment that it scans, and for one whose
index is not `plausible` or smaller than `transaction_index_sizes` knows it. One that lost entries since it
was opened answers nothing. Owned by the event loop's thread, but for syncs of sealed ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct

from broker.errors import DiskFullError, StorageError
from broker.storage.filenames import FileKind
from broker.storage.index import SegmentIndex
from broker.storage.transactions import AbortedTransaction
from broker.types import Buffer

ENTRY_VERSION = 0


class TransactionIndex(SegmentIndex):
    """See the module's description."""

    __slots__ = ()

    entry = Struct(">hqqqq")

    @classmethod
    def beside(cls, other: SegmentIndex) -> TransactionIndex:
        """The one of the same segment as `other`, and in the same state of its life by its file's suffix."""
        path = other.file.path
        offset, _, *state = path.name.split(".")
        name = ".".join([offset, FileKind.TRANSACTION_INDEX.value, *state])
        return cls(other._pool, other._cache, path.parent, name, other.base_offset)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry, in the file before this returns, if the disk has room. Raises StorageError."""
        self._append(self.entry.pack(ENTRY_VERSION, *aborted))
        with suppress(DiskFullError):  # it waits on, as its marker is stored
            self.write_out()

    @property
    def size(self) -> int:
        """Bytes of all entries, in the file or yet to be written. Any thread."""
        active = self._active
        return self._written if active is None else len(active)

    def remove(self) -> None:
        """Close and remove the file, if there is one. Raises StorageError."""
        self.retire()
        self._pool.disk.remove(self.file.path)

    def transactions(self, start: int = 0) -> Iterator[AbortedTransaction]:
        """Those whose marker is at or after offset `start`, in the order of their markers."""
        entries, size = self.entries(), self.entry.size
        for at in range(self.count_below(start) * size, len(entries), size):
            yield _unpacked(entries, at)

    def count_below(self, offset: int) -> int:
        """How many entries have their marker below `offset`."""
        entries, unpack, size = self.entries(), self.entry.unpack_from, self.entry.size
        return bisect_left(range(len(entries) // size), offset, key=lambda i: unpack(entries, i * size)[3])

    def plausible(self, end_offset: int) -> bool:
        """Whether every entry can be of a segment that ends at `end_offset`, and they are in order."""
        last, stable = self.base_offset - 1, 0
        entries, size = self.entries(), self.entry.size
        for at in range(0, len(entries), size):
            found = _unpacked(entries, at)
            if (
                self.entry.unpack_from(entries, at)[0] != ENTRY_VERSION
                or not last < found.last_offset < end_offset
                or not 0 <= found.first_offset < found.last_offset
                or found.last_stable_offset < stable
            ):
                return False
            last, stable = found.last_offset, found.last_stable_offset
        return True

    def _load(self) -> bytes:
        """As of any index. Raises StorageError when the file has become smaller: what it lost would be read
        as committed.
        """
        data = super()._load()
        if len(data) < self._written - self._written % self.entry.size:
            raise StorageError(
                f"{self.file.path} has {len(data)} bytes and had {self._written}: a start of the node makes "
                "it anew"
            )
        return data


def overlapping(indexes: Iterable[TransactionIndex | None], start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records or a marker from offset `start` up to, not including, `end`.

    `indexes` are those of the segments from the one that holds `start` on, in their order. Raises
    StorageError.
    """
    found = []
    for index in indexes:
        if index is None:
            continue
        for aborted in index.transactions(start):
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return found
    return found


def entries_in(data: bytes) -> Iterator[AbortedTransaction]:
    """The whole entries in a file's bytes, whatever they say."""
    size = TransactionIndex.entry.size
    for at in range(0, len(data) - size + 1, size):
        yield _unpacked(data, at)


def _unpacked(entries: Buffer, at: int) -> AbortedTransaction:
    _, producer_id, first_offset, last_offset, last_stable_offset = TransactionIndex.entry.unpack_from(
        entries, at
    )
    return AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)
