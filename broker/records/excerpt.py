"""A batch with some of its records: what compaction leaves of it (KIP-354, KIP-534).

The batch keeps base and last offset, leader epoch, producer and sequence numbers, so gaps show where records
were, and what is left of the records are their very bytes. A delete horizon (the time from which a tombstone
or marker may go) takes the place of the base timestamp, marked by a bit of the attributes; only then are the
timestamps of records written anew, as they are relative to it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from broker.records.record import parse_varint, varint
from broker.types import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBatch:
    """A batch with its records uncompressed: `columns` field by field, `content` byte by byte."""

    header: BatchHeader
    content: Buffer
    columns: Columns


def open_batch(
    batch: Buffer, header: BatchHeader, *, size_max: int, exact_names: bool = False
) -> OpenedBatch:
    """Look into the batch that starts `batch`, uncompressed to at most `size_max` bytes. Raises
    CorruptRecordsError. `exact_names`: see `read_columns`.
    """
    view = memoryview(batch)
    content = decompress_view(header.codec, view[HEADER_SIZE : header.size], size_max=size_max)
    if header.codec is Codec.NONE:
        columns = read_columns(batch, header, size_max=size_max, exact_names=exact_names)
        return OpenedBatch(header=header, content=content, columns=columns)
    plain = header._replace(
        attributes=header.attributes & ~CODEC_MASK,
        batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(content),
    )
    attributes = plain.attributes.to_bytes(2, "big", signed=True)
    uncompressed = b"".join(
        (view[:ATTRIBUTES_POSITION], attributes, view[ATTRIBUTES_POSITION + 2 : HEADER_SIZE], content)
    )
    columns = read_columns(uncompressed, plain, size_max=size_max, exact_names=exact_names)
    return OpenedBatch(header=header, content=content, columns=columns)


def excerpt(opened: OpenedBatch, kept: Sequence[bool], *, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with those records, at least one, that `kept` marks, in its own codec.

    `delete_horizon_ms` gives it one. Raises CorruptRecordsError.
    """
    header = opened.header
    content = bytes(opened.content)
    try:
        records = _kept_bytes(content, kept, single=delete_horizon_ms is not None)
    except IndexError:
        raise CorruptRecordsError(f"the batch at offset {header.base_offset} lacks records") from None
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        shift = base_timestamp - delete_horizon_ms
        records = [_shifted(record, shift) for record in records]
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
        b"".join(records),
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without its records: what stays of the last one of a producer, for its sequence number."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_FLAG
    return _assembled(header._replace(attributes=attributes, record_count=0), b"")


def _assembled(header: BatchHeader, content: bytes) -> bytearray:
    codec = header.codec
    batch = bytearray(HEADER_SIZE)
    batch += content if codec is Codec.NONE else compress(codec, content)
    write_header(batch, 0, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    return batch


def _kept_bytes(content: bytes, kept: Sequence[bool], *, single: bool = False) -> list[bytes]:
    """The bytes of the kept records; neighbours come together unless they are wanted `single`."""
    pieces: list[bytes] = []
    position, start = 0, -1
    for is_kept in kept:
        size, body = content[position], position + 1
        if size > 0x7F:
            second = content[body]
            if second > 0x7F:
                size, body = parse_varint(content, position)
                size <<= 1
            else:
                size, body = size & 0x7F | second << 7, body + 1
        if is_kept:
            if start < 0:
                start = position
        elif start >= 0:
            pieces.append(content[start:position])
            start = -1
        position = body + (size >> 1)
        if single and start >= 0:
            pieces.append(content[start:position])
            start = -1
    if position > len(content):
        raise CorruptRecordsError(f"records of {position} bytes where {len(content)} are")
    if start >= 0:
        pieces.append(content[start:position])
    return pieces


def _shifted(record: bytes, shift: int) -> bytes:
    """The record with `shift` ms added to its timestamp delta."""
    _, attributes_position = parse_varint(record, 0)
    delta, position = parse_varint(record, attributes_position + 1)
    body = b"".join(
        (record[attributes_position : attributes_position + 1], varint(delta + shift), record[position:])
    )
    return varint(len(body)) + body
