"""Record batches of magic 2 by their 61-byte header: read, verify, rebase, restamp; records stay closed.

Layout (big-endian): baseOffset int64 | batchLength int32 | partitionLeaderEpoch int32 | magic int8 | crc
uint32 | attributes int16 | lastOffsetDelta int32 | baseTimestamp int64 | maxTimestamp int64 | producerId
int64 | producerEpoch int16 | baseSequence int32 | recordCount int32 | records. `batchLength` counts from
partitionLeaderEpoch on. The CRC-32C covers attributes to the end, so base offset and leader epoch are
rewritten free, and the fields after the CRC for one pass of CRC.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.errors import CorruptRecordsError
from broker.types import Buffer

HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""Bytes of a batch before those that `batchLength` counts."""
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
_LOW_ATTRIBUTES_POSITION = 22
_LENGTH_MIN = 14
"""Of an entry of any format."""

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = Struct(">qi")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_PRODUCER = Struct(">qhi")
_EPOCH_POSITION = 12
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

OFFSET_MAX = (1 << 63) - 1
SEQUENCE_LIMIT = 1 << 31
"""Sequence numbers wrap from 2^31-1 to 0."""


class Codec(IntEnum):
    """Compression of a batch, as numbered in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)


class BatchHeader(NamedTuple):
    """The header of one batch, in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """Raises CorruptRecordsError when the number is none of the known codecs."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptRecordsError(f"unknown codec {number} at offset {self.base_offset}")
        return _CODECS[number]  # without a call of the enumeration, which takes as long as all the rest

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)


_header_of = tuple.__new__
"""As `BatchHeader._make`, in a third of the time: it is for each batch that there is."""


def next_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` records further on."""
    return (sequence + count) & (SEQUENCE_LIMIT - 1)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`. Raises CorruptRecordsError when torn, not magic 2, or contradictory."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptRecordsError(f"torn batch header: {len(buffer) - position} of {HEADER_SIZE} bytes")
    header = _header_of(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != 2:
        raise CorruptRecordsError(f"magic {header.magic} at offset {header.base_offset}, expected 2")
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptRecordsError(
            f"batch length {header.batch_length} at offset {header.base_offset} is too small"
        )
    if header.last_offset_delta < 0 or header.record_count < 0 or header.base_offset < 0:
        raise CorruptRecordsError(f"negative count or offset in the batch at offset {header.base_offset}")
    if header.base_offset + header.last_offset_delta >= OFFSET_MAX:
        raise CorruptRecordsError(
            f"the batch at offset {header.base_offset} ends past the last offset there is"
        )
    return header


def peek_size(buffer: Buffer, position: int = 0) -> int | None:
    """Size in bytes of the batch or legacy entry at `position`, or None when fewer than 12 bytes are there.

    Raises CorruptRecordsError for a length that no entry can have.
    """
    if len(buffer) - position < LENGTH_OVERHEAD:
        return None
    length: int = _OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
    if length < _LENGTH_MIN:
        raise CorruptRecordsError(f"entry length {length} is too small")
    return length + LENGTH_OVERHEAD


def peek_producer(buffer: Buffer) -> tuple[int, int, int] | None:
    """Producer id, epoch and first sequence number of the first batch, or None when there is none."""
    if len(buffer) < HEADER_SIZE or buffer[MAGIC_POSITION] != 2:
        return None
    producer: tuple[int, int, int] = _PRODUCER.unpack_from(buffer, _PRODUCER_POSITION)
    return producer


def iterate_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; a torn tail, as fetch answers may have, ends the walk."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.batch_length + LENGTH_OVERHEAD > end - position:
            return
        yield position, header
        position += header.batch_length + LENGTH_OVERHEAD


def joint_attributes(buffer: Buffer) -> int:
    """What the low bytes of the attributes of all whole batches say, one over the other: a flag that any of
    them has. Their format is not looked at.

    Raises CorruptRecordsError for a length that no batch can have.
    """
    found, position, last = 0, 0, len(buffer) - HEADER_SIZE
    while position <= last:
        length: int = _OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
        if length < _LENGTH_MIN:
            raise CorruptRecordsError(f"entry length {length} is too small")
        following = position + length + LENGTH_OVERHEAD
        if following > last + HEADER_SIZE:
            break
        found |= buffer[position + _LOW_ATTRIBUTES_POSITION]
        position = following
    return found


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check the CRC-32C of the batch at `position`. Raises CorruptRecordsError naming both, or when torn."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptRecordsError(
            f"the batch at offset {header.base_offset} misses {end - len(buffer)} bytes"
        )
    actual = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if actual != header.crc:
        raise CorruptRecordsError(
            f"CRC of the batch at offset {header.base_offset} is {actual:#010x}, not {header.crc:#010x}"
        )


def rebase(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its offset and leader epoch, in place; its CRC stays valid."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_POSITION, leader_epoch)


def restamp(
    buffer: bytearray | memoryview,
    position: int,
    size: int,
    *,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Replace attributes and producer of the batch of `size` bytes at `position`, in place, for one CRC."""
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(buffer, position + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _write_crc(buffer, position, size)


def stamp_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int
) -> None:
    """Set log-append time (timestamp-type flag and maximum timestamp), in place, for one pass of CRC."""
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, header.attributes | TIMESTAMP_TYPE_FLAG)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, now_ms)
    _write_crc(buffer, position, header.size)


def write_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write all of `header` at `position` and compute its CRC over what follows; `header.crc` is ignored."""
    _HEADER.pack_into(buffer, position, *header)
    _write_crc(buffer, position, header.size)


def _write_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    view = memoryview(buffer)
    crc = crc32c(view[position + ATTRIBUTES_POSITION : position + size])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)
