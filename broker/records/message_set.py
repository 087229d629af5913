"""Message sets of magic 0 and 1: one message an entry, compressed sets as the value of a wrapper message.

Layout (big-endian): offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64,
magic 1 only | key length int32, key | value length int32, value; length -1 is null. The CRC is zlib's and
covers magic to the end. Inner offsets are absolute in magic 0; in magic 1 they count from 0, and the wrapper
has the last one's. A wrapper whose timestamp is the append time speaks for all inner messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from broker.errors import CorruptRecordsError
from broker.records.batch import CODEC_MASK, MAGIC_POSITION, TIMESTAMP_TYPE_FLAG, Codec, peek_size
from broker.records.compression import compress, compress_broken_lz4, decompress, decompress_broken_lz4
from broker.records.record import NO_TIMESTAMP, Record, TimestampType
from broker.types import Buffer

_PREFIX = Struct(">qiIbb")
_CHECKED = Struct(">bb")
_LOG_ENTRY = Struct(">qiI")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_OFFSET_MIN, _OFFSET_MAX = -(1 << 63), (1 << 63) - 1


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number > Codec.LZ4:
            raise CorruptRecordsError(f"message of magic {self.magic} with codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        flag = self.attributes & TIMESTAMP_TYPE_FLAG
        return TimestampType.LOG_APPEND_TIME if flag else TimestampType.CREATE_TIME


def read_message(entry: Buffer, *, size_max: int, check_crc: bool = True) -> list[Record]:
    """The records of one entry of magic 0 or 1: itself, or what it wraps, at most `size_max` bytes of it.

    Never empty. What a producer sends has no offsets yet: those of a wrapper may then be negative. Raises
    CorruptRecordsError.
    """
    message = _parse_message(memoryview(entry), check_crc)
    if message.codec is Codec.NONE:
        return [_to_record(message)]
    return list(_unwrap(message, size_max, check_crc))


def message_codec(entry: Buffer) -> Codec:
    """The codec of one entry of magic 0 or 1. Raises CorruptRecordsError."""
    return _parse_message(memoryview(entry), check_crc=False).codec


def message_place(entry: Buffer) -> tuple[int, int]:
    """Offset and timestamp of one entry of magic 0 or 1; a wrapper has the last offset of what it wraps, and
    the latest time. Raises CorruptRecordsError.
    """
    message = _parse_message(memoryview(entry), check_crc=False)
    return message.offset, message.timestamp


def build_message_set(
    records: Sequence[Record], magic: int, codec: Codec, *, level: int | None = None
) -> bytes:
    """`records` as messages of `magic` 0 or 1, in one wrapper unless `codec` is none; without headers.

    Raises ValueError for zstd, which these formats do not know.
    """
    if codec is Codec.ZSTD:
        raise ValueError("zstd needs magic 2")
    if not records:
        return b""
    if codec is Codec.NONE:
        return b"".join(_build_message(record, magic) for record in records)
    first, last = records[0], records[-1]
    # Relative offsets keep the gaps that compaction left; readers take the last one as the wrapper's.
    inner_base = first.offset if magic == 1 else 0
    inner = b"".join(
        _build_message(record._replace(offset=record.offset - inner_base), magic) for record in records
    )
    value = (
        compress_broken_lz4(inner)
        if magic == 0 and codec is Codec.LZ4
        else compress(codec, inner, level=level)
    )
    timestamp = max(record.timestamp for record in records)
    return _build_message(Record(last.offset, timestamp, last.timestamp_type, None, value, ()), magic, codec)


def _parse_message(entry: memoryview, check_crc: bool) -> _Message:
    """The message that fills `entry`."""
    if len(entry) < _PREFIX.size:
        raise CorruptRecordsError(f"torn message of {len(entry)} bytes")
    offset, _, crc, magic, attributes = _PREFIX.unpack_from(entry)
    if magic not in (0, 1):
        raise CorruptRecordsError(f"message of magic {magic} at offset {offset}, expected 0 or 1")
    if check_crc and crc32(entry[MAGIC_POSITION:]) != crc:
        raise CorruptRecordsError(f"CRC of the message at offset {offset} does not match")
    position, timestamp = _PREFIX.size, NO_TIMESTAMP
    if magic == 1:
        if len(entry) < position + _TIMESTAMP.size:
            raise CorruptRecordsError(f"torn message at offset {offset}")
        timestamp = _TIMESTAMP.unpack_from(entry, position)[0]
        position += _TIMESTAMP.size
    key, position = _parse_bytes(entry, position)
    value, position = _parse_bytes(entry, position)
    if position != len(entry):
        raise CorruptRecordsError(f"{len(entry) - position} bytes follow the message at offset {offset}")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _parse_bytes(entry: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    if start > len(entry):
        raise CorruptRecordsError("torn message")
    length: int = _LENGTH.unpack_from(entry, position)[0]
    if length == -1:
        return None, start
    if not 0 <= length <= len(entry) - start:
        raise CorruptRecordsError(f"message field of {length} bytes where {len(entry) - start} are left")
    return bytes(entry[start : start + length]), start + length


def _unwrap(wrapper: _Message, size_max: int, check_crc: bool) -> Iterator[Record]:
    messages = list(_parse_inner(wrapper, size_max, check_crc))
    if not messages:
        raise CorruptRecordsError(f"compressed message at offset {wrapper.offset} holds no message")
    base = wrapper.offset - messages[-1].offset if wrapper.magic == 1 else 0
    appended = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    for message in messages:
        record = _to_record(message)._replace(offset=base + message.offset)
        if not _OFFSET_MIN <= record.offset <= _OFFSET_MAX:
            raise CorruptRecordsError(
                f"message at offset {record.offset} inside the one at offset {wrapper.offset}"
            )
        if appended:
            record = record._replace(
                timestamp=wrapper.timestamp, timestamp_type=TimestampType.LOG_APPEND_TIME
            )
        yield record


def _parse_inner(wrapper: _Message, size_max: int, check_crc: bool) -> Iterator[_Message]:
    content = memoryview(_decompress_value(wrapper, size_max))
    position = 0
    while position < len(content):
        size = peek_size(content, position)
        if size is None or size > len(content) - position:
            raise CorruptRecordsError(f"torn message inside the compressed one at offset {wrapper.offset}")
        message = _parse_message(content[position : position + size], check_crc)
        if message.magic != wrapper.magic or message.codec is not Codec.NONE:
            raise CorruptRecordsError(f"message of another format inside the one at offset {wrapper.offset}")
        yield message
        position += size


def _decompress_value(wrapper: _Message, size_max: int) -> bytes:
    if wrapper.value is None:
        raise CorruptRecordsError(f"compressed message at offset {wrapper.offset} has no value")
    if wrapper.magic == 0 and wrapper.codec is Codec.LZ4:
        return decompress_broken_lz4(wrapper.value, size_max=size_max)
    return decompress(wrapper.codec, wrapper.value, size_max=size_max)


def _to_record(message: _Message) -> Record:
    return Record(message.offset, message.timestamp, message.timestamp_type, message.key, message.value, ())


def _build_message(record: Record, magic: int, codec: Codec = Codec.NONE) -> bytes:
    appended = magic == 1 and record.timestamp_type == TimestampType.LOG_APPEND_TIME
    checked = b"".join(
        (
            _CHECKED.pack(magic, codec | (TIMESTAMP_TYPE_FLAG if appended else 0)),
            _TIMESTAMP.pack(record.timestamp) if magic == 1 else b"",
            _build_bytes(record.key),
            _build_bytes(record.value),
        )
    )
    return _LOG_ENTRY.pack(record.offset, len(checked) + 4, crc32(checked)) + checked


def _build_bytes(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data
