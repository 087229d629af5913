"""Batches that lie side by side in an answer and cross as they are: a run of them is a chunk. Pure.

This is the hot path of a shallow copy. A stretch of plain batches is walked in one loop, with one look at
each header; whatever is not plain ends the stretch, and is for `cutting` to look at closer.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from broker.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    OFFSET_MAX,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from mirrormaker.flow.chunk import Chunk, Frame

LOOK_CLOSER = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_MAGIC = 2
_PLAIN = Struct(">qiib4xhi8xq14xi")
"""Of a header: base offset, length, leader epoch, magic, attributes, last offset delta, maximum timestamp,
record count.
"""
_BASE_TIMESTAMP = Struct(">27xq")


class Runs:
    """The run at hand, and chunks of those before it."""

    __slots__ = (
        "_at",
        "_batches",
        "_batches_max",
        "_chunk_bytes",
        "_chunks",
        "_first_offset",
        "_first_timestamp",
        "_frame",
        "_records",
        "_size",
        "_timestamp",
        "leader_epoch",
        "next_offset",
        "on_begin",
        "origin",
    )

    def __init__(
        self,
        records: memoryview,
        frame: Frame,
        chunks: list[Chunk],
        *,
        chunk_bytes: int,
        batches_max: int,
    ) -> None:
        """Chunks are added to `chunks`."""
        self._records = records
        self._frame = frame
        self._chunks = chunks
        self._chunk_bytes = chunk_bytes
        self._batches_max = batches_max
        self.on_begin: Callable[[], None] | None = None
        """A run begins, and what came before it is to be there."""
        self._at = 0
        self._size = 0
        self._batches = 0
        self._first_offset = 0
        self._first_timestamp = -1
        self._timestamp = -1
        self.next_offset = 0
        """Behind the last batch that joined."""
        self.leader_epoch = -1
        """Of that batch."""
        self.origin = 0
        """Of the run at hand."""

    def walk(self, at: int, offset: int, size_max: int) -> int:
        """Take in plain batches of at most `size_max` bytes that follow each other from `offset` on; the
        first lies at `at`. Returns where the first one lies that is not so: `at` when none was taken.
        """
        records, unpack = self._records, _PLAIN.unpack_from
        end, chunk_bytes, batches_max = len(records), self._chunk_bytes, self._batches_max
        last_header = end - HEADER_SIZE
        if self._batches and (offset != self.next_offset or at != self._at + self._size):
            self.flush()
        size, batches, latest, epoch = self._size, self._batches, self._timestamp, self.leader_epoch
        while at <= last_header:
            base, length, batch_epoch, magic, attributes, delta, timestamp, count = unpack(records, at)
            batch_size = length + LENGTH_OVERHEAD
            if (
                base != offset
                or magic != _MAGIC
                or attributes & LOOK_CLOSER
                or count != delta + 1
                or count <= 0
                or not HEADER_SIZE <= batch_size <= size_max
                or batch_size > end - at
                or offset + count > OFFSET_MAX
            ):
                break
            if batches >= batches_max or size + batch_size > chunk_bytes:
                self._size, self._batches, self._timestamp = size, batches, latest
                self.flush()
                size, batches, latest = 0, 0, -1
            if not batches:
                self._begin(at, offset)
            batches += 1
            size += batch_size
            if timestamp > latest:
                latest = timestamp
            offset += count
            at += batch_size
            self.next_offset, epoch = offset, batch_epoch
        self._size, self._batches, self._timestamp, self.leader_epoch = size, batches, latest, epoch
        return at

    def append(self, at: int, header: BatchHeader) -> None:
        """Have a batch join that was looked at closer, and may cross as it is."""
        size = header.size
        if self._batches and (
            self._batches >= self._batches_max
            or self._size + size > self._chunk_bytes
            or header.base_offset != self.next_offset  # source offsets of a chunk have no gaps
        ):
            self.flush()
        if not self._batches:
            self._begin(at, header.base_offset)
        self._batches += 1
        self._size += size
        self._timestamp = max(self._timestamp, header.max_timestamp)
        self.next_offset, self.leader_epoch = header.next_offset, header.leader_epoch

    def flush(self) -> None:
        """End the run at hand."""
        if not self._batches:
            return
        self._chunks.append(
            Chunk(
                records=self._records[self._at : self._at + self._size],
                batches=self._batches,
                frame=self._frame,
                first_offset=self._first_offset,
                next_offset=self.next_offset,
                first_timestamp=self._first_timestamp,
                max_timestamp=self._timestamp,
                count=self.next_offset - self._first_offset,
                size=self._size,
                origin=self.origin,
            )
        )
        self._batches, self._size, self._timestamp = 0, 0, -1

    def _begin(self, at: int, offset: int) -> None:
        if self.on_begin is not None:
            self.on_begin()
        self._at, self._first_offset = at, offset
        (self._first_timestamp,) = _BASE_TIMESTAMP.unpack_from(self._records, at)
