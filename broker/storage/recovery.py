"""Opening what is on disk: from a clean shutdown by the ends of files, after a crash by a scan.

The scan starts with the segment that holds the recovery point (everything below was flushed) and checks every
batch: header, checksum, offsets that follow each other. The log is cut at the first that fails, whether the
tail is torn or garbage lies in the middle, and later segments go with it: what is left is a prefix of what
was written. So does a segment that does not begin where the one before it ends, unless the log has ever been
compacted: that leaves gaps. What was cut for damage is kept beside the log (`cut_files`).
On the way indexes, leader epochs and producer states are rebuilt; the producers start from the newest
snapshot that was flushed. An index of aborted transactions that no such segment can have, or that is smaller
than it was, is made anew from the snapshot before it; leader epochs that were lost, from the headers of
batches. Cuts are synced, so a second start finds nothing to do.

What a full disk does not take of this stays in memory (`late_writes`), and the log is served from there.

Runs in the thread that opens the log, before anything else uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from broker.errors import CorruptRecordsError, DiskFullError, StorageError
from broker.records.batch import BatchHeader
from broker.storage.checkpoints import read_partition_metadata
from broker.storage.closed_logs import ClosedLog
from broker.storage.cut_files import is_torn, keep_rest, keep_segment
from broker.storage.disk import File
from broker.storage.epoch_starts import epoch_starts, last_epoch
from broker.storage.filenames import PARTITION_METADATA_FILE, FileState, parse_segment_file_name
from broker.storage.leader_epochs import NO_EPOCH, LeaderEpochs
from broker.storage.log_config import LogConfig
from broker.storage.log_holes import Hole, hinted, holes
from broker.storage.partition_directory import FoundSegment, PartitionDirectory
from broker.storage.producer_replay import rebuild_aborted, replay
from broker.storage.producers import ProducerStates
from broker.storage.segment import Segment
from broker.types import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening a log found to do; sizes in bytes."""

    scanned: bool = False
    checked_size: int = 0
    cut_size: int = 0
    segments_removed: int = 0
    is_damaged: bool = False
    """Whether more was cut than the torn end that a crash leaves."""
    kept: tuple[str, ...] = ()
    """Files that have what was cut."""
    lost_size: int = 0
    """Of what was cut for damage, what none of them has, as the disk had no room."""
    indexes_rebuilt: int = 0
    transaction_indexes_rebuilt: int = 0
    files_removed: tuple[str, ...] = ()
    leader_epochs_rebuilt: bool = False
    topic_id_lost: bool = False
    lacked_room: bool = False
    """Whether indexes or leader epochs wait in memory to be written."""
    segments_missing: int = 0
    """How many the last clean end left that are gone."""
    holes: tuple[Hole, ...] = ()

    @property
    def is_notable(self) -> bool:
        """Whether anything was done beside checking what was not flushed, and indexing it."""
        return bool(
            self.cut_size
            or self.segments_removed
            or self.files_removed
            or (self.indexes_rebuilt and not self.scanned)
            or self.transaction_indexes_rebuilt
            or self.leader_epochs_rebuilt
            or self.topic_id_lost
            or self.lacked_room
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """A log as found: its segments, the last one active, and the offset after the last record."""

    segments: tuple[Segment, ...]
    next_offset: int
    report: RecoveryReport
    unread: bool = False
    """Whether it was opened by what its clean end left, with all of it on the disk."""


class Recovery:
    """One opening of one log; see the module's description."""

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogConfig,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        *,
        now_ms: int,
        has_gaps: bool,
        transaction_index_sizes: Mapping[int, int] = MappingProxyType({}),
        on_cut: Callable[[], None] = lambda: None,
    ) -> None:
        """`has_gaps`: offsets may be missing, as compaction leaves the log, here or at its leader.
        `transaction_index_sizes`: what indexes of aborted transactions hold at least (bytes), by their
        segments' base offsets. `on_cut` is called before anything of what a crash left is cut off.
        """
        self.topic_id: TopicId | None = None
        self._directory = directory
        self._config = config
        self._producers = producers
        self._epochs = epochs
        self._now_ms = now_ms
        self._has_gaps = has_gaps
        self._transaction_index_sizes = transaction_index_sizes
        self._on_cut = on_cut
        self._damaged: set[Segment] = set()
        self._newest: FoundSegment | None = None
        self._checked_size = 0
        self._cut_size = 0
        self._segments_removed = 0
        self._is_damaged = False
        self._kept: list[str] = []
        self._lost_size = 0
        self._indexes_rebuilt = 0
        self._transaction_indexes_rebuilt = 0
        self._leader_epochs_rebuilt = False
        self._topic_id_lost = False
        self._segments_missing = 0
        self._holes: tuple[Hole, ...] = ()

    def open(
        self, *, clean: bool, recovery_point: int, log_start_offset: int, closed: ClosedLog | None = None
    ) -> RecoveredLog:
        """Open everything; `closed` is what a clean end noted of the log. Raises StorageError."""
        self._directory.open()
        try:
            self._load_topic_id()
            return self._open(clean, recovery_point, log_start_offset, closed)
        finally:
            self._directory.opened()

    def _load_topic_id(self) -> None:
        """A damaged file costs nothing but itself: who gives the log its role tells the id again."""
        try:
            self.topic_id = read_partition_metadata(
                self._directory.disk, self._directory.path / PARTITION_METADATA_FILE
            )
        except StorageError:
            self._topic_id_lost = True

    def _open(
        self, clean: bool, recovery_point: int, log_start_offset: int, closed: ClosedLog | None
    ) -> RecoveredLog:
        removed = self._directory.tidy()
        segments = self._open_segments()
        if not segments:
            return self._begin(log_start_offset, removed)
        flushed = segments if clean else segments[: _first_unflushed(segments, recovery_point)]
        self._load_epochs(flushed, closed, log_start_offset)
        self._look_for_holes(segments, removed, closed)
        if clean and closed is not None and self._resume(segments, closed):
            return RecoveredLog(
                segments=tuple(segments),
                next_offset=closed.end_offset,
                report=self._report(False, removed, segments),
                unread=True,
            )
        next_offset = self._open_clean(segments) if clean else None
        scanned = next_offset is None
        if next_offset is None:
            with self._epochs.gathered():
                segments, next_offset = self._scan(segments, recovery_point)
        if next_offset < log_start_offset:
            self._remove_segments(segments)
            return self._begin(log_start_offset, removed)
        self._remove_stray_snapshots(segments)
        return RecoveredLog(
            segments=tuple(segments), next_offset=next_offset, report=self._report(scanned, removed, segments)
        )

    def _report(self, scanned: bool, removed: Sequence[str], segments: Sequence[Segment]) -> RecoveryReport:
        is_written = all(segment.is_sealed for segment in segments[:-1]) and not self._epochs.waits_for_room
        return RecoveryReport(
            scanned=scanned,
            checked_size=self._checked_size,
            cut_size=self._cut_size,
            segments_removed=self._segments_removed,
            is_damaged=self._is_damaged,
            kept=tuple(self._kept),
            lost_size=self._lost_size,
            indexes_rebuilt=self._indexes_rebuilt,
            transaction_indexes_rebuilt=self._transaction_indexes_rebuilt,
            files_removed=tuple(removed),
            leader_epochs_rebuilt=self._leader_epochs_rebuilt,
            topic_id_lost=self._topic_id_lost,
            lacked_room=not is_written,
            segments_missing=self._segments_missing,
            holes=self._holes,
        )

    def _begin(self, offset: int, removed: Sequence[str]) -> RecoveredLog:
        """A log without records that starts at `offset`."""
        self._directory.remove_snapshots(self._directory.snapshot_offsets())
        self._producers.clear()
        self._epochs.clear()
        segment = self._directory.create_segment(offset, self._config, self._now_ms)
        return RecoveredLog(
            segments=(segment,), next_offset=offset, report=self._report(False, removed, [segment])
        )

    def _open_segments(self) -> list[Segment]:
        segments = []
        for found in self._directory.find_segments():
            segment = self._directory.open_segment(found, self._config, self._now_ms)
            segment.indexes_durable = True
            if found.indexes_damaged:
                self._damaged.add(segment)
            segments.append(segment)
            self._newest = found
        return segments

    def _rebuild_indexes(self, segments: Sequence[Segment]) -> None:
        """Rebuild those indexes of segments that are taken as they are whose files show that they are
        damaged.
        """
        for segment in segments:
            if segment in self._damaged:
                segment.rebuild_indexes()
                segment.indexes_durable = False
                self._indexes_rebuilt += segment.size > 0

    def _rebuild_aborted(self, segments: Sequence[Segment], end: int) -> None:
        """Make those indexes of aborted transactions anew that no log can have, or that lost entries. Raises
        CorruptRecordsError, StorageError.
        """
        ends = [*(segment.base_offset for segment in segments[1:]), end]
        for index, segment in enumerate(segments):
            stored = segment.aborted
            expected_size = self._transaction_index_sizes.get(segment.base_offset, 0)
            if expected_size > (stored.stored_size if stored is not None else 0) or (
                stored is not None and not stored.plausible(ends[index])
            ):
                rebuild_aborted(self._directory, segments, index, ends[index], now_ms=self._now_ms)
                segment.indexes_durable = False
                self._transaction_indexes_rebuilt += 1

    def reload_producers(self, segments: Sequence[Segment], end: int) -> None:
        """Set the producer states to what they were at offset `end`, where the log was cut; as far as can be
        read, if it is damaged. Raises StorageError.
        """
        with suppress(CorruptRecordsError):  # as after a crash: whoever reads there is told
            self._load_producers(segments, end)

    # After a clean shutdown

    def _resume(self, segments: Sequence[Segment], closed: ClosedLog) -> bool:
        """Take the log as it was closed, reading none of its data; False when its files are not as they were
        left.
        """
        assert self._newest is not None, "called with segments"
        as_closed = self._newest.is_as_closed(closed) and not self._damaged
        if not (as_closed and self._directory.snapshot_offsets()[-1:] == [closed.end_offset]):
            return False
        if self._load_snapshot(closed.end_offset) != closed.end_offset:
            return False
        try:
            self._rebuild_aborted(segments, closed.end_offset)
        except CorruptRecordsError:
            return False
        segments[-1].resume(closed)
        segments[-1].indexes_durable = False
        return True

    def _open_clean(self, segments: Sequence[Segment]) -> int | None:
        """The end of a log that was closed properly; None when it is not what a clean shutdown leaves."""
        active = segments[-1]
        self._rebuild_indexes(segments)
        try:
            next_offset = active.activate()
            active.indexes_durable = False
            self._load_producers(segments, next_offset)
            self._rebuild_aborted(segments, next_offset)
        except CorruptRecordsError:
            self._producers.clear()
            return None
        return next_offset

    def _load_producers(self, segments: Sequence[Segment], end: int) -> None:
        """Producer states as of offset `end`: the newest snapshot up to there, and the headers of what
        follows it.
        """
        start = self._load_snapshot(end)
        replay(self._producers, segments, start, end, now_ms=self._now_ms)

    def _load_snapshot(self, offset_max: int) -> int:
        """Load the newest sound snapshot up to `offset_max`, removing all others that are newer; its offset,
        0 without one.
        """
        for offset in reversed(self._directory.snapshot_offsets()):
            if offset <= offset_max:
                try:
                    self._producers.load(
                        self._directory.disk.read_file(self._directory.snapshot_path(offset))
                    )
                except CorruptRecordsError:
                    pass
                else:
                    return offset
            self._directory.remove_snapshots([offset])
        self._producers.clear()
        return 0

    def _load_epochs(
        self, flushed: Sequence[Segment], closed: ClosedLog | None, log_start_offset: int
    ) -> None:
        """Read the epochs; by the headers of what was flushed, when its epochs are not all there."""
        expected = last_epoch(flushed) if closed is None else closed.leader_epoch
        try:
            self._epochs.load()
        except StorageError:
            is_sound = closed is not None and expected == NO_EPOCH
        else:
            is_sound = self._epochs.latest >= expected
        if not is_sound:
            self._epochs.restore(epoch_starts(flushed))
            self._epochs.cut_start(log_start_offset)
            self._leader_epochs_rebuilt = bool(self._epochs.entries)

    def _look_for_holes(
        self, segments: Sequence[Segment], removed: Sequence[str], closed: ClosedLog | None
    ) -> None:
        """Note segments that are gone, where something hints at it. Raises StorageError."""
        if closed is not None:
            self._segments_missing = max(0, closed.segment_count - len(segments))
        if self._has_gaps:
            return
        names = [name for text in removed if (name := parse_segment_file_name(text)) is not None]
        left_over = [name.offset for name in names if name.state is FileState.LIVE]
        if self._segments_missing or hinted(segments, [*left_over, *self._directory.snapshot_offsets()]):
            self._holes = tuple(holes(segments))

    def _remove_stray_snapshots(self, segments: Sequence[Segment]) -> None:
        """Keep one snapshot per segment, and the newest."""
        wanted = {segment.base_offset for segment in segments}
        self._directory.remove_snapshots(
            offset for offset in self._directory.snapshot_offsets()[:-1] if offset not in wanted
        )

    # After a crash

    def _scan(self, segments: Sequence[Segment], recovery_point: int) -> tuple[list[Segment], int]:
        """Check everything from the recovery point's segment on; the segments that are left and the log's
        end.
        """
        first = _first_unflushed(segments, recovery_point)
        kept = list(segments[:first])
        self._rebuild_indexes(kept)
        expected = segments[first].base_offset
        self._epochs.cut_end(expected)
        self._load_flushed_producers(segments, expected)
        for index, segment in enumerate(segments[first:], start=first):
            if index > first:
                if not self._follows(segment, expected):
                    self._on_cut()
                    self._remove_segments(segments[index:], are_kept=True)
                    break
                self._write_snapshot(segment.base_offset)
            expected, whole = self._scan_segment(segment, max(expected, segment.base_offset))
            kept.append(segment)
            if not whole:
                self._remove_segments(segments[index + 1 :], are_kept=True)
                break
        for segment in kept[first:-1]:
            segment.seal_if_room()
        return kept, expected

    def _load_flushed_producers(self, segments: Sequence[Segment], end: int) -> None:
        with suppress(CorruptRecordsError):  # damage below the recovery point, where no scan goes
            self._load_producers(segments, end)
        with suppress(CorruptRecordsError):
            self._rebuild_aborted([segment for segment in segments if segment.base_offset < end], end)

    def _follows(self, segment: Segment, expected: int) -> bool:
        if self._has_gaps:
            return segment.base_offset >= expected
        return segment.base_offset == expected

    def _scan_segment(self, segment: Segment, expected: int) -> tuple[int, bool]:
        """Check a segment whose records start at or after `expected`, cutting it where damaged; its end, and
        whether it was whole.
        """

        def visit(position: int, header: BatchHeader) -> None:
            aborted = self._producers.replay(header, self._now_ms, segment.marker(position, header))
            if aborted is not None:
                segment.note_aborted(aborted)
            self._note_epoch(header)

        if segment.aborted is not None:
            segment.forget_aborted()
        scan = segment.scan(
            visit, first_offset=expected, gaps=self._has_gaps, latest_epoch=self._epochs.latest
        )
        self._indexes_rebuilt += 1
        self._checked_size += scan.valid_size
        if scan.valid_size == segment.size:
            return scan.next_offset, True
        self._on_cut()
        self._cut_size += segment.size - scan.valid_size
        with segment.log as file:
            if not is_torn(file, scan.valid_size, segment.size, scan.next_offset):
                self._keep_rest(file, scan.valid_size, segment.size, scan.next_offset)
        segment.cut_file(scan.valid_size)
        return scan.next_offset, False

    def _keep_rest(self, file: File, position: int, size: int, offset: int) -> None:
        self._is_damaged = True
        path = keep_rest(self._directory.disk, file, position, size, self._directory.path, offset)
        if path is None:
            self._lost_size += size - position
        else:
            self._kept.append(path.name)

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)

    def _write_snapshot(self, offset: int) -> None:
        with suppress(DiskFullError):  # an older one serves, with more to replay
            self._directory.write_snapshot(offset, self._producers.snapshot())

    def _remove_segments(self, segments: Sequence[Segment], *, are_kept: bool = False) -> None:
        """Remove segments, the newest first, so that a crash in between leaves a prefix. `are_kept`: what is
        in them is, beside the log.
        """
        for segment in reversed(segments):
            self._segments_removed += 1
            self._cut_size += segment.size
            segment.retire()
            if are_kept and segment.size:
                self._is_damaged = True
                kept = keep_segment(self._directory.disk, segment.log.path, segment.base_offset)
                self._kept.append(kept.name)
            for file in segment.files():
                self._directory.disk.remove(file.path)
            self._directory.remove_snapshots([segment.base_offset])
        if segments:
            self._directory.sync()


def _first_unflushed(segments: Sequence[Segment], recovery_point: int) -> int:
    """Index of the segment that holds the recovery point: all before it was flushed."""
    return max(
        index for index, segment in enumerate(segments) if segment.base_offset <= recovery_point or index == 0
    )
