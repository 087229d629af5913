"""A segment as a pass of the cleaner writes it, and how it takes the place of those it was made of.

All its files (`.log`, `.index`, `.timeindex`, and `.txnindex` where there are entries) are written under
`.cleaned` names and synced. They mean nothing until all of them have their `.swap` names: a crash before that
leaves the old segments, one after it the new one (`PartitionDirectory.tidy`). The old files get `.deleted`
names then, and the new ones their own. Written in a cleaner thread; `take_place` is for the log's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.records.batch import BatchHeader
from broker.records.record import NO_TIMESTAMP
from broker.storage.disk import Disk, File
from broker.storage.filenames import (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    FileKind,
    segment_file_name,
)
from broker.storage.index import OffsetIndex, TimeIndex
from broker.storage.log_config import LogConfig
from broker.storage.partition_directory import FoundSegment, PartitionDirectory
from broker.storage.segment import Segment
from broker.storage.transaction_index import ENTRY_VERSION, TransactionIndex
from broker.storage.transactions import AbortedTransaction
from broker.types import Buffer

_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX, FileKind.LOG)
"""The log comes last: it gets its `.swap` name when all others have theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """A segment that is written and synced under `.cleaned` names; sizes in bytes."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int
    modified_ms: int
    """That of the newest of the segments that it was made of."""
    transaction_index_size: int | None
    """None: there is none."""

    @property
    def kinds(self) -> tuple[FileKind, ...]:
        """The files there are."""
        has_aborted = self.transaction_index_size is not None
        return tuple(kind for kind in _KINDS if has_aborted or kind is not FileKind.TRANSACTION_INDEX)


class CleanedSegmentWriter:
    """Writes one segment from start to end, or discards it."""

    def __init__(
        self, disk: Disk, directory: Path, base_offset: int, *, index_interval_bytes: int, buffer_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._buffer_bytes = buffer_bytes
        self._log: File | None = None
        self._waiting: list[Buffer] = []
        self._waiting_size = 0
        self._size = 0
        self._offsets = bytearray()
        self._times = bytearray()
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_timestamp_offset = base_offset
        self._indexed_timestamp = NO_TIMESTAMP
        self._bytes_since_index_entry = 0

    @property
    def size(self) -> int:
        """Bytes of the log so far."""
        return self._size

    def append(self, entry: Buffer, header: BatchHeader) -> None:
        """Add a batch or message, which must not change any more. Raises StorageError."""
        if header.max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_timestamp_offset = header.max_timestamp, header.last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._offsets += OffsetIndex.entry.pack(header.last_offset - self._base_offset, self._size)
            self._index_time()
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += len(entry)
        self._size += len(entry)
        self._waiting.append(entry)
        self._waiting_size += len(entry)
        if self._waiting_size >= self._buffer_bytes:
            self._write_out()

    def finish(self, aborted: Sequence[AbortedTransaction], *, modified_ms: int) -> CleanedSegment:
        """Write the rest and sync every file. Raises StorageError."""
        self._index_time()
        self._write_out()
        assert self._log is not None, "writing opens it"
        self._log.sync()
        self._log.close()
        self._log = None
        self._disk.set_modified(self._path(FileKind.LOG), modified_ms)
        contents = {FileKind.OFFSET_INDEX: self._offsets, FileKind.TIME_INDEX: self._times}
        if aborted:
            contents[FileKind.TRANSACTION_INDEX] = bytearray(
                b"".join(TransactionIndex.entry.pack(ENTRY_VERSION, *entry) for entry in aborted)
            )
        for kind, content in contents.items():
            file = self._created(kind)
            try:
                file.pwrite(content, 0)
                file.sync()
            finally:
                file.close()
        return CleanedSegment(
            base_offset=self._base_offset,
            size=self._size,
            offset_index_size=len(self._offsets),
            time_index_size=len(self._times),
            modified_ms=modified_ms,
            transaction_index_size=len(contents[FileKind.TRANSACTION_INDEX]) if aborted else None,
        )

    def discard(self) -> None:
        """Remove what was written. Raises StorageError."""
        if self._log is not None:
            self._log.close()
            self._log = None
        for kind in _KINDS:
            self._disk.remove(self._path(kind))

    def _index_time(self) -> None:
        if self._largest_timestamp > self._indexed_timestamp:
            self._indexed_timestamp = self._largest_timestamp
            relative_offset = self._largest_timestamp_offset - self._base_offset
            self._times += TimeIndex.entry.pack(self._largest_timestamp, relative_offset)

    def _write_out(self) -> None:
        if self._log is None:
            self._log = self._created(FileKind.LOG)
        self._log.pwritev(self._waiting, self._size - self._waiting_size)
        self._waiting, self._waiting_size = [], 0

    def _created(self, kind: FileKind) -> File:
        """An empty file, whatever an earlier attempt left."""
        file = self._disk.open(self._path(kind), create=True)
        file.truncate(0)
        return file

    def _path(self, kind: FileKind) -> Path:
        return self._directory / (segment_file_name(self._base_offset, kind) + CLEANED_SUFFIX)


def take_place(
    directory: PartitionDirectory,
    cleaned: CleanedSegment,
    replaced: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
) -> tuple[Segment, list[Path]]:
    """Let the cleaned segment take the place of those it was made of; with the paths that may be removed.

    Names change and nothing is synced. Raises StorageError.
    """
    disk = directory.disk
    names = [directory.path / segment_file_name(cleaned.base_offset, kind) for kind in cleaned.kinds]
    for name in names:
        disk.rename(_suffixed(name, CLEANED_SUFFIX), _suffixed(name, SWAP_SUFFIX))
    removable: list[Path] = []
    for segment in replaced:
        removable += segment.mark_deleted(disk)
    for name in names:
        disk.rename(_suffixed(name, SWAP_SUFFIX), name)
    directory.remove_snapshots(segment.base_offset for segment in replaced[1:])
    found = FoundSegment(
        base_offset=cleaned.base_offset,
        size=cleaned.size,
        modified_ms=cleaned.modified_ms,
        offset_index_size=cleaned.offset_index_size,
        time_index_size=cleaned.time_index_size,
        transaction_index_size=cleaned.transaction_index_size,
    )
    segment = directory.open_segment(found, config, now_ms)
    segment.indexes_durable = True
    return segment, removable


def _suffixed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
