"""One segment of a log: a `.log` file of batches, its two sparse indexes, and that of aborted transactions.

A lookup goes by the offset index to the nearest batch below, then over batch headers by small reads. The
positions found are remembered, a few per segment (`POSITIONS_MAX`): a consumer that reads on from where its
last answer ended scans nothing. A position stays true until the segment is cut: it is that of the first batch
whose last offset is at or above the offset.

What an index says is verified against the header it points to; an index that lies is rebuilt on the spot.

Only a log's newest segment is active (appended to). Owned by the event loop's thread. A crash loses what was
not synced; recovery cuts the file at the last valid batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from broker.errors import CorruptRecordsError, DiskFullError, StorageError
from broker.records.batch import BatchHeader
from broker.records.control import MARKER_BYTES_MAX, Marker, read_marker
from broker.records.record import NO_TIMESTAMP
from broker.storage.appends import PlacedBatch
from broker.storage.closed_logs import ClosedLog
from broker.storage.disk import Disk
from broker.storage.filenames import DELETED_SUFFIX, FileKind, segment_file_name
from broker.storage.index import RELATIVE_OFFSET_MAX, IndexCache, OffsetEntry, OffsetIndex, TimeIndex
from broker.storage.open_files import FilePool, PooledFile
from broker.storage.segment_scan import SegmentScan, Visit
from broker.storage.stored_batches import WALK_BYTES, begins_batch, first_beyond, walk
from broker.storage.transaction_index import TransactionIndex
from broker.storage.transactions import AbortedTransaction
from broker.types import Buffer

POSITIONS_MAX = 64


class Segment:
    """See the module's description. `size` is in bytes, timestamps in milliseconds (-1: none)."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_timestamp",
        "_largest_timestamp",
        "_largest_timestamp_offset",
        "_positions",
        "_rebuilt",
        "_resumed",
        "aborted",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "indexes_durable",
        "log",
        "modified_ms",
        "offsets",
        "size",
        "times",
    )

    def __init__(
        self,
        pool: FilePool,
        cache: IndexCache,
        directory: Path,
        base_offset: int,
        *,
        size: int,
        index_interval_bytes: int,
        now_ms: int,
        modified_ms: int = NO_TIMESTAMP,
        transaction_index_size: int | None = None,
    ) -> None:
        def name(kind: FileKind) -> str:
            return segment_file_name(base_offset, kind)

        self.base_offset = base_offset
        self.size = size
        self.log: PooledFile = pool.file(directory, name(FileKind.LOG))
        self.offsets = OffsetIndex(pool, cache, directory, name(FileKind.OFFSET_INDEX), base_offset)
        self.times = TimeIndex(pool, cache, directory, name(FileKind.TIME_INDEX), base_offset)
        self.aborted: TransactionIndex | None = None
        if transaction_index_size is not None:
            self.aborted = TransactionIndex.beside(self.offsets)
            self.aborted.resume(transaction_index_size)
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.modified_ms = modified_ms
        self.indexes_durable = False
        self._first_timestamp: int | None = None
        self._largest_timestamp: int | None = None
        self._largest_timestamp_offset = base_offset
        self._bytes_since_index_entry = 0
        self._rebuilt = self._resumed = False
        self._positions: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        pool: FilePool,
        cache: IndexCache,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
    ) -> Segment:
        """Make an empty active segment on disk. What an earlier life left under the same names is emptied."""
        path = directory / segment_file_name(base_offset, FileKind.LOG)
        file = pool.disk.open(path, create=True)
        try:
            if file.size():
                file.truncate(0)
        finally:
            file.close()
        segment = cls(
            pool,
            cache,
            directory,
            base_offset,
            size=0,
            index_interval_bytes=index_interval_bytes,
            now_ms=now_ms,
            modified_ms=now_ms,
        )
        segment.forget_aborted()
        segment._start_indexes_over()
        return segment

    # Appending

    def append(self, data: Buffer, batches: Sequence[PlacedBatch]) -> None:
        """Write whole batches to the end. On a failure the file is cut back, so that nothing false remains;
        StorageError goes on.
        """
        position = self.size
        file = self.log.pin()
        try:
            file.pwrite(data, position)
        except StorageError:
            file.truncate(position)
            raise
        finally:
            self.log.release()
        self._resumed = False
        for start, size, last_offset, max_timestamp in batches:
            self._note(position + start, size, last_offset, max_timestamp)
        self.size = position + len(data)

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch: what the segment's age is counted from. NO_TIMESTAMP when
        empty, or the batch cannot be read.
        """
        if self._first_timestamp is None and self.size:
            try:
                _, header = next(self.headers(0))
            except CorruptRecordsError:
                self._first_timestamp = NO_TIMESTAMP
            else:
                self._first_timestamp = header.max_timestamp
        return NO_TIMESTAMP if self._first_timestamp is None else self._first_timestamp

    def indexes_full(self, size_max: int) -> bool:
        """Whether an index could not take another entry and the closing one within `size_max` bytes."""
        return self.offsets.full(size_max) or self.times.full(size_max)

    def seal(self) -> None:
        """Stop appending: complete the indexes and leave memory. Raises StorageError, and then nothing is
        sealed.
        """
        if self._largest_timestamp is not None and not self._resumed:
            self.times.append_if_later(self._largest_timestamp, self._largest_timestamp_offset)
        indexes = [self.offsets, self.times, *([self.aborted] if self.aborted else [])]
        for index in indexes:
            index.write_out()
        for index in indexes:
            index.seal()

    @property
    def is_sealed(self) -> bool:
        """Whether no index has entries that its file lacks."""
        indexes = (self.offsets, self.times, self.aborted)
        return not any(index is not None and index.active for index in indexes)

    def seal_if_room(self) -> None:
        """As `seal`; on a full disk the indexes stay in memory, complete. Raises StorageError."""
        with suppress(DiskFullError):
            self.seal()

    def activate(self) -> int:
        """Make ready for appending; the offset after the last batch, found by reading on from the last index
        entry.

        Raises CorruptRecordsError when the file does not end with a whole batch.
        """
        if not (self.offsets.plausible(self.size) and self.times.plausible()):
            self.rebuild_indexes()
        self.offsets.activate()
        self.times.activate()
        if self.aborted is not None:
            self.aborted.activate()
        self._positions.clear()
        self._resumed = False
        latest = self.times.last()
        self._largest_timestamp = latest.timestamp if latest else NO_TIMESTAMP
        self._largest_timestamp_offset = latest.offset if latest else self.base_offset
        entry = self.offsets.last()
        next_offset = self.base_offset
        start = entry.position if entry else 0
        for _, header in self._headers_in_order(start):
            next_offset = header.next_offset
            if header.max_timestamp > self._largest_timestamp:
                self._largest_timestamp, self._largest_timestamp_offset = (
                    header.max_timestamp,
                    header.last_offset,
                )
        self._bytes_since_index_entry = self.size - start
        return next_offset

    def resume(self, closed: ClosedLog) -> None:
        """Make ready for appending as `activate` does, by what is known of a clean end; nothing is read."""
        self.offsets.resume(closed.offset_index_size)
        self.times.resume(closed.time_index_size)
        self._resumed = True
        self._largest_timestamp = closed.largest_timestamp
        self._largest_timestamp_offset = closed.largest_timestamp_offset
        self._bytes_since_index_entry = closed.bytes_since_index_entry

    def closed(self, end_offset: int, *, segment_count: int, leader_epoch: int) -> ClosedLog:
        """What `resume` needs of a log's newest segment, once it is sealed; the rest is the log's."""
        return ClosedLog(
            end_offset=end_offset,
            base_offset=self.base_offset,
            size=self.size,
            offset_index_size=self.offsets.stored_size,
            time_index_size=self.times.stored_size,
            largest_timestamp=self.largest_timestamp(),
            largest_timestamp_offset=self._largest_timestamp_offset,
            bytes_since_index_entry=self._bytes_since_index_entry,
            segment_count=segment_count,
            leader_epoch=leader_epoch,
        )

    def scan(self, visit: Visit, *, first_offset: int, gaps: bool, latest_epoch: int) -> SegmentScan:
        """Check every byte, and index what is sound of it; `visit` hears of what matters beside indexes.

        The file is not cut: `cut_file` at the scan's `valid_size` does that. Raises StorageError.
        """
        with closing(self.log.open_apart()) as file:
            scan = SegmentScan(
                file,
                self.size,
                self.base_offset,
                first_offset=first_offset,
                gaps=gaps,
                index_interval_bytes=self.index_interval_bytes,
            )
            scan.run(visit, latest_epoch=latest_epoch)
        self._start_indexes_over(scan.offset_entries, scan.time_entries)
        self._largest_timestamp = scan.largest_timestamp
        self._largest_timestamp_offset = scan.largest_timestamp_offset
        self._bytes_since_index_entry = scan.bytes_since_index_entry
        return scan

    def _start_indexes_over(
        self, offset_entries: bytearray | None = None, time_entries: bytearray | None = None
    ) -> None:
        self.offsets.start_over(offset_entries)
        self.times.start_over(time_entries)
        self.indexes_durable = self._resumed = False
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_timestamp_offset = self.base_offset
        self._bytes_since_index_entry = 0
        self._positions.clear()

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Index a transaction whose abort marker is in the segment. Raises StorageError."""
        index = self.aborted
        if index is None:
            index = self.aborted = TransactionIndex.beside(self.offsets)
            index.start_over()
        index.activate()
        index.append(aborted)

    def forget_aborted(self) -> None:
        """Remove the index of aborted transactions, if there is one. Raises StorageError."""
        (self.aborted or TransactionIndex.beside(self.offsets)).remove()
        self.aborted = None

    def rebuild_indexes(self) -> None:
        """Make both sparse indexes anew from the headers, as far as the file is readable; they are left
        sealed, if the disk has room.
        """
        self._start_indexes_over()
        self._rebuilt = True
        with suppress(CorruptRecordsError):  # what lies behind is reported to whoever reads it
            for position, header in self._headers_in_order(0):
                self._note(position, header.size, header.last_offset, header.max_timestamp)
        self.seal_if_room()

    def _note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        if self._largest_timestamp is None or max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_timestamp_offset = max_timestamp, last_offset
        if not position:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.append_if_later(self._largest_timestamp, self._largest_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    # Reading

    def headers(self, start: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from position `start` on. Raises CorruptRecordsError."""
        with self.log as file:
            yield from walk(file, start, self.size if end is None else end)

    def _headers_in_order(self, start: int) -> Iterator[tuple[int, BatchHeader]]:
        """As `headers`; offsets that do not ascend, or that no index entry could hold, are corrupt too."""
        expected = self.base_offset
        for position, header in self.headers(start):
            if header.base_offset < expected or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                raise CorruptRecordsError(
                    f"offset {header.base_offset} at position {position} of {self.log.path}"
                )
            expected = header.next_offset
            yield position, header

    def marker(self, position: int, header: BatchHeader) -> Marker | None:
        """The transaction's marker in the batch at `position`, None when it holds none that can be read.

        Raises StorageError.
        """
        if header.is_control and header.producer_id >= 0 and header.size <= MARKER_BYTES_MAX:
            with self.log as file, suppress(CorruptRecordsError):
                return read_marker(file.pread(header.size, position), header)
        return None

    def locate(self, offset: int) -> int:
        """Position of the first batch whose last offset is at or above `offset`; the segment's size when
        there is none.
        """
        found = self._positions.get(offset)
        if found is not None:
            return found
        found = self._scan_for(offset, self._trusted_start(offset))
        self.remember(offset, found)
        return found

    def fit(self, start: int, limit: int, size_max: int) -> tuple[int, int]:
        """Where whole batches from position `start` that take up to `size_max` bytes and lie before `limit`
        end, and the offset there.

        The end is `start` when the first batch is larger. `start` and `limit` are positions of batches, with
        more than `size_max` bytes between.
        """
        bound = start + size_max
        entry = self.offsets.floor_position(bound)
        data = b""
        with self.log as file:
            if entry is not None and entry.position > start:
                room = limit - entry.position
                data = file.pread(min(WALK_BYTES, room), entry.position)
                # An old message set does not say where it begins, so the offset of the end would be unknown.
                if begins_batch(data, room, first_offset=self.base_offset, last_offset=entry.offset):
                    start = entry.position
                else:
                    data = b""
            position, offset = first_beyond(file, start, limit, bound, data)
        offset = self.base_offset if offset is None else offset
        self.remember(offset, position)
        return position, offset

    def after(self, start: int) -> tuple[int, int]:
        """Where the batch at position `start` ends, and the offset there."""
        for position, header in self.headers(start):
            return position + header.size, header.next_offset
        return start, self.base_offset

    def remember(self, offset: int, position: int) -> None:
        """Keep the position of an offset for the next lookup; the oldest kept makes room."""
        positions = self._positions
        if offset not in positions and len(positions) >= POSITIONS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = position

    def batches_since(self, timestamp: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch whose largest timestamp is at or after `timestamp` and that ends at or after
        `offset`.
        """
        before = self.times.before(timestamp)
        start = self.locate(max(offset, before.offset if before else self.base_offset))
        for position, header in self.headers(start):
            if header.max_timestamp >= timestamp and header.last_offset >= offset:
                yield position, header

    def largest_timestamp(self) -> int:
        """The latest timestamp in the segment, or NO_TIMESTAMP."""
        if self._largest_timestamp is None:
            last = self.times.last()
            self._largest_timestamp = last.timestamp if last else NO_TIMESTAMP
        return self._largest_timestamp

    # Cutting, syncing and removing

    def cut(self, offset: int) -> int:
        """Remove every batch that ends at or after `offset`, and leave the segment active; the offset after
        what is left.
        """
        position = self.locate(offset)
        self.offsets.keep(self.offsets.count_below(position))
        self.times.keep(self.times.count_below(offset))
        if self.aborted is not None:
            self._keep_aborted(self.aborted.count_below(offset))
        self.cut_file(position)
        return self.activate()

    def _keep_aborted(self, count: int) -> None:
        if not count:
            self.forget_aborted()
        elif self.aborted is not None:
            self.aborted.keep(count)

    def cut_file(self, position: int) -> None:
        """Cut the log file at `position`, durably, so that no crash brings back what was cut."""
        with self.log as file:
            file.truncate(position)
            file.sync()
        self.size = position
        self._positions.clear()
        if not position:
            self._first_timestamp = None

    def files(self) -> tuple[PooledFile, ...]:
        """The log, and its indexes."""
        aborted = (self.aborted.file,) if self.aborted is not None else ()
        return self.log, self.offsets.file, self.times.file, *aborted

    def mark_deleted(self, disk: Disk) -> list[Path]:
        """Give the files their `.deleted` names, which are returned; open ones stay open while they are
        pinned.
        """
        renamed = []
        for file in self.files():
            if disk.exists(file.path):
                renamed.append(file.path.with_name(file.path.name + DELETED_SUFFIX))
                disk.rename(file.path, renamed[-1])
        self.retire()
        return renamed

    def retire(self) -> None:
        """Close the files, each once nobody pins it any more."""
        self.offsets.retire()
        self.times.retire()
        if self.aborted is not None:
            self.aborted.retire()
        self.log.retire()

    # Lookup

    def _trusted_start(self, offset: int) -> int:
        """Where to scan for `offset` from, by the index, which is rebuilt when it points to no batch at or
        below the offset.
        """
        entry = self.offsets.floor(offset)
        if self._index_emptied() if entry is None else self._batch_at(entry) is None:
            self._replace_indexes()
            entry = self.offsets.floor(offset)
        return entry.position if entry else 0

    def _index_emptied(self) -> bool:
        """Whether the offset index, which has nothing below an offset, may have lost what it had: it is made
        anew once to be sure.
        """
        doubtful = not (self._rebuilt or self.offsets.active) and self.size > self.index_interval_bytes
        return doubtful and not self.offsets.entries()

    def _replace_indexes(self) -> None:
        was_active = self.offsets.active
        self.rebuild_indexes()
        if was_active:
            self.activate()

    def _batch_at(self, entry: OffsetEntry) -> BatchHeader | None:
        """The header that the entry points to, None when it can not be the one."""
        try:
            for _, header in self.headers(entry.position):
                return header if self.base_offset <= header.base_offset <= entry.offset else None
        except CorruptRecordsError:
            pass
        return None

    def _scan_for(self, offset: int, start: int) -> int:
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                return position
        return self.size
