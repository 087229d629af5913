"""Walks over the bytes of a log: the header of each entry.

An entry is a record batch (magic 2), or a message of the older formats, which is read into the same header
type: it has no producer, its base and last offset are the one it carries (of a compressed one that is the
last inside), and it counts as one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from broker.storage.disk import File
from broker.types import Buffer

WALK_BYTES = 8192
"""Read at a time by a walk over headers: what two entries of the offset index lie apart, and the batch
between.
"""

_PLACED = Struct(">qi4xb6xi")
"""Of a batch header: base offset, length, magic, last offset delta."""
_LEGACY = Struct(">qiIbb")
_LEGACY_TIMESTAMP = Struct(">q")
_LEGACY_SIZE_MIN = 26


def stored_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header of the entry at `position`, of any magic. Raises CorruptRecordsError."""
    if len(buffer) - position < _LEGACY_SIZE_MIN:
        raise CorruptRecordsError(f"torn entry header: {len(buffer) - position} bytes")
    magic = buffer[position + MAGIC_POSITION]
    if magic == 2:
        return read_header(buffer, position)
    if magic > 2:
        raise CorruptRecordsError(f"unknown magic {magic}")
    offset, length, crc, _, attributes = _LEGACY.unpack_from(buffer, position)
    size_min = _LEGACY_SIZE_MIN + 8 * magic
    if offset < 0 or length + LENGTH_OVERHEAD < size_min or len(buffer) - position < size_min:
        raise CorruptRecordsError(f"malformed message of magic {magic}")
    timestamp = _LEGACY_TIMESTAMP.unpack_from(buffer, position + 18)[0] if magic == 1 else -1
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def walk(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every entry from `position` to `end` (bytes); records are not read.

    Raises CorruptRecordsError at an entry that is malformed or does not end by `end`, StorageError when the
    disk fails.
    """
    buffer, start = b"", position
    while position < end:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer, start, at = file.pread(min(WALK_BYTES, end - position), position), position, 0
        header = stored_header(buffer, at)
        if header.size > end - position:
            raise CorruptRecordsError(f"torn entry at position {position}")
        yield position, header
        position += header.size


def begins_batch(data: Buffer, room: int, *, first_offset: int, last_offset: int) -> bool:
    """Whether `data` begins with the header of a batch (magic 2) that takes at most `room` bytes and whose
    base offset lies between two offsets.
    """
    if len(data) < HEADER_SIZE:
        return False
    base_offset, length, magic, delta = _PLACED.unpack_from(data)
    is_batch = magic == 2 and delta >= 0 and HEADER_SIZE <= length + LENGTH_OVERHEAD <= room
    return is_batch and bool(first_offset <= base_offset <= last_offset)


def first_beyond(
    file: File, position: int, limit: int, bound: int, data: bytes = b""
) -> tuple[int, int | None]:
    """Position of the first entry from `position` on that does not end by `bound`, or `limit`; and the offset
    to read on from there, None when `limit` is where the search began. `data` is what the file is known to
    hold at `position`.

    Every fetch that is cut by its size asks, so this does as `walk` with less. Raises as `walk` does.
    """
    offset: int | None = None
    buffer, start = data, position
    while position < limit:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer, start, at = file.pread(min(WALK_BYTES, limit - position), position), position, 0
        size = delta = -1
        if len(buffer) - at >= HEADER_SIZE:
            base_offset, length, magic, delta = _PLACED.unpack_from(buffer, at)
            size = length + LENGTH_OVERHEAD if magic == 2 else -1
        if size < HEADER_SIZE or delta < 0 or base_offset < 0:
            header = stored_header(buffer, at)  # an old message, or damage
            size, base_offset, delta = header.size, header.base_offset, header.last_offset_delta
        if size > limit - position:
            raise CorruptRecordsError(f"torn entry at position {position}")
        if position + size > bound:
            return position, base_offset if offset is None else offset
        offset = base_offset + delta + 1
        position += size
    return limit, offset
