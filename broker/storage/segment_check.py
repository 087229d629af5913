"""One segment checked as a whole: every entry of its log, and its indexes against that, in one walk.

An entry must have its checksum, offsets that rise, and records that are what its header says: a batch whose
checksum holds while its header lies is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from broker.errors import CorruptRecordsError
from broker.storage.disk import Disk, File
from broker.storage.dump_line import Damage
from broker.storage.filenames import FileKind, segment_file_name
from broker.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from broker.storage.index_check import (
    OffsetIndexCheck,
    TimeIndexCheck,
    offset_entries,
    read_index,
    size_damage,
    time_entries,
)
from broker.storage.stored_entries import StoredEntry, records_of, stored_entries
from broker.storage.transaction_check import TransactionCheck
from broker.storage.transaction_index import entries_in

_CONTROL_KEY_SIZE = 4
_MISSING = "is missing; a start of the node makes it anew"


class Severity(Enum):
    """How bad a finding is: data or what leads to it is wrong, or something is merely worth knowing."""

    DAMAGE = "damage"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding; `position` in bytes, None when it concerns the file or directory as such."""

    severity: Severity
    path: Path
    message: str
    position: int | None = None

    @classmethod
    def of(cls, path: Path, damage: Damage) -> Problem:
        return cls(severity=Severity.DAMAGE, path=path, message=damage.message, position=damage.position)


def damaged(path: Path, message: str) -> Problem:
    """A problem that makes the directory damaged."""
    return Problem(severity=Severity.DAMAGE, path=path, message=message)


def noted(path: Path, message: str) -> Problem:
    """A problem that does not."""
    return Problem(severity=Severity.NOTE, path=path, message=message)


@dataclass(slots=True)
class SegmentTally:
    """What a segment was found to hold."""

    next_offset: int
    entries: int = 0
    records: int = 0
    leader_epoch: int = -1
    """The largest of its batches."""
    is_readable: bool = True
    """Whether every entry could be told from the next, so that `next_offset` is where the segment ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToCheck:
    """A segment and how to look at it. `being_written`: a node may be appending to it right now;
    `sealed`: a node has written all of its indexes.
    """

    disk: Disk
    directory: Path
    base_offset: int
    deep: bool
    being_written: bool
    sealed: bool
    on_bytes: Callable[[int], None]
    transactions: TransactionCheck
    """The partition's, which saw the segments before."""

    def path(self, kind: FileKind) -> Path:
        return self.directory / segment_file_name(self.base_offset, kind)


def check_segment(segment: SegmentToCheck) -> Generator[Problem, None, SegmentTally]:
    """Every problem of log and indexes; returns what was found. Raises StorageError when the log cannot be
    read.
    """
    tally = SegmentTally(segment.base_offset)
    # The indexes are read before the log, so that one that grows meanwhile does not seem to lead it.
    offsets, times = yield from _open_indexes(segment)
    file = segment.disk.open(segment.path(FileKind.LOG))
    try:
        yield from _check_log(segment, file, tally, offsets, times)
    finally:
        file.close()
    at_offsets, at_times = segment.path(FileKind.OFFSET_INDEX), segment.path(FileKind.TIME_INDEX)
    if not segment.disk.exists(at_times):
        tell = damaged if segment.sealed and times.has_timestamps else noted  # Kafka before 0.10 kept none
        yield tell(at_times, _MISSING)
    yield from (Problem.of(at_offsets, found) for found in offsets.finish(tally.next_offset))
    yield from (Problem.of(at_times, found) for found in times.finish())
    if not segment.being_written:
        yield from _check_aborted(segment)
    return tally


def _check_aborted(segment: SegmentToCheck) -> Iterator[Problem]:
    path = segment.path(FileKind.TRANSACTION_INDEX)
    data = segment.disk.read_file(path) if segment.disk.exists(path) else b""
    for found in segment.transactions.finish_segment(entries_in(data)):
        yield Problem.of(path, found)


