"""The files of one log as they change: segments are appended to, begun, dropped, replaced and cut.

The list of segments is replaced, never changed, and always under the lock of `flushing`, where flushes in
other threads look at it. What the records mean is not known here. A write that fails is cut back.

Everything runs on the event loop's thread, except `flush` and `remove_deleted`, which block on the disk and
may run in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from broker.clock import Clock
from broker.errors import StorageError
from broker.storage.appends import PlacedBatch
from broker.storage.cleaned_segment import CleanedSegment, take_place
from broker.storage.closed_logs import ClosedLog
from broker.storage.flush_watch import FlushWatch
from broker.storage.flushing import Flushing
from broker.storage.index import RELATIVE_OFFSET_MAX
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_config import UNLIMITED, LogConfig
from broker.storage.log_segments import LogSegments
from broker.storage.partition_directory import PartitionDirectory
from broker.storage.producers import ProducerStates
from broker.storage.recovery import RecoveredLog
from broker.storage.removals import Removals
from broker.storage.segment import Segment
from broker.types import Buffer, TopicPartition


class LogFiles:
    """See the module's description. What lies from `start` to before `end`, two offsets, may be read."""

    __slots__ = (
        "_clock",
        "_config",
        "_flushes",
        "_jitter",
        "_leader_epochs",
        "_producers",
        "_removals",
        "_roll_ms",
        "_unread_end",
        "_watch",
        "active",
        "directory",
        "end",
        "flushing",
        "segments",
        "start",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogConfig,
        recovered: RecoveredLog,
        clock: Clock,
        *,
        producers: ProducerStates,
        leader_epochs: LeaderEpochs,
        recovery_point: int,
        log_start_offset: int,
        topic_partition: TopicPartition,
        watch: FlushWatch,
    ) -> None:
        self.directory = directory
        self.segments = LogSegments.of(recovered.segments)
        self.active = recovered.segments[-1]
        self.start = max(log_start_offset, recovered.segments[0].base_offset)
        self.end = recovered.next_offset
        self.flushing = Flushing(
            directory,
            leader_epochs,
            clock,
            min(recovery_point, self.end),
            names_durable=recovered.unread,
        )
        self._clock = clock
        self._leader_epochs = leader_epochs
        self._producers = producers
        self._jitter = crc32(str(topic_partition).encode())
        self._unread_end = self.end if recovered.unread else None
        self._removals = Removals()
        self._watch = watch
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take other settings from now on."""
        self._config = config
        self._flushes = min(config.flush_messages, config.flush_ms) < UNLIMITED
        if self._flushes:
            self._watch.watch(self)
        # A part of the jitter that differs between partitions, so that they do not all roll at once.
        self._roll_ms = config.roll_ms - self._jitter % (min(config.segment_jitter_ms, config.segment_ms) + 1)
        self.active.index_interval_bytes = config.index_interval_bytes

    # Growing

    def store(self, data: Buffer, placed: Sequence[PlacedBatch], first_offset: int, now_ms: int) -> None:
        """Write batches, `placed` in `data`, to the active segment, which is rolled before when it is time.
        Raises StorageError.
        """
        self.flushing.check_not_failed()
        last_offset, timestamp = placed[-1].last_offset, placed[-1].max_timestamp
        if self._must_roll(len(data), last_offset, timestamp, now_ms):
            self.roll(first_offset, now_ms)
        self.active.append(data, placed)
        self.active.modified_ms = now_ms
        self.end = last_offset + 1

    def _must_roll(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        """Whether size, age, full indexes or the reach of a relative offset ask for a new segment."""
        active, config = self.active, self._config
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not active.size:
            return False
        first = active.first_timestamp()
        age = timestamp - first if timestamp >= 0 and first >= 0 else now_ms - active.created_ms
        return (
            active.size + size > config.segment_bytes
            or age > self._roll_ms
            or active.indexes_full(config.segment_index_bytes_max)
        )

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Seal the active segment and begin one at `base_offset`. Nothing is synced here: the next flush does
        that. Raises StorageError.
        """
        snapshot = self.directory.write_snapshot(base_offset, self._producers.snapshot())
        segment = self.directory.create_segment(base_offset, self._config, now_ms)
        try:
            self.active.seal()
        except StorageError:
            segment.retire()
            raise
        with self.flushing.lock:
            self.segments = LogSegments.of([*self.segments.items, segment])
            self.active = segment
            self.flushing.names_changed(snapshot)
        self._watch.watch(self)

    # Flushing

    def flush_due(self) -> bool:
        """Whether the flush settings, or a roll, ask for a flush now."""
        return self.flushing.is_due(self.end, self._config)

    def may_come_due(self) -> bool:
        """Whether `flush_due` may be true before the next roll or change of settings."""
        return self._flushes or self.flushing.rolled

    def flush(self) -> int:
        """Make durable what was stored before the call; the offset up to which everything is. Blocks; any
        thread. Raises StorageError.
        """
        try:
            return self.flushing.flush(lambda: (self.end, self.segments.items))
        except StorageError:
            self._watch.watch(self)  # what a roll left to be synced still waits
            raise

    def settle(self) -> None:
        """Write what waited in memory for room. Raises StorageError."""
        for segment in self.segments.items[:-1]:
            if not segment.is_sealed:
                segment.seal()
        self._leader_epochs.settle()

    # Shrinking

    def cut_to(self, offset: int) -> bool:
        """Remove every batch that ends at or after `offset`, which is above the first segment's base; whether
        that lowered the recovery point. Raises CorruptRecordsError, and then all is as it was; StorageError.
        """
        index = self.segments.floor(offset)
        kept, dropped = self.segments.items[: index + 1], self.segments.items[index + 1 :]
        kept[-1].locate(offset)  # before anything goes: it is remembered, and fails in a damaged file
        self.drop(dropped[::-1])
        self.directory.sync()  # before the cut: no crash may leave a hole
        return self._cut(kept, kept[-1].cut(offset))

    def restart_at(self, offset: int) -> bool:
        """Remove every record and begin an empty segment at `offset`; whether that lowered the recovery
        point. Raises StorageError.
        """
        self.directory.remove_snapshots(self.directory.snapshot_offsets())
        self.drop(self.segments.items[::-1])
        self.directory.sync()
        return self._cut([self.directory.create_segment(offset, self._config, self._clock.now_ms())], offset)

    def _cut(self, segments: Sequence[Segment], end: int) -> bool:
        """Go on with these segments only, the last one active, from `end` on."""
        segments[-1].indexes_durable = False
        with self.flushing.lock:
            self.segments = LogSegments.of(segments)
            self.active = segments[-1]
            self.end = end
            return self.flushing.cut(end)

    def drop(self, dropped: Sequence[Segment]) -> None:
        """Take segments out of the list, then give their files `.deleted` names in the order given. Raises
        StorageError.
        """
        if not dropped:
            return
        gone = set(dropped)
        with self.flushing.lock:
            self.segments = LogSegments.of(
                [segment for segment in self.segments.items if segment not in gone]
            )
            self.flushing.names_changed()
        for segment in dropped:
            paths = segment.mark_deleted(self.directory.disk)
            self.directory.remove_snapshots([segment.base_offset])
            self._remove_later(paths)

    def replace(self, replaced: Sequence[Segment], cleaned: CleanedSegment) -> None:
        """Put what was written anew in the place of the segments that it was made of, which are all in use.
        Nothing is synced: `directory.sync` does that. Raises StorageError.
        """
        new, removable = take_place(
            self.directory, cleaned, replaced, self._config, now_ms=self._clock.now_ms()
        )
        with self.flushing.lock:
            self.segments = self.segments.replaced(replaced, new)
            self.flushing.names_changed()
        self._remove_later(removable)

    def _remove_later(self, paths: Sequence[Path]) -> None:
        self._removals.add(paths, due_ms=self._clock.monotonic_ms() + self._config.file_delete_delay_ms)

    @property
    def awaits_removal(self) -> bool:
        """Whether files wait for `remove_deleted`: nearly never, and asked of all logs every few seconds."""
        return bool(self._removals)

    def remove_deleted(self, now_ms: int | None = None) -> int:
        """Free the space of segments removed before, of those that are due at `now_ms` (monotonic; None: of
        all); how many files went. Blocks; any thread. Raises StorageError.
        """
        paths = self._removals.take(now_ms)
        for path in paths:
            self.directory.disk.remove(path)
        return len(paths)

    # Ending

    def close(self) -> ClosedLog | None:
        """Flush everything and close the files; what the next opening needs to know, None when a sync failed.
        Blocks. Raises StorageError.
        """
        closed = None
        if not self.flushing.failed:
            self.settle()
            if self._unread_end != self.end or not self.flushing.is_idle(self.end):
                self._complete()
            closed = self.active.closed(
                self.end,
                segment_count=len(self.segments.items),
                leader_epoch=self._leader_epochs.latest,
            )
            self.remove_deleted()
        self.abandon()
        return closed

    def _complete(self) -> None:
        snapshot = self.directory.write_snapshot(self.end, self._producers.snapshot())
        self.active.seal()
        with self.flushing.lock:
            self.flushing.names_changed(snapshot)
        self.flush()
        for index in self.active.files()[1:]:
            with index as file:
                file.sync()

    def abandon(self) -> None:
        """Close the files and leave everything else to recovery."""
        self.flushing.close()
        self._watch.forget(self)
        for segment in self.segments.items:
            segment.retire()
