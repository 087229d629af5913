"""One pass of the cleaner over one log.

The dirty part is read into a map of the newest offset of each key, as far as its memory goes; then every
segment from the log's start to where the map ends is written anew without what is superseded, neighbours
together, and takes the place of the old ones, group by group. A pass that is cut off anywhere has changed
nothing that a reader could see, and the next one begins where this one did.

`steps` is the control flow: it belongs to the log's own thread and yields what blocks, to be called in any
one thread at a time. Readers and appends never wait for it: they go on with the old segments until the new
one is there. Names change in the log's thread between two steps, after it has made sure that the old
segments are still what they were: a log that was cut, deleted or closed meanwhile ends the pass.

A batch that unpacks to too much (`unpacking`) is never opened: it stays as it is, its keys are not in the
map, and `batch_filter` says what else stays for its sake.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from broker.errors import BrokerError, CorruptRecordsError, ExpansionError, StorageError
from broker.records.message_set import read_message
from broker.records.reader import read_keys
from broker.storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from broker.storage.compaction.aborted import Transactions
from broker.storage.compaction.batch_filter import BatchFilter, ProducerEnd, Rules
from broker.storage.compaction.cleanable import CleanableRange, SegmentSize, grouped
from broker.storage.compaction.offset_map import OffsetMap
from broker.storage.compaction.unpacking import UNPACKED_MAX, unpacked_max
from broker.storage.dump_line import Damage
from broker.storage.index import RELATIVE_OFFSET_MAX
from broker.storage.log import Log
from broker.storage.segment import Segment
from broker.storage.stored_batches import stored_header
from broker.storage.stored_entries import StoredEntry, stored_entries
from broker.storage.transaction_index import overlapping

Work = Callable[[], None]


class CleaningEndedError(BrokerError):
    """The pass was told to end, or its log changed under it: nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningBounds:
    """What one pass may use; sizes in bytes."""

    map_bytes: int
    map_load_factor: float
    buffer_bytes: int
    """Read and written at a time."""
    batch_size_max: int
    """Of one batch as it is stored."""
    unpacked_max: int = UNPACKED_MAX
    """Of one batch uncompressed."""


@dataclass(slots=True, kw_only=True)
class CleaningReport:
    """What a pass did; sizes in bytes, offsets as the range went."""

    start_offset: int
    end_offset: int
    segments_before: int = 0
    segments_after: int = 0
    size_before: int = 0
    size_after: int = 0
    read_size: int = 0
    keys: int = 0
    unopened: int = 0
    """Batches of the dirty part that stay as they are because they unpack to too much."""
    first_unopened_offset: int = -1


