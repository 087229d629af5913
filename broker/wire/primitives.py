"""The variable-length integers of the protocol, and what generated codecs call off the short path.

Unsigned varints carry lengths, counts and tags of flexible versions: 7 bits a byte, least significant
first, at most 5 bytes, and never more than 2^31-1 here. All functions are pure and raise WireError for
bytes that no encoder writes; running off the end of the buffer is an IndexError that the message's
`decode` turns into a WireError.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from uuid import UUID

from broker.errors import WireError
from broker.types import Buffer

INT32_MAX = 0x7FFFFFFF
STRING_SIZE_MAX = 0x7FFF
"""Bytes of the longest string. Source: the protocol guide, `STRING` and `COMPACT_STRING`."""

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""Unsigned varints of one byte, by value."""


def encode_unsigned_varint(value: int) -> bytes:
    """The bytes of `value`. Raises WireError when it is negative or above 2^31-1."""
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if not 0 <= value <= INT32_MAX:
        raise WireError(f"{value} does not fit an unsigned varint")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Value and the position after it. Raises WireError above 2^31-1, IndexError at the buffer's end."""
    byte = buffer[position]
    position += 1
    if byte < 128:
        return byte, position
    return finish_unsigned_varint(buffer, byte, position)


def finish_unsigned_varint(buffer: Buffer, first_byte: int, position: int) -> tuple[int, int]:
    """Go on reading after a `first_byte` that has its continuation bit set; as `read_unsigned_varint`."""
    value = first_byte & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > INT32_MAX:
                raise WireError(f"length {value} is above 2^31-1")
            return value, position
    raise WireError("a varint is longer than 5 bytes")


def finish_string_length(buffer: Buffer, first_byte: int, position: int) -> tuple[int, int]:
    """As `finish_unsigned_varint`, for a string's length plus one. Raises WireError over the limit, too."""
    length, position = finish_unsigned_varint(buffer, first_byte, position)
    if length > STRING_SIZE_MAX + 1:
        raise WireError(f"a string of {length - 1} bytes is over the limit of {STRING_SIZE_MAX}")
    return length, position


def encode_string_length(length: int) -> bytes:
    """The compact length of a string, `length` being its bytes plus one. Raises WireError over the limit."""
    if length > STRING_SIZE_MAX + 1:
        raise WireError(f"a string of {length - 1} bytes is over the limit of {STRING_SIZE_MAX}")
    return encode_unsigned_varint(length)


def skip_tagged_fields(buffer: Buffer, first_byte: int, position: int, size: int) -> int:
    """Position after a tagged-field section none of whose tags is known; its `first_byte` has been read.

    Raises WireError when a field ends after `size`, IndexError at the buffer's end.
    """
    count = first_byte
    if count > 127:
        count, position = finish_unsigned_varint(buffer, first_byte, position)
    for _ in range(count):
        _tag, position = read_unsigned_varint(buffer, position)
        length, position = read_unsigned_varint(buffer, position)
        position += length
        if position > size:
            raise WireError(f"a tagged field ends {position - size} bytes after the message")
    return position


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes; remembered, as the same topic ids come again and again."""
    return UUID(bytes=raw)


class ArrayStructs(dict[int, Struct]):
    """Structs of `n` big-endian values of one format code, made on demand; only the short ones are kept."""

    KEPT_COUNT_MAX = 256

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Struct:
        struct = Struct(f">{count}{self._code}")
        if count <= self.KEPT_COUNT_MAX:
            self[count] = struct
        return struct


ARRAY_STRUCTS: Mapping[str, ArrayStructs] = {code: ArrayStructs(code) for code in "?bhHiIqd"}
"""By format code."""
