"""Records out of batches, through aiokafka's compiled parser.

The parser trusts its input in two ways that this module makes safe. It reads numbers without looking where
the buffer ends, so it is given a view of a copy that is padded behind its end. And it takes any offsets, so
they are checked against the header. Records are parsed a bounded number at a time: what a batch of tiny
records costs in memory is then up to whoever keeps them (as a `Record` about 25 times its bytes).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter, lt
from struct import Struct
from typing import Any, Generic, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    BatchHeader,
    peek_size,
    read_header,
    verify_crc,
)
from broker.records.compression import decompress_view
from broker.records.message_set import read_message
from broker.records.record import Header, Record, parse_records
from broker.records.record_shape import RECORDS, RecordShape, RowType, headers_of
from broker.types import Buffer

_COLUMNS_CHUNK = 4096
_ROWS_CHUNK = 128
"""What is parsed dies before the garbage collector, which counts what lives, has cause to look at it."""
_PADDING = bytes(32)
_ATTRIBUTES = Struct(">h")
_OFFSET_MIN = -(1 << 63)

_OFFSET = attrgetter("offset")
_TIMESTAMP = attrgetter("timestamp")
_KEY = attrgetter("key")
_VALUE = attrgetter("value")


class Columns(NamedTuple):
    """The records of one batch field by field, for columnar sinks; index i of each is record i."""

    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: list[int]
    timestamps: list[int]
    headers: list[Sequence[Header]]


class FetchedBatch(NamedTuple, Generic[RowType]):
    """What one batch, or one entry of magic 0 or 1, holds."""

    next_offset: int
    """Where to fetch after it; also past records that compaction removed."""
    header: BatchHeader | None
    """None for magic 0 and 1."""
    records: list[RowType]


def read_records(batch: Buffer, header: BatchHeader, *, size_max: int) -> list[Record]:
    """The records of the batch that starts `batch`, decompressed to at most `size_max` bytes.

    The CRC is not looked at. Raises CorruptRecordsError when the content is not what the header says, or too
    large.
    """
    return _read_rows(batch, header, RECORDS, size_max)


def iterate_records(batch: Buffer, header: BatchHeader, *, size_max: int) -> Iterator[Record]:
    """As `read_records` in bounded memory; corruption may come after records before it were yielded."""
    for parsed, offsets in _parse(batch, header, size_max, _ROWS_CHUNK):
        yield from RECORDS.of_parsed(parsed, offsets)


def read_columns(batch: Buffer, header: BatchHeader, *, size_max: int, exact_names: bool = False) -> Columns:
    """As `read_records`, field by field: twice as fast as taking records apart. `exact_names`: see
    `parse_records`.
    """
    columns = Columns([], [], [], [], [])
    for parsed, offsets in _parse(batch, header, size_max, exact_names=exact_names):
        columns.offsets.extend(offsets)
        columns.keys.extend(map(_KEY, parsed))
        columns.values.extend(map(_VALUE, parsed))
        columns.timestamps.extend(map(_TIMESTAMP, parsed))
        columns.headers.extend(headers_of(parsed))
    return columns


def read_keys(batch: Buffer, header: BatchHeader, *, size_max: int) -> tuple[list[bytes | None], list[int]]:
    """Keys and offsets of the records; as `read_columns` otherwise."""
    keys: list[bytes | None] = []
    offsets: list[int] = []
    for parsed, parsed_offsets in _parse(batch, header, size_max):
        keys.extend(map(_KEY, parsed))
        offsets.extend(parsed_offsets)
    return keys, offsets


def iterate_columns(batch: Buffer, header: BatchHeader, *, size_max: int) -> Iterator[Columns]:
    """As `read_columns` in bounded memory: some records at a time."""
    for parsed, offsets in _parse(batch, header, size_max):
        yield Columns(
            list(map(_KEY, parsed)),
            list(map(_VALUE, parsed)),
            offsets,
            list(map(_TIMESTAMP, parsed)),
            list(headers_of(parsed)),
        )


def read_batches(
    buffer: Buffer, *, start_offset: int = 0, size_max: int, check_crc: bool = True
) -> Iterator[FetchedBatch[Record]]:
    """As `read_shaped_batches`, as `Record`s."""
    return read_shaped_batches(
        buffer, RECORDS, start_offset=start_offset, size_max=size_max, check_crc=check_crc
    )


def read_shaped_batches(
    buffer: Buffer,
    shape: RecordShape[RowType],
    *,
    start_offset: int = 0,
    size_max: int,
    check_crc: bool = True,
) -> Iterator[FetchedBatch[RowType]]:
    """Every batch and legacy entry of a fetch answer, control batches too; a torn tail ends the walk quietly.

    Batches wholly below `start_offset` and, in the others, records below it are left out: a fetch that starts
    inside a batch is answered with the whole batch. `size_max` bounds the uncompressed bytes of each batch.
    Raises CorruptRecordsError.
    """
    view = memoryview(buffer)
    for position, size in iterate_entries(view):
        entry = view[position : position + size]
        fetched = _read_entry(entry, shape, start_offset, size_max, check_crc)
        if fetched.next_offset > start_offset:
            yield fetched


def read_all(
    buffer: Buffer, *, start_offset: int = 0, size_max: int, check_crc: bool = True
) -> Iterator[Record]:
    """The records of a fetch answer from `start_offset` on, by `read_batches`, without control records."""
    for fetched in read_batches(buffer, start_offset=start_offset, size_max=size_max, check_crc=check_crc):
        if fetched.header is None or not fetched.header.is_control:
            yield from fetched.records


def iterate_entries(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Position and size of every whole batch or legacy entry; a torn tail ends the walk quietly.

    Raises CorruptRecordsError for a length that no entry can have.
    """
    position, end = 0, len(buffer)
    while (size := peek_size(buffer, position)) is not None and size <= end - position:
        yield position, size
        position += size


