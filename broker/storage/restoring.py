"""Putting archived segments back where they were: into a data root whose node is stopped, offsets kept.

Segments are written in front of what a partition's directory holds, the newest first, each as a whole, so
that a run cut short leaves a log without gaps and the next run goes on. Indexes are made anew; one that a
crash takes is made again by the node at its start. The log start offset is lowered at the end: until then a
node sees the log as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.errors import StorageError
from broker.storage.archive import ArchiveError, Manifest
from broker.storage.archived_partition import ArchivedBatch, ArchivedPartition
from broker.storage.checkpoints import (
    EpochStart,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
    write_leader_epochs,
    write_offsets,
    write_partition_metadata,
)
from broker.storage.disk import Disk, File
from broker.storage.filenames import (
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    parse_segment_file_name,
    segment_file_name,
)
from broker.storage.index import IndexCache
from broker.storage.log_config import LogConfig
from broker.storage.open_files import FilePool
from broker.storage.partition_directory import PartitionDirectory
from broker.storage.transaction_index import ENTRY_VERSION, TransactionIndex
from broker.types import TopicId

_PART_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was put back into one partition: its offsets from `start_offset` on, so many bytes."""

    partition: ArchivedPartition
    start_offset: int
    size: int


def restore_partitions(
    disk: Disk, root: Path, partitions: Sequence[ArchivedPartition], on_bytes: Callable[[int], None]
) -> list[Restored]:
    """Put the segments of each partition back into the data root.

    Blocks. Raises StorageError when a node uses the root, or a directory holds another topic's records or
    records that do not follow the archived ones; ArchiveError.
    """
    if not disk.exists(root):
        raise StorageError(f"{root} does not exist")
    lock = disk.lock(root / LOCK_FILE)
    try:
        restored = [_restore(disk, root, partition, on_bytes) for partition in partitions]
        starts = read_offsets(disk, root / LOG_START_OFFSET_FILE)
        for each in restored:
            if (start := starts.get(each.partition.topic_partition)) is not None:
                starts[each.partition.topic_partition] = min(start, each.start_offset)
        write_offsets(disk, root / LOG_START_OFFSET_FILE, starts)
    finally:
        lock.release()
    return restored


def _restore(
    disk: Disk, root: Path, partition: ArchivedPartition, on_bytes: Callable[[int], None]
) -> Restored:
    directory = root / str(partition.topic_partition)
    disk.make_directory(directory)
    _claim(disk, directory, partition)
    first = _first_offset(disk, directory)
    wanted = [each for each in partition.segments if first is None or each[1] < first]
    _require_joined(partition, wanted, first)
    size = 0
    for manifest, start in reversed(wanted):
        end = manifest.next_offset if first is None else min(manifest.next_offset, first)
        written = _restore_segment(disk, directory, partition, manifest, (start, end), on_bytes)
        size += written
        first = start if written else first
    _index(PartitionDirectory(disk, directory, FilePool(disk), IndexCache()))
    disk.sync_directory(root)
    return Restored(partition=partition, start_offset=0 if first is None else first, size=size)


def _claim(disk: Disk, directory: Path, partition: ArchivedPartition) -> None:
    path = directory / PARTITION_METADATA_FILE
    found = read_partition_metadata(disk, path)
    if found is None:
        write_partition_metadata(disk, path, TopicId(partition.topic_id))
    elif found != partition.topic_id:
        raise StorageError(
            f"{directory} is of the topic with id {found}, archived is that with {partition.topic_id}"
        )


def _first_offset(disk: Disk, directory: Path) -> int | None:
    """Where the log on disk begins; None when it holds no segment, or only an empty one at offset 0."""
    logs = [
        (name.offset, entry.size)
        for entry in disk.list_directory(directory)
        if (name := parse_segment_file_name(entry.name)) is not None
        and (name.kind, name.state) == (FileKind.LOG, FileState.LIVE)
    ]
    return min(logs)[0] if logs and logs != [(0, 0)] else None


def _require_joined(
    partition: ArchivedPartition, wanted: Sequence[tuple[Manifest, int]], before: int | None
) -> None:
    """Raises ArchiveError when what would be put back has a gap, inside or before what is there."""
    gaps = [gap for gap in partition.gaps if before is None or gap[0] < before]
    if before is not None and wanted and wanted[-1][0].next_offset < before:
        gaps.append((wanted[-1][0].next_offset, before))
    if gaps:
        shown = ", ".join(f"{start} to {end - 1}" for start, end in gaps)
        raise ArchiveError(f"the archive of {partition.topic_partition} lacks the offsets {shown}")


def _restore_segment(
    disk: Disk,
    directory: Path,
    partition: ArchivedPartition,
    manifest: Manifest,
    offsets: tuple[int, int],
    on_bytes: Callable[[int], None],
) -> int:
    """Write one segment's batches between two offsets; its size. Its leader epochs are noted before it is
    there: a later run does not look into it again.
    """
    start, end = offsets
    path = directory / segment_file_name(start, FileKind.LOG)
    part = path.with_name(path.name + _PART_SUFFIX)
    disk.remove(part)
    file = disk.open(part, create=True)
    epochs: list[EpochStart] = []
    try:
        written = _write(file, partition.batches_of(manifest, start), end, epochs, on_bytes)
        file.sync()
    finally:
        file.close()
    if not written:
        disk.remove(part)
        return 0
    entries = [
        TransactionIndex.entry.pack(ENTRY_VERSION, *aborted)
        for aborted in manifest.aborted
        if start <= aborted.last_offset < end
    ]
    if entries:
        disk.write_file(directory / segment_file_name(start, FileKind.TRANSACTION_INDEX), b"".join(entries))
    _put_epochs_in_front(disk, directory / LEADER_EPOCH_FILE, epochs)
    disk.rename(part, path)
    disk.sync_directory(directory)
    return written


def _write(
    file: File,
    batches: Iterable[ArchivedBatch],
    end: int,
    epochs: list[EpochStart],
    on_bytes: Callable[[int], None],
) -> int:
    position = 0
    for batch in batches:
        if batch.next_offset > end:
            break
        epoch = -1 if batch.header is None else batch.header.leader_epoch
        if batch.header is not None and (not epochs or epoch > epochs[-1].epoch):
            epochs.append(EpochStart(epoch, batch.header.base_offset))
        file.pwrite(batch.data, position)
        position += len(batch.data)
        on_bytes(len(batch.data))
    return position


def _index(directory: PartitionDirectory) -> None:
    """Make the indexes of every segment that lacks one, also of what an earlier run put back."""
    for found in directory.find_segments():
        if found.offset_index_size is None or found.time_index_size is None:
            segment = directory.open_segment(found, LogConfig(), found.modified_ms)
            segment.rebuild_indexes()
            segment.retire()


def _put_epochs_in_front(disk: Disk, path: Path, restored: Sequence[EpochStart]) -> None:
    merged: list[EpochStart] = []
    for entry in [*restored, *read_leader_epochs(disk, path)]:
        if entry.epoch >= 0 and (not merged or entry.epoch > merged[-1].epoch):
            merged.append(entry)
    write_leader_epochs(disk, path, merged, durable=True)