class Cleaning:
    """See the module's description."""

    def __init__(
        self,
        log: Log,
        cleanable: CleanableRange,
        bounds: CleaningBounds,
        *,
        now_ms: int,
        pace: Callable[[int], None] = lambda _: None,
        checkpoint: Work = lambda: None,
    ) -> None:
        """`pace` is told of every so many bytes read or written: it may wait, and raises CleaningEndedError
        when the pass is to end. `checkpoint` stores how far logs are compacted.
        """
        self._log = log
        self._bounds = bounds
        self._now_ms = now_ms
        self._pace = pace
        self._checkpoint = checkpoint
        self._range = cleanable
        self._newest = OffsetMap(bytes_max=bounds.map_bytes, load_factor=bounds.map_load_factor)
        self._segments = [
            segment for segment in log.segments[:-1] if segment.base_offset < cleanable.end_offset
        ]
        self._next_offsets = [segment.base_offset for segment in log.segments[1 : len(self._segments) + 1]]
        self._sizes = [segment.size for segment in self._segments]
        clean = [
            segment.modified_ms for segment in self._segments if segment.base_offset < cleanable.start_offset
        ]
        # Tombstones of magic 0 and 1 go from segments that were not written to after this time.
        self._legacy_horizon_ms = clean[-1] - log.config.delete_retention_ms if clean else -1
        self._producers = {
            producer_id: ProducerEnd(entry.epoch, entry.appends[-1].last_offset if entry.appends else None)
            for producer_id, entry in log.producers
        }
        self._aborted = overlapping(
            (segment.aborted for segment in log.segments), log.segments[0].base_offset, cleanable.end_offset
        )
        self._filter: BatchFilter
        self._transactions: Transactions
        self._groups: list[slice] = []
        self._cleaned: CleanedSegment | None = None
        self._writer: CleanedSegmentWriter | None = None
        self.report = CleaningReport(start_offset=cleanable.start_offset, end_offset=cleanable.start_offset)

    def steps(self) -> Generator[Work, None, None]:
        """See the module's description. Raises CleaningEndedError, CorruptRecordsError for a log that cannot
        be compacted, StorageError; so do the steps.
        """
        try:
            yield self._guarded(0, self._read_dirty)
            if self._log.compacted_end is None:
                # Gaps in offsets must be known for what they are before there is any.
                self._log.compacted_to(self._log.log_start_offset)
                yield self._checkpoint
            for group in self._groups:
                yield self._guarded(group.start, partial(self._write_anew, group))
                yield from self._replace(group)
            self._log.compacted_to(self.report.end_offset)
            yield self._checkpoint
        finally:
            self._discard()

    def _replace(self, group: slice) -> Iterator[Work]:
        report, replaced = self.report, self._segments[group]
        size_before = sum(self._sizes[group])
        report.segments_before += len(replaced)
        report.segments_after += 1
        report.size_before += size_before
        if self._cleaned is None:
            report.size_after += size_before
            return
        self._require_unchanged(group.start)
        cleaned, self._writer, self._cleaned = self._cleaned, None, None
        self._log.files.replace(replaced, cleaned)
        report.size_after += cleaned.size
        yield self._log.files.directory.sync

    # Reading the dirty part

    def _read_dirty(self) -> None:
        """Fill the map, and see where it ends; then what groups there are to write."""
        transactions = Transactions(self._aborted)
        end = self._range.start_offset
        is_full = False
        for index, segment in enumerate(self._segments):
            if self._next_offsets[index] <= self._range.start_offset:
                continue
            for entry in self._entries(segment):
                if entry.header.next_offset > self._range.end_offset:
                    is_full = True
                elif entry.header.next_offset > self._range.start_offset:
                    is_full = not self._take(entry, transactions)
                    end = end if is_full else entry.header.next_offset
                if is_full:
                    break
            if is_full:
                break
            end = max(end, min(self._next_offsets[index], self._range.end_offset))
        self.report.end_offset = end
        self.report.keys = len(self._newest)
        self._transactions = Transactions(self._aborted)
        rules = Rules(
            newest=self._newest,
            end_offset=end,
            now_ms=self._now_ms,
            delete_retention_ms=self._log.config.delete_retention_ms,
            producers=self._producers,
            size_max=self._bounds.unpacked_max,
        )
        self._filter = BatchFilter(rules, self._transactions)
        self._groups = self._group(end) if end > self._range.start_offset else []

    def _take(self, entry: StoredEntry, transactions: Transactions) -> bool:
        """Put the keys of an entry into the map; False when they no longer fit."""
        header = entry.header
        if header.magic == 2:
            if header.is_control:
                transactions.is_spent(entry.data, header)
                return True
            if transactions.is_aborted(header) or not header.record_count:
                return True
        try:
            keys, offsets = _keys(entry, unpacked_max(header, self._bounds.unpacked_max))
        except ExpansionError:
            if not self.report.unopened:
                self.report.first_unopened_offset = header.base_offset
            self.report.unopened += 1
            return True
        if None in keys:
            offsets = [offset for key, offset in zip(keys, offsets, strict=True) if key is not None]
        present = [key for key in keys if key is not None]
        if not self._newest.has_room(len(present)):
            return False
        self._newest.add(present, offsets)
        return True

    def _group(self, end: int) -> list[slice]:
        """The segments that begin below `end`, in groups that become one each."""
        found = {segment.base_offset: segment for segment in self._log.files.directory.find_segments()}
        sizes = []
        for segment, next_offset in zip(self._segments, self._next_offsets, strict=True):
            if segment.base_offset >= end:
                break
            on_disk = found.get(segment.base_offset)
            if on_disk is None:
                raise CleaningEndedError("a segment is gone")
            sizes.append(
                SegmentSize(
                    base_offset=segment.base_offset,
                    next_offset=next_offset,
                    size=segment.size,
                    offset_index_size=on_disk.offset_index_size or 0,
                    time_index_size=on_disk.time_index_size or 0,
                )
            )
        return list(grouped(sizes, self._log.config, relative_offset_max=RELATIVE_OFFSET_MAX))

    # Writing anew

    def _write_anew(self, group: slice) -> None:
        """Write what is left of a group's segments; nothing is left to do where that is one and all of it."""
        segments, config = self._segments[group], self._log.config
        self._writer = writer = CleanedSegmentWriter(
            self._log.files.directory.disk,
            self._log.directory,
            segments[0].base_offset,
            index_interval_bytes=config.index_interval_bytes,
            buffer_bytes=self._bounds.buffer_bytes,
        )
        is_changed = len(segments) > 1
        for segment in segments:
            keeps_tombstones = segment.modified_ms > self._legacy_horizon_ms
            for entry in self._entries(segment):
                left = self._filter.remainder(
                    entry.data, entry.header, keeps_legacy_tombstones=keeps_tombstones
                )
                if left is entry.data:
                    writer.append(left, entry.header)
                else:
                    is_changed = True
                    if left:
                        writer.append(left, stored_header(left, 0))
                self._pace(len(left))
        aborted = self._transactions.take_kept()
        for segment in segments:
            if segment.aborted is not None:  # what was not looked at stays in the index, as in the log
                aborted += segment.aborted.transactions(self.report.end_offset)
        if is_changed:
            self._cleaned = writer.finish(aborted, modified_ms=segments[-1].modified_ms)
        else:
            self._discard()

    def _entries(self, segment: Segment) -> Iterator[StoredEntry]:
        """Every entry of a segment, whole. Raises CorruptRecordsError for one that is not."""
        with segment.log as file:
            for entry in stored_entries(
                file,
                segment.size,
                entry_bytes_max=self._bounds.batch_size_max,
                read_bytes=self._bounds.buffer_bytes,
            ):
                damage = entry if isinstance(entry, Damage) else entry.damage
                if damage is not None:
                    raise CorruptRecordsError(
                        f"{segment.log.path} at position {damage.position}: {damage.message}"
                    )
                assert isinstance(entry, StoredEntry), "damage was looked at"
                self.report.read_size += entry.header.size
                self._pace(entry.header.size)
                yield entry

    # Ending

    def _guarded(self, first: int, work: Work) -> Work:
        """Work on the segments from the one at index `first` on: where they changed under it, its errors mean
        nothing else.
        """

        def guarded() -> None:
            try:
                work()
            except (CorruptRecordsError, StorageError):
                self._require_unchanged(first)
                raise

        return guarded

    def _require_unchanged(self, first: int) -> None:
        """Raise CleaningEndedError unless the segments from the one at index `first` on are what they were:
        the map must not name records that are gone.
        """
        in_use = self._log.files.segments
        if (
            self._log.closed
            or self._log.being_cut
            or not in_use.holds(self._segments[first:], self._sizes[first:])
        ):
            raise CleaningEndedError(f"{self._log.topic_partition} changed")

    def _discard(self) -> None:
        if self._writer is not None:
            with suppress(StorageError):  # a directory that is gone, or the next start removes them
                self._writer.discard()
            self._writer = None
        self._cleaned = None


def _keys(entry: StoredEntry, size_max: int) -> tuple[list[bytes | None], list[int]]:
    """Keys and offsets of the records in an entry. Raises CorruptRecordsError; ExpansionError when they
    unpack to more than `size_max` bytes.
    """
    if entry.header.magic == 2:
        return read_keys(entry.data, entry.header, size_max=size_max)
    records = read_message(entry.data, size_max=size_max)
    return [record.key for record in records], [record.offset for record in records]