def _open_indexes(
    segment: SegmentToCheck,
) -> Generator[Problem, None, tuple[OffsetIndexCheck, TimeIndexCheck]]:
    path = segment.path(FileKind.OFFSET_INDEX)
    if not segment.disk.exists(path):
        yield damaged(path, _MISSING) if segment.sealed else noted(path, _MISSING)
    data = yield from _index_bytes(segment, path, OffsetIndex.entry.size)
    offsets = OffsetIndexCheck(offset_entries(data, segment.base_offset))
    yield from (Problem.of(path, found) for found in offsets.order())
    path = segment.path(FileKind.TIME_INDEX)
    data = yield from _index_bytes(segment, path, TimeIndex.entry.size)
    times = TimeIndexCheck(time_entries(data, segment.base_offset))
    yield from (Problem.of(path, found) for found in times.order())
    return offsets, times


def _index_bytes(segment: SegmentToCheck, path: Path, entry_size: int) -> Generator[Problem, None, bytes]:
    if not segment.disk.exists(path):
        return b""
    data, size = read_index(segment.disk, path)
    yield from (Problem.of(path, found) for found in size_damage(size, entry_size))
    return data


def _check_log(
    segment: SegmentToCheck,
    file: File,
    tally: SegmentTally,
    offsets: OffsetIndexCheck,
    times: TimeIndexCheck,
) -> Iterator[Problem]:
    path, end = segment.path(FileKind.LOG), file.size()
    at_offsets, at_times = segment.path(FileKind.OFFSET_INDEX), segment.path(FileKind.TIME_INDEX)
    for entry in stored_entries(file, end):
        if isinstance(entry, Damage):
            tally.is_readable = False
            yield _at_the_end(segment, Problem.of(path, entry))
            continue
        position, header = entry.position, entry.header
        for message in _entry_problems(segment, entry, tally):
            problem = Problem(severity=Severity.DAMAGE, path=path, message=message, position=position)
            yield _at_the_end(segment, problem) if position + header.size == end else problem
        yield from (Problem.of(at_offsets, found) for found in offsets.see(position, header))
        yield from (Problem.of(at_times, found) for found in times.see(header))
        if entry.is_valid:
            segment.transactions.see(entry)
        tally.entries += 1
        tally.next_offset = max(tally.next_offset, header.next_offset)
        tally.leader_epoch = max(tally.leader_epoch, header.leader_epoch)
        segment.on_bytes(header.size)


def _at_the_end(segment: SegmentToCheck, problem: Problem) -> Problem:
    """The problem as what it is at the end of the log: no damage while somebody is writing there."""
    if not segment.being_written:
        return problem
    message = f"{problem.message} (perhaps a write under way)"
    return Problem(severity=Severity.NOTE, path=problem.path, message=message, position=problem.position)


def _entry_problems(segment: SegmentToCheck, entry: StoredEntry, tally: SegmentTally) -> Iterator[str]:
    header = entry.header
    # A compressed message of magic 0 or 1 has the offset of its last: where it begins is inside.
    if header.base_offset < tally.next_offset:
        yield f"offset {header.base_offset} where {tally.next_offset} could be the least"
    if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        yield f"offset {header.last_offset} is too far from the segment's {segment.base_offset}"
    if not entry.is_valid:
        offset, expected = header.base_offset, header.crc
        yield f"checksum of the entry at offset {offset} is {entry.checksum}, not {expected}"
    elif segment.deep:
        try:
            yield from _lies(entry, tally)
        except CorruptRecordsError as error:
            yield error.message


def _lies(entry: StoredEntry, tally: SegmentTally) -> Iterator[str]:
    """What the header says and the records do not bear out. Raises CorruptRecordsError."""
    header, count = entry.header, 0
    largest: int | None = None
    least = tally.next_offset
    for record in records_of(entry):
        count += 1
        largest = record.timestamp if largest is None else max(largest, record.timestamp)
        if header.is_control and len(record.key or b"") < _CONTROL_KEY_SIZE:
            yield f"control record at offset {record.offset} without a type"
        if header.magic < 2 and record.offset < least:
            yield f"offset {record.offset} inside the message, where {least} could be the least"
    tally.records += count
    if header.magic == 2 and count != header.record_count:
        yield f"the batch at offset {header.base_offset} holds {count} records and says {header.record_count}"
    if header.magic > 0 and largest is not None and largest > header.max_timestamp:
        yield f"a record has timestamp {largest}, and {header.max_timestamp} is said to be the largest"
