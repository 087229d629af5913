"""One partition's directory: which files it holds, and what the crash of an earlier life left half done.

Removal is by two steps, so that no crash shows half a segment: files get `.deleted` first. A compaction
writes `.cleaned` files, which mean nothing until all of them are renamed `.swap`; from then on they replace
the segments whose range they cover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from broker.errors import CorruptRecordsError, MissingFileError
from broker.storage.closed_logs import ClosedLog
from broker.storage.disk import TEMPORARY_SUFFIX, Disk
from broker.storage.filenames import (
    DELETED_SUFFIX,
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    SegmentFileName,
    parse_segment_file_name,
    segment_file_name,
)
from broker.storage.index import IndexCache, OffsetIndex, TimeIndex
from broker.storage.log_config import LogConfig
from broker.storage.open_files import FilePool
from broker.storage.segment import Segment
from broker.storage.stored_batches import walk

OWN_FILES = frozenset({LEADER_EPOCH_FILE, PARTITION_METADATA_FILE})
"""Files of a partition that belong to no segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegment:
    """A live segment by its files' sizes (bytes; None: the file is missing) and the log's age."""

    base_offset: int
    size: int
    modified_ms: int
    offset_index_size: int | None
    time_index_size: int | None
    transaction_index_size: int | None

    @property
    def indexes_damaged(self) -> bool:
        """Whether the sizes alone say that the indexes must be rebuilt. One that is empty and should not be
        is found by the first lookup.
        """
        offset_entry, time_entry = OffsetIndex.entry.size, TimeIndex.entry.size
        if self.offset_index_size is None or self.time_index_size is None:
            return self.size > 0
        return bool(self.offset_index_size % offset_entry or self.time_index_size % time_entry)

    def is_as_closed(self, closed: ClosedLog) -> bool:
        """Whether the segment is the newest of a log that was closed so, by all of its sizes."""
        return (self.base_offset, self.size, self.offset_index_size, self.time_index_size) == closed[1:5]


class _Entry(NamedTuple):
    """A file of the directory; `parsed` is None when it is no segment's."""

    name: str
    parsed: SegmentFileName | None
    size: int
    modified_ms: int


