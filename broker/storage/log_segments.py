"""The segments of a log at one moment, and what is read from them.

A value: whoever holds one sees one state while the log goes on. Segments ascend and only the last is appended
to, so the log's end is asked for along with it. Offsets are within the log: that is checked by whoever asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.records.batch import BatchHeader
from broker.records.reader import read_batches
from broker.storage.file_range import EMPTY, FileRange
from broker.storage.retention import SegmentAge
from broker.storage.segment import Segment
from broker.storage.transaction_index import overlapping
from broker.storage.transactions import AbortedTransaction

UNCOMPRESSED_SIZE_MAX = 1 << 30
"""Bound of what one batch may unpack to when a record is looked for by its time."""


class TimestampedOffset(NamedTuple):
    """A record by offset and timestamp (ms)."""

    offset: int
    timestamp: int


class LogSegments(NamedTuple):
    """See the module's description; `bases` are the segments' base offsets, for bisection."""

    items: tuple[Segment, ...]
    bases: tuple[int, ...]

    @classmethod
    def of(cls, items: Sequence[Segment]) -> LogSegments:
        return cls(tuple(items), tuple(segment.base_offset for segment in items))

    @property
    def size(self) -> int:
        """Bytes of all segments' logs."""
        return sum(segment.size for segment in self.items)

    def floor(self, offset: int) -> int:
        """Index of the segment that would hold `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, up_to: int, end: int, min_one_batch: bool) -> FileRange:
        """Whole batches of one segment from the one that holds `offset`, as many as fit `max_bytes` and lie
        below `up_to`, in a log that ends at `end`; EMPTY when there are none.

        With `min_one_batch` the first one comes even if it is larger. Raises CorruptRecordsError for a
        damaged file, StorageError.
        """
        items, bases = self
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

    def size_between(self, start: int, end: int, log_end: int) -> int:
        """Bytes of the batches from the one that holds offset `start` up to offset `end`.

        Raises CorruptRecordsError for a damaged file, StorageError.
        """
        items, first, last = self.items, self.floor(start), self.floor(end)
        whole = sum(segment.size for segment in items[first:last])
        until = items[last].size if end >= log_end else items[last].locate(end)
        return whole + until - items[first].locate(start)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records or a marker between two offsets, of which `end` is outside. Raises
        StorageError.
        """
        return overlapping((segment.aborted for segment in self.items[self.floor(start) :]), start, end)

    def offset_for_timestamp(self, timestamp: int, start: int) -> TimestampedOffset | None:
        """The first record, or marker of a transaction, at or after offset `start` whose timestamp is at or
        after `timestamp` (ms). Raises CorruptRecordsError, StorageError.
        """
        for segment in self.items:
            if segment.largest_timestamp() >= timestamp and segment.size:
                for position, header in segment.batches_since(timestamp, start):
                    if (found := _record_since(segment, position, header, timestamp, start)) is not None:
                        return found
        return None

    def largest_timestamp(self) -> int:
        """Of all records (ms); -1 when there is none."""
        return max(segment.largest_timestamp() for segment in self.items)

    def ages(self, end: int) -> Iterator[SegmentAge]:
        """The segments from the oldest on, but an empty active one, as retention looks at them, in a log that
        ends at `end`. Timestamps are read as it goes. Raises CorruptRecordsError, StorageError.
        """
        for segment, next_offset in zip(self.items, [*self.bases[1:], end], strict=True):
            if segment.size or segment is not self.items[-1]:
                latest_ms = segment.largest_timestamp()
                # Without a time it is -1, in librdkafka's batches 0: then records are as old as their file.
                yield SegmentAge(
                    next_offset, segment.size, latest_ms if latest_ms > 0 else segment.modified_ms
                )

    def holds(self, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
        """Whether these sealed segments are here, side by side, with the sizes they had."""
        if not segments or segments[0] not in self.items:
            return False
        start = self.items.index(segments[0])
        end = start + len(segments)
        return (
            end < len(self.items)
            and self.items[start:end] == tuple(segments)
            and [segment.size for segment in segments] == list(sizes)
        )

    def replaced(self, old: Sequence[Segment], new: Segment) -> LogSegments:
        """These with `new` in the place of `old`, which are side by side."""
        start = self.items.index(old[0])
        return LogSegments.of([*self.items[:start], new, *self.items[start + len(old) :]])


def _record_since(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start: int
) -> TimestampedOffset | None:
    data = FileRange(segment.log, position, header.size, header.base_offset, header.next_offset).read()
    for batch in read_batches(data, start_offset=start, size_max=UNCOMPRESSED_SIZE_MAX):
        for record in batch.records:
            if record.timestamp >= timestamp:
                return TimestampedOffset(record.offset, record.timestamp)
    return None
