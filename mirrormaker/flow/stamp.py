"""Giving a batch the mirror's producer id, epoch and sequence without reading its records. Pure.

CRC-32C is linear: the checksum of the batch with a changed header is its old checksum, xor what the changed
bits alone contribute. So the new checksum is worked out from the changed header bytes and the *length* of the
rest, in one pass of CRC over zeros. The records themselves are never looked at, and damage that they took on
the way is not blessed with a fresh checksum: the old difference stays, and the destination refuses the batch.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    TRANSACTIONAL_FLAG,
    rebase,
)

_CRC = Struct(">I")
_PRODUCER_POSITION = 43
_PRODUCER_BYTES = 14
"""Producer id int64, epoch int16, base sequence int32: side by side."""
_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
_CHANGED_BYTES = _PRODUCER_POSITION + _PRODUCER_BYTES - _LOW_ATTRIBUTES
_CHANGED_END = _PRODUCER_POSITION + _PRODUCER_BYTES
"""From the low byte of the attributes to here all changes of a stamp lie."""
_ATTRIBUTES_SHIFT = 8 * (_CHANGED_BYTES - 1)
_ALL_ONES = 0xFFFFFFFF
_ZEROS = memoryview(bytes(1 << 20))


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    size: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    is_transactional: bool = False,
) -> tuple[int, int]:
    """Make the batch of `size` bytes at `position` the mirror's own, in place. Returns its checksum as it was
    before, and as it is now.

    Producer fields are replaced (none of the new ones may be negative), the transactional flag is set or
    cleared, the base offset becomes 0 and the leader epoch -1, as a stock broker expects of a producer.
    Stamping a stamped batch again is fine.
    """
    start = position + _PRODUCER_POSITION
    end = start + _PRODUCER_BYTES
    before = int.from_bytes(buffer[start:end], "big")
    after = producer_id << 48 | epoch << 32 | sequence
    buffer[start:end] = after.to_bytes(_PRODUCER_BYTES, "big")
    changed = before ^ after
    if (buffer[position + _LOW_ATTRIBUTES] & TRANSACTIONAL_FLAG != 0) is not is_transactional:
        buffer[position + _LOW_ATTRIBUTES] ^= TRANSACTIONAL_FLAG
        changed |= TRANSACTIONAL_FLAG << _ATTRIBUTES_SHIFT
    rebase(buffer, position, 0, -1)
    (crc,) = _CRC.unpack_from(buffer, position + CRC_POSITION)
    stamped = crc ^ _contribution(changed, size - _CHANGED_END)
    _CRC.pack_into(buffer, position + CRC_POSITION, stamped)
    return crc, stamped


def _contribution(changed: int, zeros_after: int) -> int:
    """What changed bits, and so many zero bytes after them, add to a CRC: the CRC without its inversions."""
    crc: int = crc32c(changed.to_bytes(_CHANGED_BYTES, "big"), _ALL_ONES)
    if zeros_after > len(_ZEROS):
        return _over_zeros(crc, zeros_after) ^ _ALL_ONES
    return int(crc32c(_ZEROS[:zeros_after], crc)) ^ _ALL_ONES


def _over_zeros(crc: int, zeros: int) -> int:
    """A CRC carried on over so many zero bytes."""
    while zeros > len(_ZEROS):
        crc = crc32c(_ZEROS, crc)
        zeros -= len(_ZEROS)
    return int(crc32c(_ZEROS[:zeros], crc))
