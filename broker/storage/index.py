"""The two sparse indexes of a segment, in Kafka's file formats.

Offset index: `relativeOffset int32 | position int32` per entry: the last offset of a batch, less the
segment's base offset, and where in the log that batch begins. Time index: `timestamp int64 | relativeOffset
int32`: the largest timestamp so far and the last offset of the batch that has it. Both ascend strictly.

In memory the entries are the very bytes of the file, searched by bisection. An index that is being appended
to holds them in a bytearray and writes them with pwrite, some at a time (`WRITE_OUT_BYTES`), at a roll and at
a close; a sealed one is read through `IndexCache`, which is bounded in bytes. Nothing is mapped into memory:
a mapping costs a descriptor, and a bad disk would end the process by SIGBUS. Nothing is preallocated either:
Kafka does that because it maps, and reads a trimmed file just as well.

A crash loses entries not yet written, or any not yet synced; recovery rebuilds the index of every segment
that it scans. An index whose end contradicts its log is found when it is loaded (`plausible`), and whoever
looks up verifies what it finds.

Owned by the event loop's thread; a flush syncs the files of sealed indexes only, which no longer change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import closing, suppress
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import ClassVar, NamedTuple
from zlib import crc32

from broker.errors import DiskFullError
from broker.storage.open_files import FilePool
from broker.types import Buffer

WRITE_OUT_BYTES = 4096
"""Entries that may wait in memory: about 2 MB of log under the default interval. Each index writes them out
at its own figure between half of this and all. Else partitions that fill alike made their files at one
moment, which takes half a millisecond each where a file system has deleted many files lately.
"""
CACHE_BYTES_MAX = 64 << 20
RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""How far a segment's offsets may lie above its base: entries hold 32 bits."""


class OffsetEntry(NamedTuple):
    """The last offset of a batch, and the position in bytes where the batch begins."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """The largest timestamp (ms) up to and including the batch that ends at `offset`."""

    timestamp: int
    offset: int


class IndexCache:
    """Entries of sealed indexes, least recently used first out; bounded in bytes. Any thread."""

    def __init__(self, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def get(self, index: Hashable, load: Callable[[], bytes]) -> bytes:
        """The bytes of an index, loaded on a miss. One over the bound is returned but not kept."""
        with self._lock:
            if (found := self._entries.get(index)) is not None:
                self._entries.move_to_end(index)
                return found
        loaded = load()
        with self._lock:
            self._drop(index)
            if len(loaded) <= self._bytes_max:
                self._entries[index] = loaded
                self.size += len(loaded)
            while self.size > self._bytes_max:
                _, dropped = self._entries.popitem(last=False)
                self.size -= len(dropped)
        return loaded

    def drop(self, index: Hashable) -> None:
        """Forget an index that changed or went."""
        with self._lock:
            self._drop(index)

    def _drop(self, index: Hashable) -> None:
        if (dropped := self._entries.pop(index, None)) is not None:
            self.size -= len(dropped)


class SegmentIndex:
    """What all kinds share: entries of one fixed size in memory and in a file.

    One that is appended to is taken into memory by the first append, so that an idle log costs none.
    """

    __slots__ = ("_active", "_cache", "_is_blank", "_pool", "_waiting_max", "_written", "base_offset", "file")

    entry: ClassVar[Struct]

    def __init__(
        self, pool: FilePool, cache: IndexCache, directory: Path, name: str, base_offset: int
    ) -> None:
        self.file = pool.file(directory, name, create=True)
        self.base_offset = base_offset
        self._pool = pool
        self._cache = cache
        self._active: bytearray | None = None
        self._written = 0
        self._waiting_max = WRITE_OUT_BYTES - crc32(f"{directory.name}/{name}".encode()) % (
            WRITE_OUT_BYTES // 2
        )
        self._is_blank = False

    @property
    def active(self) -> bool:
        """Whether the entries are in memory, to be appended to."""
        return self._active is not None

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.entries()) // self.entry.size

    def full(self, size_max: int) -> bool:
        """Whether a file of `size_max` bytes would have room for one more entry only; takes an index that is
        to be appended to into memory.
        """
        if self._active is None:
            self.activate()
        assert self._active is not None
        return len(self._active) + 2 * self.entry.size > size_max

    @property
    def stored_size(self) -> int:
        """Bytes in the file, of an index that was appended to and then sealed."""
        return self._written

    def resume(self, stored_size: int) -> None:
        """Be the index of an active segment whose file is complete, of so many bytes; nothing is read."""
        self._written = stored_size

    def note_blank(self) -> None:
        """There is nothing in the file, or none, so that the next `start_over` has none to empty."""
        self._is_blank = True

    def entries(self) -> Buffer:
        """The entries as in the file."""
        if self._active is not None:
            return self._active
        return self._cache.get(self, self._load)

    def activate(self) -> None:
        """Take the entries into memory, to be appended to."""
        if self._active is None:
            self._active = bytearray(self._load())
            self._written = len(self._active)
            self._cache.drop(self)

    def start_over(self, entries: bytearray | None = None) -> None:
        """Begin an empty index, or one of other entries; the file is emptied, and made at the next write."""
        self._active = bytearray() if entries is None else entries
        self._written = 0
        self._cache.drop(self)
        if not self._is_blank and self._pool.disk.exists(self.file.path):
            with closing(self.file.open_apart()) as file:
                file.truncate(0)
        self._is_blank = False

    def write_out(self) -> None:
        """Write the entries that the file does not have yet. Raises StorageError."""
        if self._active is None:
            return
        start, waiting = self._written, bytes(self._active[self._written :])
        with self.file as file:
            if waiting:
                self._is_blank = False
                file.pwrite(waiting, start)
        self._written += len(waiting)

    def seal(self) -> None:
        """Write everything and leave memory to the cache. Raises StorageError."""
        self.write_out()
        self._active = None

    def keep(self, count: int) -> None:
        """Cut the index to its first `count` entries. Raises StorageError."""
        self.activate()
        assert self._active is not None
        size = count * self.entry.size
        if size >= len(self._active):
            return
        del self._active[size:]
        self._written = min(self._written, size)
        with self.file as file:
            file.truncate(self._written)

    def retire(self) -> None:
        """Close the file and forget the entries."""
        self._cache.drop(self)
        self.file.retire()

    def _append(self, packed: bytes) -> None:
        if self._active is None:
            self.activate()
        assert self._active is not None
        self._active += packed
        if len(self._active) - self._written >= self._waiting_max:
            with suppress(DiskFullError):  # they wait on: the batch they point to is stored
                self.write_out()

    def _load(self) -> bytes:
        """The file's whole entries; a torn one at the end does not count."""
        with self.file as file:
            data = file.pread(file.size(), 0)
        return data[: len(data) - len(data) % self.entry.size]


