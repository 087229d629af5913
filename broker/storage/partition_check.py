"""A partition's directory checked as a whole: its segments and how they follow each other, and every other
file in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from broker.errors import StorageError
from broker.storage.checkpoints import read_leader_epochs
from broker.storage.disk import TEMPORARY_SUFFIX, DirectoryEntry, Disk
from broker.storage.dump import dump_snapshot, dump_text_file, dump_transaction_index
from broker.storage.dump_line import Damage, Finding
from broker.storage.filenames import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    SegmentFileName,
    parse_segment_file_name,
    segment_file_name,
)
from broker.storage.segment_check import (
    Problem,
    SegmentTally,
    SegmentToCheck,
    check_segment,
    damaged,
    noted,
)
from broker.storage.transaction_check import TransactionCheck

_LEFTOVERS = {
    FileState.DELETED: "was about to be removed",
    FileState.CLEANED: "is of a compaction that was cut short",
    FileState.SWAP: "is of a compaction that has not taken its place yet",
    FileState.CUT: "was cut off the log, which was damaged there",
}
_UNKNOWN_END = -1


@dataclass(slots=True)
class PartitionTally:
    """What a partition was found to hold. `start_offset` is its first segment's, `end_offset` the next to be
    written.
    """

    start_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    entries: int = 0
    records: int = 0
    leader_epoch: int = -1

    def add(self, segment: SegmentTally) -> None:
        self.end_offset = max(self.end_offset, segment.next_offset)
        self.segments += 1
        self.entries += segment.entries
        self.records += segment.records
        self.leader_epoch = max(self.leader_epoch, segment.leader_epoch)


class Gaps(Enum):
    """Whether offsets between segments may be missing, as compaction leaves a log."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToCheck:
    """A partition's directory and how to look at it. `in_use`: a node may be working there right now;
    `closed`: the last one that did was shut down cleanly.
    """

    disk: Disk
    path: Path
    deep: bool = True
    in_use: bool = False
    closed: bool = True
    gaps: Gaps = Gaps.UNKNOWN
    on_bytes: Callable[[int], None] = field(default=lambda _: None)


def check_partition(partition: PartitionToCheck) -> Generator[Problem, None, PartitionTally]:
    """Every problem; returns what was found. Raises StorageError when the directory cannot be listed."""
    live: dict[FileKind, list[int]] = {kind: [] for kind in FileKind}
    for entry in partition.disk.list_directory(partition.path):
        name = None if entry.is_directory else parse_segment_file_name(entry.name)
        if name is not None and name.state is FileState.LIVE:
            live[name.kind].append(name.offset)
        else:
            yield from _foreign_or_left_over(partition.path / entry.name, entry, name)
    yield from _orphans(partition.path, live)
    tally = yield from _check_segments(partition, sorted(live[FileKind.LOG]))
    yield from _check_transactions(partition, live[FileKind.TRANSACTION_INDEX])
    yield from _check_snapshots(partition, live[FileKind.PRODUCER_SNAPSHOT], tally)
    yield from _check_text_files(partition, tally)
    return tally


def _foreign_or_left_over(
    path: Path, entry: DirectoryEntry, name: SegmentFileName | None
) -> Iterator[Problem]:
    if name is not None:
        stays = name.state is FileState.CUT
        then = "it stays until somebody removes it" if stays else "the next start of the node sees to it"
        yield noted(path, f"{_LEFTOVERS[name.state]}; {then}")
    elif entry.name.endswith(TEMPORARY_SUFFIX):
        yield noted(path, "was being written; the next start of the node removes it")
    elif entry.name not in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE):
        yield noted(path, "is no file of a partition")


def _orphans(path: Path, live: dict[FileKind, list[int]]) -> Iterator[Problem]:
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX):
        for offset in sorted(set(live[kind]) - set(live[FileKind.LOG])):
            yield noted(path / segment_file_name(offset, kind), "belongs to no log")


