"""One partition's log: segments, appends, reads, retention, truncation and flushing.

Invariants: segments ascend and only the last is appended to; `log_start_offset <= log_end_offset`; everything
below `recovery_point` was flushed. The list of segments is replaced, never changed, so whoever iterates sees
one state. An append is all or nothing.

Everything runs on the event loop's thread, except `flush` and `remove_deleted`, which block on the disk and
may run in any thread (see `flushing` for where the two sides meet).

A crash of the process loses nothing that `append` returned for; a crash of the machine loses what was
appended after the last `flush` began. A write that fails is cut back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from broker.clock import Clock
from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.records.batch import (
    LENGTH_OVERHEAD,
    BatchHeader,
    read_header,
    rebase,
    stamp_append_time,
)
from broker.records.control import Marker
from broker.records.reader import read_batches
from broker.storage.admission import Rules
from broker.storage.appends import (
    Appended,
    PositionedBatches,
    batches_from_leader,
    grouped,
    has_gaps,
    markers_in,
    validate_batch,
    validate_batches,
)
from broker.storage.checkpoints import read_partition_metadata, write_partition_metadata
from broker.storage.cleaned_segment import CleanedSegment, take_place
from broker.storage.closed_logs import ClosedLog
from broker.storage.disk import Disk
from broker.storage.file_range import EMPTY, FileRange
from broker.storage.filenames import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
)
from broker.storage.flushing import Flushing
from broker.storage.index import RELATIVE_OFFSET_MAX, IndexCache
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_config import LogConfig
from broker.storage.open_files import FilePool
from broker.storage.partition_directory import PartitionDirectory, remove_partition_directory
from broker.storage.producer_entry import Original
from broker.storage.producers import EXPIRATION_MS, ProducerStates
from broker.storage.recovery import RecoveredLog, Recovery, RecoveryReport
from broker.storage.removals import Removals
from broker.storage.retention import SegmentAge, expired
from broker.storage.segment import NO_TIMESTAMP, PlacedBatch, Segment
from broker.storage.transaction_index import AbortedTransaction, overlapping
from broker.types import TopicId, TopicPartition

__all__ = ["UNCOMPRESSED_SIZE_MAX", "Appended", "DeletedSegment", "Log", "Segments", "TimestampedOffset"]

UNCOMPRESSED_SIZE_MAX = 1 << 30
"""Bound of what one batch may unpack to when a record is looked for by its time."""


class TimestampedOffset(NamedTuple):
    """A record by offset and timestamp (ms)."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSegment:
    """A segment that retention removed; its size in bytes."""

    base_offset: int
    next_offset: int
    size: int