class OffsetIndex(SegmentIndex):
    """Offset -> position."""

    __slots__ = ()

    entry = Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends at `offset` and begins at `position`."""
        self._append(self.entry.pack(offset - self.base_offset, position))

    def floor(self, offset: int) -> OffsetEntry | None:
        """The last entry whose offset is not above `offset`."""
        entries, unpack = self.entries(), self.entry.unpack_from
        relative = offset - self.base_offset
        at = bisect_right(range(len(entries) // 8), relative, key=lambda i: unpack(entries, i * 8)[0])
        return self._entry(entries, at - 1) if at else None

    def floor_position(self, position: int) -> OffsetEntry | None:
        """The last entry whose position is not above `position`."""
        entries, unpack = self.entries(), self.entry.unpack_from
        at = bisect_right(range(len(entries) // 8), position, key=lambda i: unpack(entries, i * 8)[1])
        return self._entry(entries, at - 1) if at else None

    def last(self) -> OffsetEntry | None:
        entries = self.entries()
        return self._entry(entries, len(entries) // 8 - 1) if entries else None

    def count_below(self, position: int) -> int:
        """How many entries point to batches that begin before `position`."""
        entries, unpack = self.entries(), self.entry.unpack_from
        return bisect_left(range(len(entries) // 8), position, key=lambda i: unpack(entries, i * 8)[1])

    def plausible(self, log_size: int) -> bool:
        """Whether the first and last entries fit each other and a log of `log_size` bytes."""
        entries = self.entries()
        if not entries:
            return True
        first, last = self._entry(entries, 0), self._entry(entries, len(entries) // 8 - 1)
        in_order = self.base_offset <= first.offset <= last.offset and 0 <= first.position <= last.position
        return in_order and last.position < log_size

    def _entry(self, entries: Buffer, at: int) -> OffsetEntry:
        relative, position = self.entry.unpack_from(entries, at * 8)
        return OffsetEntry(self.base_offset + relative, position)


class TimeIndex(SegmentIndex):
    """Timestamp -> offset."""

    __slots__ = ("_last_timestamp",)

    entry = Struct(">qi")

    def __init__(
        self, pool: FilePool, cache: IndexCache, directory: Path, name: str, base_offset: int
    ) -> None:
        super().__init__(pool, cache, directory, name, base_offset)
        self._last_timestamp = -1

    def activate(self) -> None:
        super().activate()
        self._note_last()

    def start_over(self, entries: bytearray | None = None) -> None:
        super().start_over(entries)
        self._note_last()

    def keep(self, count: int) -> None:
        super().keep(count)
        self._note_last()

    def _note_last(self) -> None:
        last = self.last()
        self._last_timestamp = last.timestamp if last else -1

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one has this timestamp or a later one; -1 is no timestamp."""
        if self._active is None:
            self.activate()
        if timestamp > self._last_timestamp:
            self._last_timestamp = timestamp
            self._append(self.entry.pack(timestamp, offset - self.base_offset))

    def before(self, timestamp: int) -> TimeEntry | None:
        """The last entry whose timestamp is below `timestamp`: nothing up to its offset is as late as
        that.
        """
        entries, unpack = self.entries(), self.entry.unpack_from
        at = bisect_left(range(len(entries) // 12), timestamp, key=lambda i: unpack(entries, i * 12)[0])
        return self._entry(entries, at - 1) if at else None

    def last(self) -> TimeEntry | None:
        entries = self.entries()
        return self._entry(entries, len(entries) // 12 - 1) if entries else None

    def count_below(self, offset: int) -> int:
        """How many entries point to offsets below `offset`."""
        entries, unpack = self.entries(), self.entry.unpack_from
        relative = offset - self.base_offset
        return bisect_left(range(len(entries) // 12), relative, key=lambda i: unpack(entries, i * 12)[1])

    def plausible(self) -> bool:
        """Whether the first and last entries fit each other."""
        entries = self.entries()
        if not entries:
            return True
        first, last = self._entry(entries, 0), self._entry(entries, len(entries) // 12 - 1)
        return first.timestamp <= last.timestamp and self.base_offset <= first.offset <= last.offset

    def _entry(self, entries: Buffer, at: int) -> TimeEntry:
        timestamp, relative = self.entry.unpack_from(entries, at * 12)
        return TimeEntry(timestamp, self.base_offset + relative)