def _check_segments(
    partition: PartitionToCheck, base_offsets: list[int]
) -> Generator[Problem, None, PartitionTally]:
    tally = PartitionTally()
    if not base_offsets:
        yield noted(partition.path, "holds no log")
        return tally
    tally.start_offset = tally.end_offset = base_offsets[0]
    transactions = TransactionCheck()
    ended_at = base_offsets[0]
    for base_offset in base_offsets:
        log = partition.path / segment_file_name(base_offset, FileKind.LOG)
        if base_offset < tally.end_offset:
            yield damaged(log, f"starts below offset {tally.end_offset}, where the segment before it ends")
        if base_offset > ended_at >= 0 and partition.gaps is not Gaps.RIGHT:
            tell = damaged if partition.gaps is Gaps.WRONG else noted
            yield tell(log, f"starts above offset {ended_at}, where the segment before it ends")
        segment = SegmentToCheck(
            disk=partition.disk,
            directory=partition.path,
            base_offset=base_offset,
            deep=partition.deep,
            being_written=partition.in_use and base_offset == base_offsets[-1],
            sealed=partition.closed or base_offset != base_offsets[-1],
            on_bytes=partition.on_bytes,
            transactions=transactions,
        )
        ended_at = _UNKNOWN_END
        try:
            checked = yield from check_segment(segment)
            tally.add(checked)
            ended_at = checked.next_offset if checked.is_readable else _UNKNOWN_END
        except StorageError as error:
            if not partition.in_use or partition.disk.exists(log):
                yield damaged(log, str(error))
    return tally


def _check_transactions(partition: PartitionToCheck, offsets: Iterable[int]) -> Iterator[Problem]:
    for offset in sorted(offsets):
        path = partition.path / segment_file_name(offset, FileKind.TRANSACTION_INDEX)
        yield from _damages(partition, path, lambda data, _: dump_transaction_index(data))


def _check_snapshots(
    partition: PartitionToCheck, offsets: Iterable[int], tally: PartitionTally
) -> Iterator[Problem]:
    for offset in sorted(offsets):
        path = partition.path / segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)
        yield from _damages(partition, path, lambda data, _: dump_snapshot(data))
        if offset > tally.end_offset and not partition.in_use:
            yield damaged(path, f"was taken at offset {offset}, and the log ends at {tally.end_offset}")


def _damages(
    partition: PartitionToCheck, path: Path, dump: Callable[[bytes, Path], Iterator[Finding]]
) -> Iterator[Problem]:
    """What a dump of a small file finds damaged."""
    try:
        for found in dump(partition.disk.read_file(path), path):
            if isinstance(found, Damage):
                yield Problem.of(path, found)
    except StorageError as error:
        if not partition.in_use or partition.disk.exists(path):
            yield damaged(path, str(error))


def _check_text_files(partition: PartitionToCheck, tally: PartitionTally) -> Iterator[Problem]:
    for name in (PARTITION_METADATA_FILE, LEADER_EPOCH_FILE):
        path = partition.path / name
        if partition.disk.exists(path):
            yield from _damages(partition, path, lambda _, path: dump_text_file(partition.disk, path))
    yield from _check_epochs(partition, tally)


def _check_epochs(partition: PartitionToCheck, tally: PartitionTally) -> Iterator[Problem]:
    """Whether the leader epochs fit the log."""
    path = partition.path / LEADER_EPOCH_FILE
    try:
        epochs = read_leader_epochs(partition.disk, path)
    except StorageError:
        return  # told already
    for entry in epochs:
        if entry.start_offset > tally.end_offset and not partition.in_use:
            yield damaged(
                path,
                f"epoch {entry.epoch} starts at offset {entry.start_offset}, "
                f"and the log ends at {tally.end_offset}",
            )
    latest = epochs[-1].epoch if epochs else -1
    if tally.leader_epoch > latest:
        yield damaged(
            path, f"the log holds batches of leader epoch {tally.leader_epoch}, this ends with {latest}"
        )