class Segments(NamedTuple):
    """The segments of a log at one moment, with their base offsets for bisection."""

    items: tuple[Segment, ...]
    bases: tuple[int, ...]

    @classmethod
    def of(cls, items: Sequence[Segment]) -> Segments:
        return cls(tuple(items), tuple(segment.base_offset for segment in items))

    def floor(self, offset: int) -> int:
        """Index of the segment that would hold `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)


class Log:
    """See the module's description."""

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogConfig,
        topic_partition: TopicPartition,
        recovered: RecoveredLog,
        *,
        topic_id: TopicId | None,
        producers: ProducerStates,
        leader_epochs: LeaderEpochs,
        recovery_point: int,
        log_start_offset: int,
        clock: Clock,
        compacted_end: int | None,
        on_recovery_point_lowered: Callable[[], None],
        on_gap: Callable[[], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.recovery_report: RecoveryReport = recovered.report
        self._directory = directory
        self._clock = clock
        self._segments = Segments.of(recovered.segments)
        self._active = recovered.segments[-1]
        self._end = recovered.next_offset
        self._start = max(log_start_offset, recovered.segments[0].base_offset)
        self._compacted_end = None if compacted_end is None else min(compacted_end, self._end)
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._on_gap = on_gap
        self._unread_end = self._end if recovered.unread else None
        self._flushing = Flushing(
            directory,
            leader_epochs,
            clock,
            min(recovery_point, self._end),
            names_durable=recovered.unread,
        )
        self._deleted = Removals()
        self.update_config(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        *,
        topic_partition: TopicPartition,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        closed: ClosedLog | None = None,
        pool: FilePool | None = None,
        cache: IndexCache | None = None,
        compacted_end: int | None = None,
        on_recovery_point_lowered: Callable[[], None] = lambda: None,
        on_gap: Callable[[], None] = lambda: None,
    ) -> Log:
        """Open the log in `directory`, making it when there is none; unless `clean`, everything from the
        recovery point on is checked. With `closed`, what `close` returned, nothing is read that fits it.

        `on_gap` is called before the first gap in the offsets is stored, and has to store `compacted_end`.
        Blocks on the disk. Raises StorageError.
        """
        place = PartitionDirectory(disk, directory, pool or FilePool(disk), cache or IndexCache())
        producers = ProducerStates()
        epochs = LeaderEpochs(disk, directory / LEADER_EPOCH_FILE)
        has_gaps = config.compacts or compacted_end is not None
        recovery = Recovery(place, config, producers, epochs, now_ms=clock.now_ms(), has_gaps=has_gaps)
        return cls(
            place,
            config,
            topic_partition,
            recovery.open(
                clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset, closed=closed
            ),
            topic_id=read_partition_metadata(disk, directory / PARTITION_METADATA_FILE),
            producers=producers,
            leader_epochs=epochs,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clock=clock,
            compacted_end=compacted_end,
            on_recovery_point_lowered=on_recovery_point_lowered,
            on_gap=on_gap,
        )

    @property
    def directory(self) -> Path:
        return self._directory.path

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end

    @property
    def recovery_point(self) -> int:
        """Everything below was flushed, and needs no check after a crash."""
        return self._flushing.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments' logs."""
        return sum(segment.size for segment in self._segments.items)

    @property
    def segment_count(self) -> int:
        return len(self._segments.items)

    @property
    def flushed_end(self) -> int:
        """Everything below would survive a crash of the machine."""
        return self._flushing.flushed_end

    @property
    def unflushed_count(self) -> int:
        """How many offsets a crash of the machine may take."""
        return self._end - self._flushing.flushed_end

    @property
    def compacted_end(self) -> int | None:
        """Below it the log is compacted; None when it never was, so that its offsets have no gaps."""
        return self._compacted_end

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of this moment, the last one active."""
        return self._segments.items

    @property
    def files(self) -> PartitionDirectory:
        """The directory that holds the segments."""
        return self._directory

    @property
    def closed(self) -> bool:
        """Whether the log is no longer in use."""
        return self._flushing.closed

    @property
    def cut_count(self) -> int:
        """How often the log was cut since it was opened: what was read before may not be there any more."""
        return self._flushing.cut_count

    @property
    def failed(self) -> bool:
        """Whether a sync failed, so that nothing may be written any more."""
        return self._flushing.failed

    def update_config(self, config: LogConfig) -> None:
        """Take other settings from now on."""
        self._config = config
        self.admission_rules = Rules.of(config)
        self._stamps = config.stamps_append_time
        self._segment_age_max = config.roll_ms - self._jitter_ms(config)
        self._active.index_interval_bytes = config.index_interval_bytes

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Store the topic's id with the log. Raises StorageError, ProtocolError INCONSISTENT_TOPIC_ID when it
        has another.
        """
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.topic_partition} has topic id {self.topic_id}"
            )
        write_partition_metadata(self._directory.disk, self.directory / PARTITION_METADATA_FILE, topic_id)
        self.topic_id = topic_id

    # Appending

    def append(self, records: bytearray | memoryview, leader_epoch: int, *, now_ms: int) -> Appended:
        """Store one or more whole batches as the leader, all or nothing; offsets and epoch (and time, if so
        configured) are filled in in place.

        Raises CorruptRecordsError, ProtocolError (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE), StorageError; then nothing
        was stored.
        """
        if len(records) > self._config.segment_bytes:
            raise ProtocolError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} bytes do not fit a segment of {self._config.segment_bytes}",
            )
        header = read_header(records)
        if header.batch_length + LENGTH_OVERHEAD != len(records):
            return self._append_several(records, leader_epoch, now_ms)
        validate_batch(records, 0, header, size_max=self._config.max_message_bytes)
        if header.producer_id >= 0 and (original := self.producers.check(header)) is not None:
            return self._duplicate(original)
        appended = self._append_one(records, header, leader_epoch, now_ms)
        if header.producer_id >= 0:
            self.producers.appended(header, appended.first_offset, now_ms)
        return appended

    def append_marker(self, batch: bytearray, marker: Marker, leader_epoch: int, *, now_ms: int) -> Appended:
        """End a producer's transaction by the control batch that holds `marker`, as the leader and by order
        of the transaction's coordinator. Without an open transaction it is stored all the same.

        Raises ProtocolError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), StorageError.
        """
        header = read_header(batch)
        self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        appended = self._append_one(batch, header, leader_epoch, now_ms)
        self._note(self.producers.marked(read_header(batch), marker, now_ms))
        return appended

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> Appended:
        """Store batches that a leader sent, as they are; a batch cut off at the end is left out.

        Raises CorruptRecordsError (also for offsets that do not ascend from the log's end), then nothing was
        stored; StorageError, then a part may have been.
        """
        view = memoryview(records)
        batches = batches_from_leader(view, self._end)
        markers = markers_in(view, batches)
        if self._compacted_end is None and has_gaps(batches, self._end):
            self.compacted_to(self._start)
            self._on_gap()
        first_offset = batches[0][1].base_offset if batches else self._end
        now_ms = self._clock.now_ms()
        for group in grouped(batches, self._config.segment_bytes):
            self._store_as_sent(view, group, markers, now_ms)
        return Appended(first_offset, self._end - 1, NO_TIMESTAMP, self._start, False)

    def _store_as_sent(
        self, view: memoryview, batches: PositionedBatches, markers: Mapping[int, Marker], now_ms: int
    ) -> None:
        start, (last_position, last) = batches[0][0], batches[-1]
        for _, header in batches:
            if header.leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        placed = [
            PlacedBatch(position - start, header.size, header.last_offset, header.max_timestamp)
            for position, header in batches
        ]
        self._store(view[start : last_position + last.size], placed, batches[0][1].base_offset, now_ms)
        for position, header in batches:
            self._note(self.producers.replay(header, now_ms, markers.get(position)))

    def _note(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self._active.note_aborted(aborted)

    def _append_one(
        self, records: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """The hot path: one batch that was found good."""
        first_offset = self._end
        rebase(records, 0, first_offset, leader_epoch)
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if self._stamps:
            stamp_append_time(records, 0, header, now_ms)
            max_timestamp = append_time = now_ms
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, first_offset)
        last_offset = first_offset + header.last_offset_delta
        placed = PlacedBatch(0, len(records), last_offset, max_timestamp)
        self._store(records, (placed,), first_offset, now_ms)
        return Appended(first_offset, last_offset, append_time, self._start, False)

    def _append_several(self, records: bytearray | memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Several batches in one append; those that were stored before are left out, and count as stored
        where they are.
        """
        view = memoryview(records)
        batches = validate_batches(view, size_max=self._config.max_message_bytes)
        verdicts = self.producers.check_all(header for _, header in batches)
        fresh = [batch for batch, verdict in zip(batches, verdicts, strict=True) if verdict is None]
        originals = [verdict for verdict in verdicts if verdict is not None]
        if not fresh:
            whole = originals[0]._replace(last_offset=originals[-1].last_offset)
            return self._duplicate(whole)
        appended = self._append_fresh(view, fresh, leader_epoch, now_ms)
        if not originals:
            return appended
        return appended._replace(first_offset=min(originals[0].first_offset, appended.first_offset))

    def _append_fresh(
        self, view: memoryview, batches: PositionedBatches, leader_epoch: int, now_ms: int
    ) -> Appended:
        first_offset = offset = self._end
        placed, start = [], 0
        for position, header in batches:
            rebase(view, position, offset, leader_epoch)
            if self._stamps:
                stamp_append_time(view, position, header, now_ms)
            timestamp = now_ms if self._stamps else header.max_timestamp
            placed.append(PlacedBatch(start, header.size, offset + header.last_offset_delta, timestamp))
            offset += header.last_offset_delta + 1
            start += header.size
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, first_offset)
        if start == len(view):
            self._store(view, placed, first_offset, now_ms)
        else:
            self._store(
                b"".join(view[at : at + header.size] for at, header in batches), placed, first_offset, now_ms
            )
        self._remember_producers(batches, first_offset, now_ms)
        append_time = now_ms if self._stamps else NO_TIMESTAMP
        return Appended(first_offset, offset - 1, append_time, self._start, False)

    def _remember_producers(self, batches: PositionedBatches, first_offset: int, now_ms: int) -> None:
        offset, seen = first_offset, set()
        for _, header in batches:
            if header.producer_id >= 0:
                self.producers.appended(header, offset, now_ms, joins=header.producer_id in seen)
                seen.add(header.producer_id)
            offset += header.last_offset_delta + 1

    def _duplicate(self, original: Original) -> Appended:
        append_time = original.timestamp if self._stamps else NO_TIMESTAMP
        return Appended(original.first_offset, original.last_offset, append_time, self._start, True)

    def _store(
        self,
        data: bytes | bytearray | memoryview,
        placed: Sequence[PlacedBatch],
        first_offset: int,
        now_ms: int,
    ) -> None:
        """Write batches that end at the last of `placed` to the active segment, rolled before when it is
        time.
        """
        self._flushing.check_not_failed()
        last_offset, timestamp = placed[-1].last_offset, placed[-1].max_timestamp
        if self._must_roll(len(data), last_offset, timestamp, now_ms):
            self._roll(first_offset, now_ms)
        self._active.append(data, placed)
        self._end = last_offset + 1

    # Rolling

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises StorageError."""
        if self._active.size:
            self._roll(self._end, self._clock.now_ms())

    def _must_roll(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        """Whether size, age, full indexes or the reach of a relative offset ask for a new segment."""
        active, config = self._active, self._config
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not active.size:
            return False
        first = active.first_timestamp()
        age = timestamp - first if timestamp >= 0 and first >= 0 else now_ms - active.created_ms
        return (
            active.size + size > config.segment_bytes
            or age > self._segment_age_max
            or active.indexes_full(config.segment_index_bytes_max)
        )

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Seal the active segment and begin one at `base_offset`. Nothing is synced here: the next flush does
        that.
        """
        snapshot = self._directory.write_snapshot(base_offset, self.producers.snapshot())
        segment = self._directory.create_segment(base_offset, self._config, now_ms)
        try:
            self._active.seal()
        except StorageError:
            segment.retire()
            raise
        with self._flushing.lock:
            self._segments = Segments.of([*self._segments.items, segment])
            self._active = segment
            self._flushing.names_changed(snapshot)

    def _jitter_ms(self, config: LogConfig) -> int:
        """A part of the jitter that differs between partitions, so that they do not all roll at once."""
        return crc32(str(self.topic_partition).encode()) % (
            min(config.segment_jitter_ms, config.segment_ms) + 1
        )

    # Reading

    def read(self, offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool = True) -> FileRange:
        """Whole batches from the one that holds `offset`, as many as fit `max_bytes` and lie below `up_to`;
        EMPTY when there are none.

        With `min_one_batch` the first one comes even if it is larger. Never more than one segment's. Raises
        ProtocolError OFFSET_OUT_OF_RANGE, CorruptRecordsError for a damaged file, StorageError.
        """
        end = self._end
        if not self._start <= offset <= end:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within {self._start} to {end}"
            )
        up_to = min(up_to, end)
        if offset >= up_to or (max_bytes <= 0 and not min_one_batch):
            return EMPTY
        items, bases = self._segments
        index = bisect_right(bases, offset) - 1
        segment = items[index]
        start = segment.locate(offset)
        while start >= segment.size and index + 1 < len(items):  # compaction emptied the rest of the segment
            index += 1
            segment = items[index]
            start = segment.locate(offset)
        after = bases[index + 1] if index + 1 < len(bases) else end
        if up_to >= after:
            limit, next_offset = segment.size, after
        else:
            limit, next_offset = segment.locate(up_to), up_to
        stop = limit
        if limit - start > max_bytes:
            stop, next_offset = segment.fit(start, limit, max_bytes)
            if stop == start and min_one_batch:
                stop, next_offset = segment.after(start)
        if stop <= start:
            return EMPTY
        segment.remember(next_offset, stop)
        return FileRange(segment.log, start, stop - start, offset, next_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest transaction begins that is open, or ended by a marker that is not committed; at
        most the high watermark.
        """
        if not (transactions := self.producers.transactions):
            return high_watermark
        unstable = transactions.first_unstable(high_watermark)
        return high_watermark if unstable is None else max(min(unstable, high_watermark), self._start)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records or a marker between two offsets, of which `end` is outside. Raises
        StorageError.
        """
        items = self._segments.items
        return overlapping(
            (items[at].aborted for at in range(self._segments.floor(start), len(items))), start, end
        )

    def size_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one that holds offset `start` up to offset `end`.

        Raises CorruptRecordsError for a damaged file, StorageError.
        """
        items, first, last = self._segments.items, self._segments.floor(start), self._segments.floor(end)
        whole = sum(segment.size for segment in items[first:last])
        until = items[last].size if end >= self._end else items[last].locate(end)
        return whole + until - items[first].locate(start)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, or marker of a transaction, whose timestamp is at or after `timestamp` (ms).

        Raises CorruptRecordsError, StorageError.
        """
        for segment in self._segments.items:
            if segment.largest_timestamp() >= timestamp and segment.size:
                for position, header in segment.batches_since(timestamp, self._start):
                    if (found := self._record_since(segment, position, header, timestamp)) is not None:
                        return found
        return None

    def offset_of_largest_timestamp(self) -> TimestampedOffset | None:
        """The first record, or marker, that has the largest timestamp of all; None also when compaction
        emptied the batch that had it. Raises CorruptRecordsError, StorageError.
        """
        largest = max(segment.largest_timestamp() for segment in self._segments.items)
        return None if largest < 0 else self.offset_for_timestamp(largest)

    def _record_since(
        self, segment: Segment, position: int, header: BatchHeader, timestamp: int
    ) -> TimestampedOffset | None:
        data = FileRange(segment.log, position, header.size, header.base_offset, header.next_offset).read()
        for batch in read_batches(data, start_offset=self._start, size_max=UNCOMPRESSED_SIZE_MAX):
            for record in batch.records:
                if record.timestamp >= timestamp:
                    return TimestampedOffset(record.offset, record.timestamp)
        return None

    # Flushing

    def flush_due(self) -> bool:
        """Whether the flush settings, or a roll, ask for a flush now."""
        return self._flushing.is_due(self._end, self._config)

    def flush(self) -> int:
        """Make durable what was appended before the call; the offset up to which everything is. Blocks; any
        thread.

        Raises DiskFailedError when a sync fails: the log takes no appends after that.
        """
        return self._flushing.flush(lambda: (self._end, self._segments.items))

    # Removing

    def delete_old_segments(self, now_ms: int, *, end_offset_max: int | None = None) -> list[DeletedSegment]:
        """Remove the oldest segments as retention and the log start offset ask, none that ends above
        `end_offset_max` (high watermark).

        The files get `.deleted` names; `remove_deleted` frees their space after `file.delete.delay.ms`.
        Raises StorageError.
        """
        items = self._segments.items
        ages = self._expired(now_ms, end_offset_max)
        count = len(ages)
        if count == len(items):
            self._roll(self._end, now_ms)
        deleted = [
            DeletedSegment(base_offset=segment.base_offset, next_offset=age.next_offset, size=segment.size)
            for segment, age in zip(items[:count], ages, strict=True)
        ]
        self._drop_segments(self._segments.items[:count])
        if count:
            self.advance_start(self._segments.bases[0])
        return deleted

    def expired_segments(self, now_ms: int, *, end_offset_max: int) -> list[tuple[Segment, SegmentAge]]:
        """What `delete_old_segments` would remove now, with the exact end of each."""
        ages = self._expired(now_ms, end_offset_max)
        return list(zip(self._segments.items[: len(ages)], ages, strict=True))

    def _expired(self, now_ms: int, end_offset_max: int | None) -> list[SegmentAge]:
        items = self._segments.items
        ages = (
            SegmentAge(next_offset, segment.size, self._latest_ms(segment))
            for segment, next_offset in zip(items, [*self._segments.bases[1:], self._end], strict=True)
            if segment.size or segment is not self._active
        )
        return expired(
            ages,
            self._config,
            size=self.size,
            log_start_offset=self._start,
            end_offset_max=self._end if end_offset_max is None else end_offset_max,
            now_ms=now_ms,
        )

    def advance_start(self, offset: int) -> None:
        """Let the log start at `offset` or later: what lies below can no longer be read. Raises ProtocolError
        OFFSET_OUT_OF_RANGE.
        """
        if offset > self._end:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self._end}"
            )
        if offset > self._start:
            self._start = offset
            self.leader_epochs.cut_start(offset)

    @property
    def awaits_removal(self) -> bool:
        """Whether files wait for `remove_deleted`: nearly never, and asked of all logs every second."""
        return bool(self._deleted)

    def remove_deleted(self, now_ms: int | None = None) -> int:
        """Free the space of segments removed before, of those that are due at `now_ms` (monotonic; None: of
        all); how many files went. Blocks; any thread. Raises StorageError.
        """
        paths = self._deleted.take(now_ms)
        for path in paths:
            self._directory.disk.remove(path)
        return len(paths)

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that ends at or after `offset`, durably. Raises StorageError."""
        if offset >= self._end:
            return
        if offset <= self._segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        index = self._segments.floor(offset)
        kept, dropped = self._segments.items[: index + 1], self._segments.items[index + 1 :]
        self._drop_segments(dropped[::-1])
        self._directory.sync()  # before the cut: no crash may leave a hole
        self._after_cut(kept[-1], kept[-1].cut(offset))
        self._start = min(self._start, self._end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove every record and go on from `offset`, durably. Raises StorageError."""
        self._directory.remove_snapshots(self._directory.snapshot_offsets())
        self._drop_segments(self._segments.items[::-1])
        self._directory.sync()
        segment = self._directory.create_segment(offset, self._config, self._clock.now_ms())
        self._segments = Segments.of([segment])
        self._start = offset
        self.leader_epochs.clear()
        self._after_cut(segment, offset)

    def _after_cut(self, active: Segment, end: int) -> None:
        """Make the state fit a log that now ends with `active` at offset `end`."""
        active.indexes_durable = False
        with self._flushing.lock:
            self._active = active
            self._end = end
            lowered = self._flushing.cut(end)
        if self._compacted_end is not None:
            self._compacted_end = min(self._compacted_end, end)
        self.leader_epochs.cut_end(end)
        self._reload_producers()
        self._directory.sync()
        if lowered:
            self._on_recovery_point_lowered()

    def _reload_producers(self) -> None:
        recovery = Recovery(
            self._directory,
            self._config,
            self.producers,
            self.leader_epochs,
            now_ms=self._clock.now_ms(),
            has_gaps=True,
        )
        recovery.reload_producers(self._segments.items, self._end)

    def _drop_segments(self, dropped: Sequence[Segment]) -> None:
        """Take segments out of the list, then give their files `.deleted` names in the order given."""
        if not dropped:
            return
        gone = set(dropped)
        with self._flushing.lock:
            self._segments = Segments.of([segment for segment in self._segments.items if segment not in gone])
            self._flushing.names_changed()
        for segment in dropped:
            paths = segment.mark_deleted(self._directory.disk)
            self._directory.remove_snapshots([segment.base_offset])
            self._remove_later(paths)

    def _remove_later(self, paths: Sequence[Path]) -> None:
        self._deleted.add(paths, due_ms=self._clock.monotonic_ms() + self._config.file_delete_delay_ms)

    def _latest_ms(self, segment: Segment) -> int:
        latest = segment.largest_timestamp()
        return latest if latest >= 0 else segment.modified_ms

    # Compaction

    def holds(self, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
        """Whether these sealed segments are in use, side by side, with the sizes they had."""
        items = self._segments.items
        if self.closed or not segments or segments[0] not in items:
            return False
        start = items.index(segments[0])
        end = start + len(segments)
        return (
            end < len(items)
            and items[start:end] == tuple(segments)
            and [segment.size for segment in segments] == list(sizes)
        )

    def replace_segments(self, replaced: Sequence[Segment], cleaned: CleanedSegment) -> None:
        """Put what was written anew in the place of the segments that it was made of, which `holds` is true
        of. Nothing is synced: `files.sync` does that. Raises StorageError.
        """
        new, removable = take_place(
            self._directory, cleaned, replaced, self._config, now_ms=self._clock.now_ms()
        )
        items = self._segments.items
        start = items.index(replaced[0])
        with self._flushing.lock:
            self._segments = Segments.of([*items[:start], new, *items[start + len(replaced) :]])
            self._flushing.names_changed()
        self._remove_later(removable)

    def compacted_to(self, offset: int) -> None:
        """The log is compacted below `offset`, and may have gaps in its offsets from now on."""
        self._compacted_end = offset

    # Ending

    def expire_producers(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forget idempotent producers not heard of for so long; how many went."""
        return self.producers.expire(now_ms, expiration_ms)

    def close(self) -> ClosedLog | None:
        """Flush everything and close the files; what the next opening needs to know, None when a sync failed.
        Blocks. Raises StorageError.
        """
        closed = None
        if not self.failed:
            if self._unread_end != self._end or not self._flushing.is_idle(self._end):
                self._complete_files()
            closed = self._active.closed(self._end)
            self.remove_deleted()
        self.abandon()
        return closed

    def _complete_files(self) -> None:
        snapshot = self._directory.write_snapshot(self._end, self.producers.snapshot())
        self._active.seal()
        with self._flushing.lock:
            self._flushing.names_changed(snapshot)
        self.flush()
        for index in self._active.files()[1:]:
            with index as file:
                file.sync()

    def abandon(self) -> None:
        """Close the files and leave everything else to recovery."""
        self._flushing.close()
        for segment in self._segments.items:
            segment.retire()

    def delete(self) -> None:
        """Close the log and remove its directory with all that is in it. Blocks. Raises StorageError."""
        self.abandon()
        remove_partition_directory(self._directory.disk, self.directory)
