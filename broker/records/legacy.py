"""Conversion between message sets of magic 0 and 1 and batches of magic 2, for clients older than the log."""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import MAGIC_POSITION, Codec, read_header, verify_crc
from broker.records.builder import BatchBuilder
from broker.records.message_set import build_message_set, message_codec, read_message
from broker.records.reader import iterate_entries, read_records
from broker.records.record import Record, TimestampType
from broker.records.validation import RecordCheck, RecordRules
from broker.types import Buffer

_BATCH_SIZE_MAX = 1 << 30
_MESSAGE_OVERHEAD = 26
"""Bytes of a message of magic 0 beside key and value."""


def read_message_set(message_set: Buffer, *, size_max: int) -> Iterator[Record]:
    """The records of a whole message set of magic 0 and 1, uncompressed to at most `size_max` bytes in all.

    Raises CorruptRecordsError, also when its last entry is torn: a producer sends whole ones. ExpansionError
    when there are more bytes.
    """
    view = memoryview(message_set)
    end = 0
    for position, size in iterate_entries(view):
        records = read_message(view[position : position + size], size_max=size_max)
        for record in records:
            size_max -= _MESSAGE_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        yield from records
        end = position + size
    if end != len(view):
        raise CorruptRecordsError(f"torn message set: {len(view) - end} bytes follow its last message")


def to_batches(
    message_set: Buffer,
    *,
    size_max: int,
    codec: Codec | None = None,
    batch_size_max: int = _BATCH_SIZE_MAX,
    level: int | None = None,
    rules: RecordRules | None = None,
) -> bytearray:
    """What an old producer sent as batches of magic 2 whose offsets count from 0 in each.

    `codec` None keeps the codec of the last message; `size_max` bounds all uncompressed bytes,
    `batch_size_max` those of one batch before it is compressed, unless a single record is larger. Records
    have create time: who appends them decides. Raises CorruptRecordsError, and InvalidRecordsError when they
    break `rules`.
    """
    codec = _last_codec(message_set) if codec is None else codec
    check = RecordCheck(rules) if rules is not None else None
    batches = bytearray()
    builder = BatchBuilder(codec, size_max=batch_size_max, level=level)
    for record in read_message_set(message_set, size_max=size_max):
        if check is not None:
            check.look_at((record.key,), (record.timestamp,))
        if not builder.append(record.timestamp, record.key, record.value):
            batches += builder.build()
            builder = BatchBuilder(codec, size_max=batch_size_max, level=level)
            builder.append(record.timestamp, record.key, record.value)
    if check is not None:
        check.end()
    return batches + builder.build() if builder.count else batches


def from_batches(
    buffer: Buffer,
    magic: int,
    *,
    size_max: int,
    first_offset: int = 0,
    answer_size_max: int | None = None,
) -> bytes:
    """A fetch answer for a client that reads at most `magic` 0 or 1; entries that old stay as they are.

    Headers, control batches, a torn tail and batches without records from `first_offset` on are left out, and
    whatever follows once the answer has `answer_size_max` bytes. `size_max` bounds the uncompressed bytes of
    each batch. Raises CorruptRecordsError, and ProtocolError with UNSUPPORTED_COMPRESSION_TYPE when zstd,
    which old clients do not know, comes before anything else.
    """
    view = memoryview(buffer)
    converted: list[Buffer] = []
    size = 0
    for position, entry_size in iterate_entries(view):
        entry = view[position : position + entry_size]
        if size and _is_zstd(entry):
            break
        converted.append(_from_entry(entry, magic, size_max, first_offset))
        size += len(converted[-1])
        if answer_size_max is not None and size >= answer_size_max:
            break
    return b"".join(converted)


def to_message_set(batch: Buffer, magic: int, *, size_max: int) -> bytes:
    """What a producer sends to a leader that knows only `magic` 0 or 1 in place of one batch of magic 2.

    Timestamps are left out of magic 0. `size_max` bounds the uncompressed bytes. Raises ProtocolError with
    UNSUPPORTED_VERSION for headers and the batches of idempotent producers, with
    UNSUPPORTED_COMPRESSION_TYPE for zstd: there is no place for those; CorruptRecordsError.
    """
    header = read_header(batch)
    if header.codec is Codec.ZSTD:
        raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs magic 2")
    if header.producer_id >= 0:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "what idempotent producers send needs magic 2")
    records = read_records(batch, header, size_max=size_max)
    if any(record.headers for record in records):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "headers of records need magic 2")
    if header.is_log_append_time:  # a producer's messages never are
        records = [record._replace(timestamp_type=TimestampType.CREATE_TIME) for record in records]
    return build_message_set(records, magic, header.codec)


def _is_zstd(entry: memoryview) -> bool:
    return entry[MAGIC_POSITION] == 2 and read_header(entry).codec is Codec.ZSTD


def _last_codec(message_set: Buffer) -> Codec:
    view, codec = memoryview(message_set), Codec.NONE
    for position, size in iterate_entries(view):
        codec = message_codec(view[position : position + size])
    return codec


def _from_entry(entry: memoryview, magic: int, size_max: int, first_offset: int) -> Buffer:
    if entry[MAGIC_POSITION] <= magic:
        return entry
    if entry[MAGIC_POSITION] < 2:
        return build_message_set(read_message(entry, size_max=size_max), magic, message_codec(entry))
    header = read_header(entry)
    if header.is_control or header.next_offset <= first_offset:
        return b""
    if header.codec is Codec.ZSTD:
        raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a client that reads magic 2")
    verify_crc(entry, 0, header)
    records = read_records(entry, header, size_max=size_max)
    if not records or records[-1].offset < first_offset:  # compaction removed those behind
        return b""
    return build_message_set(records, magic, header.codec)