def _read_entry(
    entry: memoryview, shape: RecordShape[RowType], start_offset: int, size_max: int, check_crc: bool
) -> FetchedBatch[RowType]:
    magic = entry[MAGIC_POSITION]
    if magic < 2:
        records = read_message(entry, size_max=size_max, check_crc=check_crc)
        wanted = [shape.of_record(record) for record in records if record.offset >= start_offset]
        return FetchedBatch(records[-1].offset + 1, None, wanted)
    header = read_header(entry)
    if check_crc:
        verify_crc(entry, 0, header)
    if header.next_offset <= start_offset:
        return FetchedBatch(header.next_offset, header, [])
    rows = _read_rows(entry, header, shape, size_max, start_offset)
    return FetchedBatch(header.next_offset, header, rows)


def _read_rows(
    batch: Buffer,
    header: BatchHeader,
    shape: RecordShape[RowType],
    size_max: int,
    start_offset: int = _OFFSET_MIN,
) -> list[RowType]:
    """The records of a batch from `start_offset` on."""
    rows: list[RowType] = []
    for parsed, offsets in _parse(batch, header, size_max, _ROWS_CHUNK):
        skipped = bisect_left(offsets, start_offset)
        rows += islice(shape.of_parsed(parsed, offsets), skipped, None)
    return rows


def _parse(
    batch: Buffer,
    header: BatchHeader,
    size_max: int,
    chunk_count: int = _COLUMNS_CHUNK,
    *,
    exact_names: bool = False,
) -> Iterator[tuple[list[Any], list[int]]]:
    """Parsed records, `chunk_count` at a time, and their offsets, checked."""
    padded = _uncompressed(batch, header, size_max)
    content = memoryview(padded)[: -len(_PADDING)]
    # The compiled parser must be iterated once only and not asked on after its end; chain sees to both.
    records: Iterator[Any] = chain(DefaultRecordBatch(content))
    parsed_count, last_offset = 0, header.base_offset - 1
    while True:
        try:
            parsed = list(islice(records, chunk_count))
        except CorruptRecordException as error:
            raise CorruptRecordsError(
                f"records of the batch at offset {header.base_offset}: {error}"
            ) from error
        except (UnicodeDecodeError, OverflowError, MemoryError):
            parsed_plainly = parse_records(content[HEADER_SIZE:], header, exact_names=exact_names)
            records = islice(parsed_plainly, parsed_count, None)
            continue
        if not parsed:
            return
        offsets = list(map(_OFFSET, parsed))
        _check_offsets(offsets, last_offset, header)
        last_offset = offsets[-1]
        parsed_count += len(parsed)
        yield parsed, offsets


def _uncompressed(batch: Buffer, header: BatchHeader, size_max: int) -> bytes:
    """A copy of the batch with its records uncompressed, and padding."""
    view = memoryview(batch)
    if len(view) < header.size:
        raise CorruptRecordsError(f"batch of {header.size} bytes at offset {header.base_offset} is torn")
    content = decompress_view(header.codec, view[HEADER_SIZE : header.size], size_max=size_max)
    attributes = _ATTRIBUTES.pack(header.attributes & ~CODEC_MASK)
    after_attributes = ATTRIBUTES_POSITION + _ATTRIBUTES.size
    return b"".join(
        (view[:ATTRIBUTES_POSITION], attributes, view[after_attributes:HEADER_SIZE], content, _PADDING)
    )


def _check_offsets(offsets: list[int], previous: int, header: BatchHeader) -> None:
    """Offsets rise from `previous` on and stay within the batch."""
    last = offsets[-1]
    dense = last - previous == len(offsets) and offsets == list(range(previous + 1, last + 1))
    if not dense and not (offsets[0] > previous and all(map(lt, offsets, offsets[1:]))):
        raise CorruptRecordsError(f"offsets do not rise in the batch at offset {header.base_offset}")
    if last > header.last_offset:
        raise CorruptRecordsError(f"record at offset {last} in a batch that ends at {header.last_offset}")