class PartitionDirectory:
    """See the module's description. Owned by the thread that opens the log, then by the event loop's.

    The names are listed once while a log is opened, which ends with `opened`: whatever changes them in
    between goes through this object. After that each question lists them anew.
    """

    __slots__ = ("_listed", "_opening", "cache", "disk", "path", "pool")

    def __init__(self, disk: Disk, path: Path, pool: FilePool, cache: IndexCache) -> None:
        self.disk = disk
        self.path = path
        self.pool = pool
        self.cache = cache
        self._opening = False
        self._listed: list[_Entry] | None = None

    def open(self) -> None:
        """Begin to open the log, making the directory if there is none. Raises StorageError."""
        self._opening = True
        self.disk.make_directory(self.path)

    def opened(self) -> None:
        """The log is open."""
        self._opening, self._listed = False, None

    def tidy(self) -> list[str]:
        """Finish or undo what a crash interrupted; the names of the files that went. Raises StorageError."""
        removed = [
            entry.name for entry in self._list() if entry.name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX))
        ]
        removed += self._uncommitted_compaction()
        self._remove(removed)
        removed += self._commit_swaps()
        orphans = self._orphans()
        self._remove(orphans)
        return removed + orphans

    def holds_only_own(self) -> bool:
        """Whether all names are such as a broker gives; told faster than which are not."""
        return all(
            name in OWN_FILES or parse_segment_file_name(name) is not None
            for name in self.disk.list_names(self.path)
        )

    def foreign_files(self) -> list[str]:
        """Names that no broker gives to a file of a partition."""
        return [entry.name for entry in self._list() if entry.parsed is None and entry.name not in OWN_FILES]

    def has_own_files(self) -> bool:
        """Whether any file is one that a broker leaves."""
        return any(entry.parsed is not None or entry.name in OWN_FILES for entry in self._list())

    def find_segments(self) -> list[FoundSegment]:
        """The live segments in order of their base offsets."""
        sizes = {}
        modified = {}
        for entry in self._list():
            parsed = entry.parsed
            if parsed is not None and parsed.state is FileState.LIVE:
                sizes[parsed.offset, parsed.kind] = entry.size
                modified[parsed.offset, parsed.kind] = entry.modified_ms
        return [
            FoundSegment(
                base_offset=offset,
                size=size,
                modified_ms=modified[offset, kind],
                offset_index_size=sizes.get((offset, FileKind.OFFSET_INDEX)),
                time_index_size=sizes.get((offset, FileKind.TIME_INDEX)),
                transaction_index_size=sizes.get((offset, FileKind.TRANSACTION_INDEX)),
            )
            for (offset, kind), size in sorted(sizes.items(), key=lambda item: item[0][0])
            if kind is FileKind.LOG
        ]

    def open_segment(self, found: FoundSegment, config: LogConfig, now_ms: int) -> Segment:
        """A sealed segment that is on disk; nothing is read yet."""
        segment = Segment(
            self.pool,
            self.cache,
            self.path,
            found.base_offset,
            size=found.size,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=now_ms,
            modified_ms=found.modified_ms,
            transaction_index_size=found.transaction_index_size,
        )
        if not found.offset_index_size:
            segment.offsets.note_blank()
        if not found.time_index_size:
            segment.times.note_blank()
        return segment

    def create_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """An empty active segment. Raises StorageError."""
        return Segment.create(
            self.pool,
            self.cache,
            self.path,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=now_ms,
        )

    def snapshot_path(self, offset: int) -> Path:
        return self.path / segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)

    def snapshot_offsets(self) -> list[int]:
        """The offsets that producer snapshots were taken at, ascending."""
        wanted = (FileKind.PRODUCER_SNAPSHOT, FileState.LIVE)
        return sorted(name.offset for _, name in self._parsed() if name[1:] == wanted)

    def write_snapshot(self, offset: int, data: bytes) -> Path:
        """Store a producer snapshot, not yet durably; its path. Raises StorageError."""
        path = self.snapshot_path(offset)
        self.disk.write_file(path, data, durable=False)
        self._listed = None
        return path

    def remove_snapshots(self, offsets: Iterable[int]) -> None:
        self._remove([segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT) for offset in offsets])

    def sync(self) -> None:
        """Make the names durable. Any thread. Raises StorageError."""
        self.disk.sync_directory(self.path)

    def _list(self) -> list[_Entry]:
        if self._listed is not None:
            return self._listed
        listed = [
            _Entry(name, parse_segment_file_name(name), size, modified_ms)
            for name, is_directory, size, modified_ms in self.disk.list_directory(self.path)
            if not is_directory
        ]
        if self._opening:
            self._listed = listed
        return listed

    def _parsed(self) -> list[tuple[str, SegmentFileName]]:
        return [(entry.name, entry.parsed) for entry in self._list() if entry.parsed is not None]

    def _remove(self, names: Iterable[str]) -> None:
        gone = list(names)
        for name in gone:
            self.disk.remove(self.path / name)
        if self._listed is not None and gone:
            self._listed = [entry for entry in self._listed if entry.name not in gone]

    def _uncommitted_compaction(self) -> list[str]:
        """`.cleaned` files, and `.swap` files from the first of those offsets on: their renaming was not
        complete.
        """
        parsed = self._parsed()
        cleaned = [name.offset for _, name in parsed if name.state is FileState.CLEANED]
        if not cleaned:
            return []
        first = min(cleaned)
        return [
            text
            for text, name in parsed
            if name.state is FileState.CLEANED or (name.state is FileState.SWAP and name.offset >= first)
        ]

    def _commit_swaps(self) -> list[str]:
        """Let `.swap` files replace the segments they cover; the names of the files replaced."""
        swaps = [(text, name) for text, name in self._parsed() if name.state is FileState.SWAP]
        replaced = []
        for text, swap in swaps:
            if swap.kind is FileKind.LOG:
                end = self._next_offset_in(self.path / text, swap.offset)
                replaced += [
                    other
                    for other, name in self._parsed()
                    if name.state is FileState.LIVE
                    and name.kind is not FileKind.PRODUCER_SNAPSHOT
                    and swap.offset <= name.offset < max(end, swap.offset + 1)
                ]
        self._remove(replaced)
        for text, _ in swaps:
            self.disk.rename(self.path / text, self.path / text.removesuffix(FileState.SWAP.value))
            self._listed = None
        if swaps:
            self.sync()
        return replaced

    def _next_offset_in(self, path: Path, base_offset: int) -> int:
        file = self.disk.open(path)
        try:
            end = base_offset
            for _, header in walk(file, 0, file.size()):
                end = header.next_offset
        except CorruptRecordsError:
            pass  # recovery cuts the file; what it covers is known up to here
        finally:
            file.close()
        return end

    def _orphans(self) -> list[str]:
        """Indexes whose log is gone."""
        parsed = self._parsed()
        logs = {
            name.offset for _, name in parsed if name.kind is FileKind.LOG and name.state is not FileState.CUT
        }
        kept = {FileKind.LOG, FileKind.PRODUCER_SNAPSHOT}
        return [text for text, name in parsed if name.kind not in kept and name.offset not in logs]


def sync_file(disk: Disk, path: Path) -> None:
    """Sync a file that another thread may remove meanwhile. Raises StorageError."""
    try:
        file = disk.open(path)
    except MissingFileError:
        return
    try:
        file.sync()
    finally:
        file.close()


def remove_partition_directory(disk: Disk, path: Path) -> None:
    """Remove a partition's directory and its files; a missing one is no error. Raises StorageError."""
    if not disk.exists(path):
        return
    for entry in disk.list_directory(path):
        disk.remove(path / entry.name)
    disk.remove_directory(path)
