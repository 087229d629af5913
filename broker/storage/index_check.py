"""Whether the indexes of a segment tell the truth about its log.

An entry of the offset index must point to where an entry of the log begins, whose offsets do not start above
the entry's: then a scan from there misses nothing. (It may name a later offset: a follower of Kafka's indexes
several batches that came together by the last offset of all. A compressed message of magic 0 or 1 has the
offset of its last: it starts anywhere above the one before it.) An entry of the time index must have the
largest timestamp of everything up to the batch that holds its offset; in a log without timestamps it may have
any (Kafka indexes those that it drops as it converts to magic 0). Entries ascend.

The checks are fed the log's headers in one walk, so that both take one reading of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from broker.records.batch import BatchHeader
from broker.storage.disk import Disk
from broker.storage.dump_line import Damage
from broker.storage.index import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex

_PIECE_BYTES = 1 << 18
_ZEROS = bytes(_PIECE_BYTES)


class Placed(NamedTuple):
    """Where in its file an index entry is, in bytes."""

    at: int
    offset: int
    position: int
    """Of the log, for the offset index."""
    timestamp: int
    """For the time index."""


def offset_entries(data: bytes, base_offset: int) -> list[OffsetEntry]:
    """The entries of an offset index file; what is preallocated behind them does not count."""
    whole = _without_padding(data, OffsetIndex.entry.size)
    return [
        OffsetEntry(base_offset + relative, position)
        for relative, position in OffsetIndex.entry.iter_unpack(whole)
    ]


def time_entries(data: bytes, base_offset: int) -> list[TimeEntry]:
    """The entries of a time index file; what is preallocated behind them does not count."""
    whole = _without_padding(data, TimeIndex.entry.size)
    return [
        TimeEntry(timestamp, base_offset + relative)
        for timestamp, relative in TimeIndex.entry.iter_unpack(whole)
    ]


class IndexFile(NamedTuple):
    """An index as read; `size` is the file's in bytes, `data` may lack what is preallocated at its end."""

    data: bytes
    size: int


def read_index(disk: Disk, path: Path) -> IndexFile:
    """Read an index without holding the megabytes that Kafka preallocates. Raises StorageError."""
    file = disk.open(path)
    try:
        size = file.size()
        pieces = [file.pread(_PIECE_BYTES, position) for position in range(0, size, _PIECE_BYTES)]
    finally:
        file.close()
    while pieces and pieces[-1] == _ZEROS[: len(pieces[-1])]:
        pieces.pop()
    return IndexFile(b"".join(pieces), size)


def size_damage(size: int, entry_size: int) -> Iterator[Damage]:
    """A file that does not end with a whole entry."""
    if torn := size % entry_size:
        yield Damage(size - torn, f"{torn} bytes at the end are no whole entry of {entry_size} bytes")


def _without_padding(data: bytes, entry_size: int) -> bytes:
    used = len(data.rstrip(b"\0"))
    whole = -(-used // entry_size) * entry_size
    return data[: min(whole, len(data) - len(data) % entry_size)]


class OffsetIndexCheck:
    """Feed every header of the log in order to `see`, then call `finish`."""

    def __init__(self, entries: list[OffsetEntry]) -> None:
        size = OffsetIndex.entry.size
        self._entries = entries
        self._placed = sorted(
            (Placed(at * size, entry.offset, entry.position, -1) for at, entry in enumerate(entries)),
            key=lambda placed: placed.position,
        )
        self._next = 0
        self._reached = -1

    def order(self) -> Iterator[Damage]:
        """Entries that do not ascend."""
        for at, (before, entry) in enumerate(pairwise(self._entries), start=1):
            if entry.offset <= before.offset or entry.position <= before.position:
                yield Damage(
                    at * OffsetIndex.entry.size,
                    f"entry {entry.offset} -> {entry.position} follows {before.offset} -> {before.position}",
                )

    def see(self, position: int, header: BatchHeader) -> Iterator[Damage]:
        """What is wrong with the entries that point into the log's entry at `position`."""
        first_offset = header.base_offset if header.magic == 2 else self._reached + 1
        self._reached = header.last_offset
        while self._next < len(self._placed) and self._placed[self._next].position < position + header.size:
            placed = self._placed[self._next]
            self._next += 1
            if placed.position != position:
                yield Damage(placed.at, f"position {placed.position} is inside the log's entry at {position}")
            elif placed.offset < first_offset:
                yield Damage(placed.at, f"Index offset: {placed.offset}, log offset: {header.base_offset}")

    def finish(self, end_offset: int) -> Iterator[Damage]:
        """Entries that point behind the log's last offset, or were not reached because the log is damaged."""
        for placed in self._placed[self._next :]:
            yield Damage(placed.at, f"position {placed.position} lies behind what is readable of the log")
        for placed in self._placed[: self._next]:
            if placed.offset >= end_offset:
                yield Damage(
                    placed.at, f"offset {placed.offset} lies behind the log, which ends at {end_offset}"
                )


class TimeIndexCheck:
    """Feed every header of the log in order to `see`, then call `finish`."""

    def __init__(self, entries: list[TimeEntry]) -> None:
        size = TimeIndex.entry.size
        self._entries = entries
        self._placed = sorted(
            (Placed(at * size, entry.offset, -1, entry.timestamp) for at, entry in enumerate(entries)),
            key=lambda placed: placed.offset,
        )
        self._next = 0
        self._largest = -1

    @property
    def has_timestamps(self) -> bool:
        """Whether anything seen has one."""
        return self._largest >= 0

    def order(self) -> Iterator[Damage]:
        """Entries that do not ascend."""
        for at, (before, entry) in enumerate(pairwise(self._entries), start=1):
            if entry.timestamp <= before.timestamp or entry.offset < before.offset:
                yield Damage(
                    at * TimeIndex.entry.size,
                    f"entry {entry.timestamp} -> {entry.offset} "
                    f"follows {before.timestamp} -> {before.offset}",
                )

    def see(self, header: BatchHeader) -> Iterator[Damage]:
        """What is wrong with the entries whose offsets are in the log's entry with this header."""
        self._largest = max(self._largest, header.max_timestamp)
        while self._next < len(self._placed) and self._placed[self._next].offset <= header.last_offset:
            placed = self._placed[self._next]
            self._next += 1
            if placed.timestamp != self._largest and self.has_timestamps:
                yield Damage(
                    placed.at,
                    f"Index timestamp: {placed.timestamp}, log timestamp: {self._largest} "
                    f"at offset {placed.offset}",
                )

    def finish(self) -> Iterator[Damage]:
        """Entries whose offsets the log does not reach."""
        for placed in self._placed[self._next :]:
            yield Damage(placed.at, f"offset {placed.offset} lies behind what is readable of the log")
