"""Giving batches the mirror's producer id, epoch and sequence without reading their records. Pure.

CRC-32C is linear: the checksum of a batch with a changed header is its old checksum, xor what the changed
bits alone contribute. So the new checksum is worked out from the changed header bytes and the *length* of the
rest, in one pass of CRC over zeros. The records themselves are never looked at, and damage that they took on
the way is not blessed with a fresh checksum: the old difference stays, and the destination refuses the batch.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.records.batch import (
    ATTRIBUTES_POSITION,
    LENGTH_OVERHEAD,
    SEQUENCE_LIMIT,
    TRANSACTIONAL_FLAG,
)

_FIELDS = Struct(">8xi5xIH20xQHIi")
"""Of a header: length, CRC, attributes, producer id, epoch, base sequence, record count."""
_START = Struct(">qiibIH")
"""Base offset, length, leader epoch, magic, CRC, attributes."""
_PRODUCER = Struct(">QHI")
_MAGIC = 2
_PRODUCER_POSITION = 43
_PRODUCER_BYTES = _PRODUCER.size
_CHANGED_END = _PRODUCER_POSITION + _PRODUCER_BYTES
"""From the low byte of the attributes to here all changes of a stamp lie."""
_CHANGED_BYTES = _CHANGED_END - (ATTRIBUTES_POSITION + 1)
_CHANGED_FLAG = TRANSACTIONAL_FLAG << 8 * (_CHANGED_BYTES - 1)
_ALL_ONES = 0xFFFFFFFF
_ZEROS = memoryview(bytes(1 << 20))


class Stamped(NamedTuple):
    """Batches that carry the mirror's identity."""

    crc_before: int
    """Sum of their checksums as they came."""
    crc: int
    """The same as they are now."""
    next_sequence: int
    """For what comes after them."""


def stamp(
    buffer: bytearray | memoryview,
    producer_id: int,
    epoch: int,
    sequence: int,
    is_transactional: bool = False,
) -> Stamped:
    """Make the batches, of which the buffer is full, the mirror's own, in place.

    Producer fields are replaced (none of the new ones may be negative), the transactional flag is set or
    cleared, the base offset becomes 0 and the leader epoch -1, as a stock broker expects of a producer.
    Stamping stamped batches again is fine.
    """
    flag = TRANSACTIONAL_FLAG if is_transactional else 0
    before = after = at = 0
    end = len(buffer)
    while at < end:
        length, crc, attributes, old_id, old_epoch, old_sequence, count = _FIELDS.unpack_from(buffer, at)
        changed = (old_id ^ producer_id) << 48 | (old_epoch ^ epoch) << 32 | old_sequence ^ sequence
        if attributes & TRANSACTIONAL_FLAG != flag:
            attributes ^= TRANSACTIONAL_FLAG
            bits = crc32c((changed | _CHANGED_FLAG).to_bytes(_CHANGED_BYTES, "big"), _ALL_ONES)
        else:
            bits = crc32c(changed.to_bytes(_PRODUCER_BYTES, "big"), _ALL_ONES)
        stamped = crc ^ _over_zeros(bits, length + LENGTH_OVERHEAD - _CHANGED_END)
        _START.pack_into(buffer, at, 0, length, -1, _MAGIC, stamped, attributes)
        _PRODUCER.pack_into(buffer, at + _PRODUCER_POSITION, producer_id, epoch, sequence)
        before += crc
        after += stamped
        sequence = (sequence + count) & (SEQUENCE_LIMIT - 1)
        at += length + LENGTH_OVERHEAD
    return Stamped(before, after, sequence)


def _over_zeros(crc: int, zeros: int) -> int:
    """What bits contribute to a CRC that so many zero bytes follow: a CRC without its inversions."""
    while zeros > len(_ZEROS):
        crc = crc32c(_ZEROS, crc)
        zeros -= len(_ZEROS)
    return int(crc32c(_ZEROS[:zeros], crc)) ^ _ALL_ONES
