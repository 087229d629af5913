"""A batch with some of its records: what compaction leaves of it (KIP-354, KIP-534).

The batch keeps base and last offset, leader epoch, producer and sequence numbers, so gaps show where records
were, and what is left of the records are their very bytes. A delete horizon (the time from which a tombstone
or marker may go) takes the place of the base timestamp, marked by a bit of the attributes; only then are the
timestamps of records written anew, as they are relative to it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress as select

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    Codec,
    write_header,
)
from broker.records.compression import compress, decompress_view
from broker.records.reader import Columns, read_columns
from broker.records.record import parse_varint
from broker.types import Buffer

_UINT64_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBatch:
    """A batch with its records uncompressed: `columns` field by field, `content` byte by byte."""

    header: BatchHeader
    content: Buffer
    columns: Columns


def open_batch(batch: Buffer, header: BatchHeader, *, size_max: int) -> OpenedBatch:
    """Look into the batch that starts `batch`, uncompressed to at most `size_max` bytes. Raises
    CorruptRecordsError.
    """
    view = memoryview(batch)
    content = decompress_view(header.codec, view[HEADER_SIZE : header.size], size_max=size_max)
    if header.codec is Codec.NONE:
        return OpenedBatch(
            header=header, content=content, columns=read_columns(batch, header, size_max=size_max)
        )
    plain = header._replace(
        attributes=header.attributes & ~CODEC_MASK,
        batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(content),
    )
    attributes = plain.attributes.to_bytes(2, "big", signed=True)
    uncompressed = b"".join(
        (view[:ATTRIBUTES_POSITION], attributes, view[ATTRIBUTES_POSITION + 2 : HEADER_SIZE], content)
    )
    columns = read_columns(uncompressed, plain, size_max=size_max)
    return OpenedBatch(header=header, content=content, columns=columns)


def excerpt(opened: OpenedBatch, kept: Sequence[bool], *, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with those records, at least one, that `kept` marks, in its own codec.

    `delete_horizon_ms` gives it one. Raises CorruptRecordsError.
    """
    header = opened.header
    records: Iterator[memoryview | bytes] = _kept_bytes(opened.content, kept)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        shift = base_timestamp - delete_horizon_ms
        records = (_shifted(record, shift) for record in _kept_bytes(opened.content, kept, single=True))
        attributes, base_timestamp = attributes | DELETE_HORIZON_FLAG, delete_horizon_ms
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(select(opened.columns.timestamps, kept))
    return _assembled(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=sum(kept),
        ),
        compress(header.codec, b"".join(records)),
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without its records: what stays of the last one of a producer, for its sequence number."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_FLAG
    return _assembled(header._replace(attributes=attributes, record_count=0), b"")


def _assembled(header: BatchHeader, content: bytes) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    batch += content
    write_header(batch, 0, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    return batch


def _kept_bytes(content: Buffer, kept: Sequence[bool], *, single: bool = False) -> Iterator[memoryview]:
    """The bytes of the kept records; neighbours come together unless they are wanted `single`."""
    view = memoryview(content)
    position = 0
    start = None
    for is_kept in kept:
        size, body = _record_size(view, position)
        if is_kept and start is None:
            start = position
        elif start is not None and not is_kept:
            yield view[start:position]
            start = None
        position = body + size
        if position > len(view):
            raise CorruptRecordsError(f"record of {size} bytes where {len(view) - body} are left")
        if single and start is not None:
            yield view[start:position]
            start = None
    if start is not None:
        yield view[start:position]


def _record_size(view: memoryview, position: int) -> tuple[int, int]:
    """The size of the record whose length stands at `position`, and where it begins; one and two bytes of
    length are the usual case.
    """
    first = view[position]
    if first < 0x80:
        return first >> 1, position + 1
    second = view[position + 1]
    if second < 0x80:
        return (first & 0x7F | second << 7) >> 1, position + 2
    return parse_varint(view, position)


def _shifted(record: memoryview, shift: int) -> bytes:
    """The record with `shift` ms added to its timestamp delta."""
    _, attributes_position = parse_varint(record, 0)
    delta, position = parse_varint(record, attributes_position + 1)
    body = b"".join(
        (record[attributes_position : attributes_position + 1], _varint(delta + shift), record[position:])
    )
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """A 64-bit number, zigzag-encoded."""
    rest = (value << 1 ^ value >> 63) & _UINT64_MASK
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
