"""Walks over a log that go on past damage: every entry with its bytes, and what is wrong with it.

Where `stored_batches` serves recovery, which stops at the first entry that fails, this serves tools that
show or judge all of a file, and the cleaner, which needs the bytes. Behind bytes that are no entry they go on
with the next entry whose checksum holds; so they do where one begins within the length that a damaged entry
says. Memory is bounded by the largest entry that is looked into.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    BatchHeader,
    Codec,
)
from broker.records.message_set import read_message
from broker.records.reader import iterate_records
from broker.records.record import Record
from broker.storage.disk import File
from broker.storage.dump_line import Damage
from broker.storage.stored_batches import stored_header

READ_BYTES = 1 << 20
ENTRY_BYTES_MAX = 256 << 20
"""Entries larger than this, as stored or uncompressed, are reported and not looked into."""
_BATCH = rb"[\0-\x7f\xff].{3}\x02.{4}\0.[\0-\x7f]"
_MESSAGE = rb"(?!.{0,2}\0\0).{4}(?:\0[\0-\x0f]|\x01[\0-\x0f].{8})[\0\xff]"
"""Not where its checksum has two zeros side by side, as one in 20,000 has, and most numbers in records that
look like a message.
"""
_ENTRY_BEGINS = re.compile(rb"(?=\0\0.{6}(?!\0{4})[\0-\x0f].{3}(?:%b|%b))" % (_BATCH, _MESSAGE), re.DOTALL)
"""A header, by what all have that begin below offset 2**48: few bytes that are none look so."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A batch, or a message of magic 0 or 1, as it is in the file; `position` in bytes."""

    position: int
    header: BatchHeader
    data: memoryview
    checksum: int
    """Of the bytes as they are; `header.crc` is what it should be."""

    @property
    def is_valid(self) -> bool:
        return self.checksum == self.header.crc

    @property
    def damage(self) -> Damage | None:
        """What a checksum that does not hold comes to."""
        if self.is_valid:
            return None
        offset, expected = self.header.base_offset, self.header.crc
        return Damage(
            self.position, f"checksum of the entry at offset {offset} is {self.checksum}, not {expected}"
        )


def stored_entries(
    file: File, end: int, *, entry_bytes_max: int = ENTRY_BYTES_MAX, read_bytes: int = READ_BYTES
) -> Iterator[StoredEntry | Damage]:
    """Every entry up to position `end`, whether its checksum holds or not; bytes that are no entry are a
    Damage. `read_bytes` are read at a time. Raises StorageError when the disk fails.
    """
    held, start, position = memoryview(b""), 0, 0
    next_offset = 0
    while position < end:
        at = position - start
        if len(held) - at < min(HEADER_SIZE, end - position):
            start, at, held = position, 0, memoryview(file.pread(min(read_bytes, end - position), position))
        try:
            header = stored_header(held, at)
            if header.size > end - position:
                raise CorruptRecordsError(f"one of {header.size} bytes ends after {end - position}")
        except CorruptRecordsError as error:
            following = find_entry(file, position + 1, end, offset_min=next_offset)
            left = f"the last {end - position}" if following is None else f"{following - position}"
            yield Damage(position, f"{left} bytes are no entry: {error.message}")
            position = end if following is None else following
            continue
        entry: StoredEntry | None = None
        if header.size <= entry_bytes_max:
            if header.size > len(held) - at:
                size = min(max(read_bytes, header.size), end - position)
                start, at, held = position, 0, memoryview(file.pread(size, position))
            data = held[at : at + header.size]
            entry = StoredEntry(position, header, data, _checksum(data, header))
        said_end = position + header.size
        if entry is not None and entry.is_valid:
            next_offset = header.next_offset
        else:
            within = find_entry(file, position + 1, end, offset_min=next_offset, before=said_end)
            if within is not None:
                message = f"{within - position} bytes are no entry: one says that it has {header.size}"
                yield Damage(position, message)
                position = within
                continue
        yield entry or Damage(position, f"an entry of {header.size} bytes is too large to be looked into")
        position = said_end


def find_entry(
    file: File, position: int, end: int, *, offset_min: int = 0, before: int | None = None
) -> int | None:
    """Where the first entry with a sound checksum begins from `position` on, and before `before`, that ends
    by `end` and has an offset from `offset_min` on; None: nowhere. Raises StorageError when the disk fails.
    """
    before = end if before is None else before
    while position < before:
        held = file.pread(min(READ_BYTES, end - position, before - position + HEADER_SIZE), position)
        for found in _ENTRY_BEGINS.finditer(held):
            at = position + found.start()
            if at < before and _is_sound(file, held, found.start(), at, end, offset_min):
                return at
        if len(held) < HEADER_SIZE or position + len(held) >= end:
            return None
        position += len(held) - HEADER_SIZE + 1
    return None


def _is_sound(file: File, held: bytes, at: int, position: int, end: int, offset_min: int) -> bool:
    try:
        header = stored_header(held, at)
    except CorruptRecordsError:
        return False
    if header.base_offset < offset_min or header.size > min(end - position, ENTRY_BYTES_MAX):
        return False
    return _checksum(memoryview(file.pread(header.size, position)), header) == header.crc


def records_of(entry: StoredEntry, *, size_max: int = ENTRY_BYTES_MAX) -> Iterator[Record]:
    """The records inside an entry, uncompressed to at most `size_max` bytes. Raises CorruptRecordsError."""
    if entry.header.magic == 2:
        yield from iterate_records(entry.data, entry.header, size_max=size_max)
    else:
        yield from read_message(entry.data, size_max=size_max, check_crc=entry.is_valid)


def codec_name(header: BatchHeader) -> str:
    """The codec in small letters, as Kafka names it."""
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown({number})"


def _checksum(data: memoryview, header: BatchHeader) -> int:
    checksum: int = (
        crc32c(data[ATTRIBUTES_POSITION:]) if header.magic == 2 else zlib.crc32(data[MAGIC_POSITION:])
    )
    return checksum
