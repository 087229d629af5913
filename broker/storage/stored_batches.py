"""Walks over the bytes of a log: the header of each entry, with or without its checksum.

An entry is a record batch (magic 2), or a message of the older formats, which is read into the same header
type: it has no producer, its base and last offset are the one it carries (of a compressed one that is the
last inside), and it counts as one record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct

from crc32c import crc32c

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
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
VERIFY_BYTES = 1 << 20
"""Read at a time by a walk that checks every byte."""

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


def walk_verified(file: File, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every entry from the start of the file whose checksum holds; ends before the
    first that is damaged.

    Memory is bounded whatever the headers claim. Raises StorageError when the disk fails.
    """
    buffer = memoryview(bytearray(min(VERIFY_BYTES, end)))
    held = buffer[:0]
    position = start = 0
    while position < end:
        at = position - start
        if len(held) - at < min(HEADER_SIZE, end - position):
            start, at, held = position, 0, _refill(file, buffer, position, end)
        try:
            header = stored_header(held, at)
        except CorruptRecordsError:
            return
        size = header.batch_length + LENGTH_OVERHEAD
        if size > end - position:
            return
        if size > len(held) - at and at:
            start, at, held = position, 0, _refill(file, buffer, position, end)
        if size > len(held) - at:
            actual = _checksum_of_file(file, position, header)
        elif header.magic == 2:
            actual = crc32c(held[at + ATTRIBUTES_POSITION : at + size])
        else:
            actual = zlib.crc32(held[at + MAGIC_POSITION : at + size])
        if actual != header.crc:
            return
        yield position, header
        position += size


def _refill(file: File, buffer: memoryview, position: int, end: int) -> memoryview:
    """What the buffer holds after reading from `position` on, not beyond `end`."""
    return buffer[: file.pread_into(buffer[: end - position], position)]


def _checksum_of_file(file: File, position: int, header: BatchHeader) -> int:
    """The checksum of an entry larger than the walk's buffer, a piece at a time."""
    update, done = (crc32c, ATTRIBUTES_POSITION) if header.magic == 2 else (zlib.crc32, MAGIC_POSITION)
    checksum = 0
    while done < header.size:
        piece = file.pread(min(VERIFY_BYTES, header.size - done), position + done)
        if not piece:
            return -1
        checksum = update(piece, checksum)
        done += len(piece)
    return checksum
