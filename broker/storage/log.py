"""One partition's log: what may be read of it, and what is appended, removed and truncated.

Its parts: `LogFiles` holds the segments and makes them durable, `LogWriter` puts batches into them,
`LogSegments` is what is read. Invariants: segments ascend and only the last is appended to;
`log_start_offset <= log_end_offset`; everything below `recovery_point` was flushed. An append is all or
nothing.

Everything runs on the event loop's thread, except `flush`, which blocks on the disk and may run in any thread
(see `flushing` for where the two sides meet), and the truncations of a follower, which block too: they run in
any thread while `being_cut` keeps everybody else away.

A crash of the process loses nothing that `append` returned for; a crash of the machine loses what was
appended after the last `flush` began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.clock import Clock
from broker.errors import ErrorCode, ProtocolError
from broker.records.control import Marker
from broker.records.record import NO_TIMESTAMP
from broker.storage.admission import Rules
from broker.storage.appends import Appended, batches_from_leader, has_gaps, markers_in
from broker.storage.checkpoints import write_partition_metadata
from broker.storage.closed_logs import ClosedLog
from broker.storage.file_range import EMPTY, FileRange
from broker.storage.filenames import PARTITION_METADATA_FILE
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_config import LogConfig
from broker.storage.log_files import LogFiles
from broker.storage.log_segments import TimestampedOffset
from broker.storage.log_writer import LogWriter
from broker.storage.partition_directory import remove_partition_directory
from broker.storage.producers import ProducerStates
from broker.storage.recovery import Recovery, RecoveryReport
from broker.storage.retention import SegmentAge, expired
from broker.storage.segment import Segment
from broker.storage.transactions import AbortedTransaction
from broker.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSegment:
    """A segment that retention removed; its size in bytes."""

    base_offset: int
    next_offset: int
    size: int


class Log:
    """See the module's description."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        files: LogFiles,
        clock: Clock,
        *,
        topic_id: TopicId | None,
        producers: ProducerStates,
        leader_epochs: LeaderEpochs,
        recovery_report: RecoveryReport,
        compacted_end: int | None,
        on_recovery_point_lowered: Callable[[], None],
        on_gap: Callable[[], None],
    ) -> None:
        """See `open_log`, which puts a log together."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.files = files
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.recovery_report = recovery_report
        self.config = config
        self.admission_rules = Rules.of(config)
        self.being_cut = False
        """Set by whoever truncates in another thread: nobody else reads or changes the log meanwhile."""
        self._writer = LogWriter(files, producers, leader_epochs, config)
        self._clock = clock
        self._compacted_end = None if compacted_end is None else min(compacted_end, files.end)
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._on_gap = on_gap

    @property
    def directory(self) -> Path:
        return self.files.directory.path

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.files.start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.files.end

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of this moment, the last one active."""
        return self.files.segments.items

    @property
    def segment_count(self) -> int:
        return len(self.files.segments.items)

    @property
    def size(self) -> int:
        """Bytes of all segments' logs."""
        return self.files.segments.size

    @property
    def recovery_point(self) -> int:
        """Everything below was flushed, and needs no check after a crash."""
        return self.files.flushing.recovery_point

    @property
    def flushed_end(self) -> int:
        """Everything below would survive a crash of the machine."""
        return self.files.flushing.flushed_end

    @property
    def unflushed_count(self) -> int:
        """How many offsets a crash of the machine may take."""
        return self.files.end - self.files.flushing.flushed_end

    @property
    def compacted_end(self) -> int | None:
        """Below it the log is compacted; None when it never was, so that its offsets have no gaps."""
        return self._compacted_end

    @property
    def closed(self) -> bool:
        """Whether the log is no longer in use."""
        return self.files.flushing.closed

    @property
    def cut_count(self) -> int:
        """How often the log was cut since it was opened: what was read before may not be there any more."""
        return self.files.flushing.cut_count

    @property
    def failed(self) -> bool:
        """Whether a sync failed, so that nothing may be written any more."""
        return self.files.flushing.failed

    def update_config(self, config: LogConfig) -> None:
        """Take other settings from now on."""
        if config == self.config:
            return
        self.config = config
        self.admission_rules = Rules.of(config)
        self._writer.update_config(config)
        self.files.update_config(config)

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
        write_partition_metadata(
            self.files.directory.disk, self.directory / PARTITION_METADATA_FILE, topic_id
        )
        self.topic_id = topic_id

    # Appending

    def append(self, records: bytearray | memoryview, leader_epoch: int, *, now_ms: int) -> Appended:
        """Store one or more whole batches as the leader, all or nothing; offsets and epoch (and time, if so
        configured) are filled in in place.

        Raises CorruptRecordsError, ProtocolError (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE), StorageError; then nothing
        was stored.
        """
        return self._writer.append(records, leader_epoch, now_ms)

    def append_unsequenced(self, batch: bytearray, leader_epoch: int, *, now_ms: int) -> Appended:
        """Store, as the leader, one batch that this node's coordinator writes as part of a producer's
        transaction: it has a producer, and no sequence numbers.

        Raises ProtocolError (MESSAGE_TOO_LARGE, INVALID_PRODUCER_EPOCH), StorageError.
        """
        return self._writer.append_unsequenced(batch, leader_epoch, now_ms)

    def append_marker(self, batch: bytearray, marker: Marker, leader_epoch: int, *, now_ms: int) -> Appended:
        """End a producer's transaction by the control batch that holds `marker`, as the leader and by order
        of the transaction's coordinator. Without an open transaction it is stored all the same.

        Raises ProtocolError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), StorageError.
        """
        return self._writer.append_marker(batch, marker, leader_epoch, now_ms)

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> Appended:
        """Store batches that a leader sent, as they are; a batch cut off at the end is left out.

        Raises CorruptRecordsError (also for offsets that do not ascend from the log's end), then nothing was
        stored; StorageError, then a part may have been.
        """
        view = memoryview(records)
        first_offset = self.files.end
        batches = batches_from_leader(view, first_offset)
        markers = markers_in(view, batches)
        if self._compacted_end is None and has_gaps(batches, first_offset):
            self.compacted_to(self.files.start)
            self._on_gap()
        if batches:
            first_offset = batches[0][1].base_offset
            self._writer.append_as_sent(view, batches, markers, self._clock.now_ms())
        return Appended(first_offset, self.files.end - 1, NO_TIMESTAMP, self.files.start, False)

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises StorageError."""
        if self.files.active.size:
            self.files.roll(self.files.end, self._clock.now_ms())

    # Reading

    def read(self, offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool = True) -> FileRange:
        """Whole batches from the one that holds `offset`, as many as fit `max_bytes` and lie below `up_to`;
        EMPTY when there are none.

        With `min_one_batch` the first one comes even if it is larger. Never more than one segment's. Raises
        ProtocolError OFFSET_OUT_OF_RANGE, CorruptRecordsError for a damaged file, StorageError.
        """
        end = self.files.end
        if not self.files.start <= offset <= end:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within {self.files.start} to {end}"
            )
        up_to = min(up_to, end)
        if offset >= up_to or (max_bytes <= 0 and not min_one_batch):
            return EMPTY
        return self.files.segments.read(offset, max_bytes, up_to, end, min_one_batch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest transaction begins that is open, or ended by a marker that is not committed; at
        most the high watermark.
        """
        if not (transactions := self.producers.transactions):
            return high_watermark
        unstable = transactions.first_unstable(high_watermark)
        return high_watermark if unstable is None else max(min(unstable, high_watermark), self.files.start)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records or a marker between two offsets, of which `end` is outside. Raises
        StorageError.
        """
        return self.files.segments.aborted_transactions(start, end)

    def size_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one that holds offset `start` up to offset `end`.

        Raises CorruptRecordsError for a damaged file, StorageError.
        """
        return self.files.segments.size_between(start, end, self.files.end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, or marker of a transaction, whose timestamp is at or after `timestamp` (ms).

        Raises CorruptRecordsError, StorageError.
        """
        return self.files.segments.offset_for_timestamp(timestamp, self.files.start)

    def offset_of_largest_timestamp(self) -> TimestampedOffset | None:
        """The first record, or marker, that has the largest timestamp of all; None also when compaction
        emptied the batch that had it. Raises CorruptRecordsError, StorageError.
        """
        largest = self.files.segments.largest_timestamp()
        return None if largest < 0 else self.offset_for_timestamp(largest)

    # Flushing

    def flush(self) -> int:
        """Make durable what was appended before the call; the offset up to which everything is. Blocks; any
        thread.

        Raises DiskFailedError when a sync fails: the log takes no appends after that.
        """
        return self.files.flush()

    # Removing

    def delete_old_segments(self, now_ms: int, *, end_offset_max: int | None = None) -> list[DeletedSegment]:
        """Remove the oldest segments as retention and the log start offset ask, none that ends above
        `end_offset_max` (high watermark).

        The files get `.deleted` names; `remove_deleted` frees their space after `file.delete.delay.ms`.
        Raises StorageError.
        """
        ages = self._expired(now_ms, end_offset_max)
        if len(ages) == self.segment_count:
            self.files.roll(self.files.end, now_ms)
        expired_segments = self.segments[: len(ages)]
        deleted = [
            DeletedSegment(base_offset=segment.base_offset, next_offset=age.next_offset, size=segment.size)
            for segment, age in zip(expired_segments, ages, strict=True)
        ]
        self.files.drop(expired_segments)
        if deleted:
            self.advance_start(self.files.segments.bases[0])
        return deleted

    def expired_segments(self, now_ms: int, *, end_offset_max: int) -> list[tuple[Segment, SegmentAge]]:
        """What `delete_old_segments` would remove now, with the exact end of each."""
        ages = self._expired(now_ms, end_offset_max)
        return list(zip(self.segments[: len(ages)], ages, strict=True))

    def _expired(self, now_ms: int, end_offset_max: int | None) -> list[SegmentAge]:
        return expired(
            self.files.segments.ages(self.files.end),
            self.config,
            size=self.size,
            log_start_offset=self.files.start,
            end_offset_max=self.files.end if end_offset_max is None else end_offset_max,
            now_ms=now_ms,
        )

    def advance_start(self, offset: int) -> None:
        """Let the log start at `offset` or later: what lies below can no longer be read. Raises ProtocolError
        OFFSET_OUT_OF_RANGE.
        """
        if offset > self.files.end:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self.files.end}"
            )
        if offset > self.files.start:
            self.files.start = offset
            self.leader_epochs.cut_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that ends at or after `offset`, durably.

        Raises CorruptRecordsError when the file is damaged there, and then nothing was removed; StorageError.
        """
        if offset >= self.files.end:
            return
        if offset <= self.files.segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        self._after_cut(self.files.cut_to(offset))
        self.files.start = min(self.files.start, self.files.end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove every record and go on from `offset`, durably. Raises StorageError."""
        lowered = self.files.restart_at(offset)
        self.files.start = offset
        self.leader_epochs.clear()
        self._after_cut(lowered)

    def _after_cut(self, recovery_point_lowered: bool) -> None:
        """Make the state fit files that end earlier than before."""
        if self._compacted_end is not None:
            self._compacted_end = min(self._compacted_end, self.files.end)
        self.leader_epochs.cut_end(self.files.end)
        self._reload_producers()
        self.files.directory.sync()
        if recovery_point_lowered:
            self._on_recovery_point_lowered()

    def _reload_producers(self) -> None:
        recovery = Recovery(
            self.files.directory,
            self.config,
            self.producers,
            self.leader_epochs,
            now_ms=self._clock.now_ms(),
            has_gaps=True,
        )
        recovery.reload_producers(self.segments, self.files.end)

    def compacted_to(self, offset: int) -> None:
        """The log is compacted below `offset`, and may have gaps in its offsets from now on."""
        self._compacted_end = offset

    # Ending

    def close(self) -> ClosedLog | None:
        """Flush everything and close the files; what the next opening needs to know, None when a sync failed.
        Blocks. Raises StorageError.
        """
        return self.files.close()

    def abandon(self) -> None:
        """Close the files and leave everything else to recovery."""
        self.files.abandon()

    def delete(self) -> None:
        """Close the log and remove its directory with all that is in it. Blocks. Raises StorageError."""
        self.abandon()
        remove_partition_directory(self.files.directory.disk, self.directory)
