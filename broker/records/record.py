"""One record, and the plain parser of magic 2 records.

Reading normally goes through a compiled parser (reader.py). This one is for what that parser cannot express,
such as header keys that are not UTF-8, and gives the last word on bytes that it gave up on for lack of
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader
from broker.types import Buffer

NO_TIMESTAMP = -1
"""The timestamp of a record that has none, as all of magic 0."""

TIMESTAMP_MAX = (1 << 63) - 1
"""The last that there is. A batch has how far its records are from the first: what 64 bits do not hold wraps
around, and does so again when it is added.
"""

Header = tuple[str, bytes | None]
"""Key and value of one header of a record."""

_VARINT_SIZE_MAX = 10
_UINT64_MASK = (1 << 64) - 1
_EXACT = "surrogateescape"
"""A byte that is not UTF-8 becomes half of a surrogate pair, as in names of files."""


class TimestampType(IntEnum):
    """Who set a timestamp. Magic 0 has none."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """One record as a consumer sees it; `timestamp` in milliseconds since the epoch, -1 for none."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


def parse_records(content: Buffer, header: BatchHeader, *, exact_names: bool = False) -> Iterator[Record]:
    """The records in `content`, the uncompressed records section of a batch.

    Bytes of header keys that are not UTF-8 become U+FFFD, as in Java's clients; with `exact_names` what
    `name_bytes` has them again of. Raises CorruptRecordsError.
    """
    errors = _EXACT if exact_names else "replace"
    position = 0
    for _ in range(header.record_count):
        record, position = _parse_record(content, position, header, errors)
        yield record
    if position != len(content):
        raise CorruptRecordsError(
            f"{len(content) - position} bytes follow the records of the batch at offset {header.base_offset}"
        )


def name_bytes(name: str) -> bytes:
    """The bytes of a header's key. Raises UnicodeEncodeError for half of a surrogate pair that stands for
    none.
    """
    return name.encode("utf-8", _EXACT)


def wrapped(number: int) -> int:
    """As 64 bits hold it."""
    return (number + TIMESTAMP_MAX + 1) % (1 << 64) - TIMESTAMP_MAX - 1


def _parse_record(content: Buffer, position: int, header: BatchHeader, errors: str) -> tuple[Record, int]:
    length, start = parse_varint(content, position)
    timestamp_delta, position = parse_varint(content, start + 1)
    offset_delta, position = parse_varint(content, position)
    key, position = _parse_bytes(content, position)
    value, position = _parse_bytes(content, position)
    headers, position = _parse_headers(content, position, errors)
    if position - start != length:
        raise CorruptRecordsError(f"record of {position - start} bytes claims {length}")
    appended = header.is_log_append_time
    return Record(
        header.base_offset + offset_delta,
        header.max_timestamp if appended else wrapped(header.base_timestamp + timestamp_delta),
        TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
        key,
        value,
        headers,
    ), position


def _parse_headers(content: Buffer, position: int, errors: str) -> tuple[tuple[Header, ...], int]:
    count, position = parse_varint(content, position)
    if not 0 <= count <= len(content) - position:
        raise CorruptRecordsError(f"record with {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _parse_bytes(content, position)
        value, position = _parse_bytes(content, position)
        if key is None:
            raise CorruptRecordsError("record header without a key")
        headers.append((key.decode("utf-8", errors), value))
    return tuple(headers), position


def _parse_bytes(content: Buffer, position: int) -> tuple[bytes | None, int]:
    size, position = parse_varint(content, position)
    if size < 0:
        return None, position
    if size > len(content) - position:
        raise CorruptRecordsError(f"field of {size} bytes where {len(content) - position} are left")
    return bytes(content[position : position + size]), position + size


def parse_varint(content: Buffer, position: int) -> tuple[int, int]:
    """A zigzag-encoded number and the position after it. Raises CorruptRecordsError."""
    value = 0
    for index, byte in enumerate(content[position : position + _VARINT_SIZE_MAX]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + index + 1
    raise CorruptRecordsError("torn or overlong number in a record")


def varint(value: int) -> bytes:
    """A number, zigzag-encoded as 64 bits hold it."""
    value = wrapped(value)
    rest = (value << 1 ^ value >> 63) & _UINT64_MASK
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
