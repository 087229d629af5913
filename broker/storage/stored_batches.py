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
