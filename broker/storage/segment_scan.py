"""One pass over a segment after a crash: every byte checked, and what indexes and states are rebuilt from.

The pass ends before the first entry that is damaged: malformed, with a wrong checksum, or with offsets, which
no checksum covers, that cannot be right. Most of it is one tight loop over the batches in a buffer, since
2 GB of batches of 1 KB are two million turns. The loop stops at whatever is not plain (a message of the older
formats, a batch larger than the buffer, damage), and that entry is looked at on its own.

Of each batch only what changes something is told to `visit`. Batches of one idempotent producer that follow
each other in offset and sequence are told as one, by a header that spans them; those of transactions, and
markers, one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct

from crc32c import crc32c

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_POSITION,
    SEQUENCE_LIMIT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from broker.storage.disk import File
from broker.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from broker.storage.stored_batches import stored_header

SCAN_BYTES = 4 << 20
"""Read at a time. Of a batch that does not fit the rest of the buffer a part is read twice."""
_PIECE_BYTES = 1 << 20
JOINED_RECORDS_MAX = 1 << 16
"""How many records one visit may span."""

_HEADER = Struct(">qiibIhi8xqqhii")
"""A batch header without its base timestamp."""
_BATCH_LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD
_OFFSET_MAX = (1 << 63) - 1
_ALONE = TRANSACTIONAL_FLAG | CONTROL_FLAG
_SEQUENCE_MASK = SEQUENCE_LIMIT - 1

Visit = Callable[[int, BatchHeader], None]
"""Told of a batch: its position, and its header."""


class SegmentScan:
    """One scan of the first `size` bytes of `file`: `run` it once, then read the results.

    `valid_size` is where the sound entries end (bytes), `next_offset` the offset there; the rest is what a
    segment knows that was appended to (timestamps in milliseconds, -1: none).
    """

    __slots__ = (
        "_base_offset",
        "_file",
        "_gaps",
        "_index_interval_bytes",
        "_indexed_timestamp",
        "_joined",
        "_latest_epoch",
        "_offset_max",
        "_size",
        "bytes_since_index_entry",
        "largest_timestamp",
        "largest_timestamp_offset",
        "next_offset",
        "offset_entries",
        "time_entries",
        "valid_size",
    )

    def __init__(
        self,
        file: File,
        size: int,
        base_offset: int,
        *,
        first_offset: int,
        gaps: bool,
        index_interval_bytes: int,
    ) -> None:
        """Offsets start at `first_offset`, or above it when `gaps` between entries are right, as compaction
        leaves them.
        """
        self._file = file
        self._size = size
        self._base_offset = base_offset
        self._offset_max = min(base_offset + RELATIVE_OFFSET_MAX, _OFFSET_MAX - 1)
        self._gaps = gaps
        self._index_interval_bytes = index_interval_bytes
        self._indexed_timestamp = -1
        self.next_offset = first_offset
        self.valid_size = 0
        self.largest_timestamp = -1
        self.largest_timestamp_offset = base_offset
        self.bytes_since_index_entry = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()

    def run(self, visit: Visit, *, latest_epoch: int, buffer_bytes: int = SCAN_BYTES) -> None:
        """Scan, telling `visit` of batches of producers and of leader epochs above `latest_epoch`.

        Memory is bounded by `buffer_bytes` (at least a header's), whatever headers claim. Raises StorageError
        when the disk fails.
        """
        joined = _Joined(visit)
        self._latest_epoch, self._joined = latest_epoch, joined
        # The spare bytes let a header be unpacked before it is known whether all of it was read.
        buffer = memoryview(bytearray(min(buffer_bytes, self._size) + HEADER_SIZE))
        held = at = 0
        while self.valid_size < self._size:
            if held - at < HEADER_SIZE:
                held, at = self._fill(buffer), 0
            at = self._pass_over(buffer, at, held)
            if self.valid_size == self._size or (size := self._look_at(buffer[at:held], filled=not at)) == 0:
                break
            at = held if size is None else min(at + size, held)
        joined.end()

    def _fill(self, buffer: memoryview) -> int:
        """Read on from the end of what is sound; how many bytes the buffer holds then."""
        size = min(len(buffer) - HEADER_SIZE, self._size - self.valid_size)
        return self._file.pread_into(buffer[:size], self.valid_size)

    def _pass_over(self, buffer: memoryview, at: int, held: int) -> int:
        """Take the plain batches from `at` on that end by `held`; where the first that is not plain begins.

        Longer than a function should be: a call per batch would cost as much as all that is done here.
        """
        unpack, pack_offset, pack_time = _HEADER.unpack_from, OffsetIndex.entry.pack, TimeIndex.entry.pack
        offset_entries, time_entries = self.offset_entries, self.time_entries
        base_offset, gaps, interval = self._base_offset, self._gaps, self._index_interval_bytes
        offset_max, next_offset = self._offset_max, self.next_offset
        since, latest_epoch = self.bytes_since_index_entry, self._latest_epoch
        largest, largest_offset = self.largest_timestamp, self.largest_timestamp_offset
        indexed, joined, start = self._indexed_timestamp, self._joined, self.valid_size - at
        while at < held:
            base, length, epoch, magic, crc, attributes, delta, timestamp, producer, term, sequence, count = (
                unpack(buffer, at)
            )
            end = at + length + LENGTH_OVERHEAD
            last = base + delta
            if (
                magic != 2
                or end > held
                or (base != next_offset and (base < next_offset or not gaps))
                or length < _BATCH_LENGTH_MIN
                or delta < 0
                or count < 0
                or last > offset_max
                or crc32c(buffer[at + ATTRIBUTES_POSITION : end]) != crc
            ):
                break
            if timestamp > largest:
                largest, largest_offset = timestamp, last
            if since > interval:
                offset_entries += pack_offset(last - base_offset, start + at)
                if largest > indexed:
                    time_entries += pack_time(largest, largest_offset - base_offset)
                    indexed = largest
                since = 0
            if epoch > latest_epoch:
                latest_epoch = epoch
                joined.add(start + at, read_header(buffer, at))
            elif producer >= 0:
                if (
                    base == joined.next_offset
                    and last < joined.limit
                    and producer == joined.producer_id
                    and term == joined.producer_epoch
                    and (sequence - base) & _SEQUENCE_MASK == joined.shift
                    and not attributes & _ALONE
                ):
                    joined.next_offset = last + 1
                else:
                    joined.add(start + at, read_header(buffer, at))
            next_offset = last + 1
            since += end - at
            at = end
        self.next_offset, self.bytes_since_index_entry, self._latest_epoch = next_offset, since, latest_epoch
        self.largest_timestamp, self.largest_timestamp_offset = largest, largest_offset
        self._indexed_timestamp, self.valid_size = indexed, start + at
        return at

    def _look_at(self, held: memoryview, *, filled: bool) -> int | None:
        """Take the entry that begins at the end of what is sound; its size in bytes, 0 when it is damaged,
        None when more of it has to be read first: `held` is what was read of it, `filled` when that is all
        that a buffer takes.
        """
        try:
            header = stored_header(held, 0)
        except CorruptRecordsError:
            return 0 if filled else None
        size, position = header.size, self.valid_size
        if size > len(held) and not filled:
            return None
        if size > self._size - position or not self._is_plausible(header):
            return 0
        if header.crc != (_checksum(held[:size], header) if size <= len(held) else self._checksum_of(header)):
            return 0
        self._take(header)
        return size

    def _is_plausible(self, header: BatchHeader) -> bool:
        """Whether the offsets can be right. A message of the older formats does not say where it begins."""
        if header.last_offset > self._offset_max:
            return False
        if header.magic < 2 or self._gaps:
            return header.base_offset >= self.next_offset
        return header.base_offset == self.next_offset

    def _take(self, header: BatchHeader) -> None:
        """What `_pass_over` does with each batch."""
        position, last = self.valid_size, header.last_offset
        if header.max_timestamp > self.largest_timestamp:
            self.largest_timestamp, self.largest_timestamp_offset = header.max_timestamp, last
        if self.bytes_since_index_entry > self._index_interval_bytes:
            self.offset_entries += OffsetIndex.entry.pack(last - self._base_offset, position)
            if self.largest_timestamp > self._indexed_timestamp:
                self._indexed_timestamp = self.largest_timestamp
                relative = self.largest_timestamp_offset - self._base_offset
                self.time_entries += TimeIndex.entry.pack(self.largest_timestamp, relative)
            self.bytes_since_index_entry = 0
        if header.producer_id >= 0 or header.leader_epoch > self._latest_epoch:
            self._latest_epoch = max(self._latest_epoch, header.leader_epoch)
            self._joined.add(position, header)
        self.bytes_since_index_entry += header.size
        self.next_offset = last + 1
        self.valid_size = position + header.size

    def _checksum_of(self, header: BatchHeader) -> int:
        """The checksum of an entry larger than the buffer, a piece at a time."""
        update, done = (crc32c, ATTRIBUTES_POSITION) if header.magic == 2 else (zlib.crc32, MAGIC_POSITION)
        checksum = 0
        while done < header.size:
            piece = self._file.pread(min(_PIECE_BYTES, header.size - done), self.valid_size + done)
            if not piece:
                return -1
            checksum = update(piece, checksum)
            done += len(piece)
        return checksum


class _Joined:
    """Batches of one idempotent producer that follow each other, told to `visit` by one header.

    `next_offset` is where the one begins that would follow, and what is before `limit` may be joined;
    `shift` is by how much sequences are above offsets.
    """

    __slots__ = (
        "_first",
        "_position",
        "_visit",
        "limit",
        "next_offset",
        "producer_epoch",
        "producer_id",
        "shift",
    )

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._first: BatchHeader | None = None
        self._position = 0
        self.limit = self.next_offset = self.producer_id = self.producer_epoch = self.shift = -1

    def add(self, position: int, header: BatchHeader) -> None:
        """Begin anew with a batch that follows nothing. One that stands alone is told at once."""
        self.end()
        if header.producer_id < 0 or header.base_sequence < 0 or header.attributes & _ALONE:
            self._visit(position, header)
            return
        self._first, self._position = header, position
        self.producer_id, self.producer_epoch = header.producer_id, header.producer_epoch
        self.shift = (header.base_sequence - header.base_offset) & _SEQUENCE_MASK
        self.next_offset = header.next_offset
        self.limit = header.base_offset + JOINED_RECORDS_MAX

    def end(self) -> None:
        """Tell what was joined."""
        first, self._first = self._first, None
        if first is not None:
            spanning = first._replace(last_offset_delta=self.next_offset - 1 - first.base_offset)
            self._visit(self._position, spanning)
        self.next_offset = -1


def _checksum(entry: memoryview, header: BatchHeader) -> int:
    if header.magic < 2:
        return zlib.crc32(entry[MAGIC_POSITION:])
    checksum: int = crc32c(entry[ATTRIBUTES_POSITION:])
    return checksum
