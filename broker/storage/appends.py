"""What is asked of records before they are stored, and where they went. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import (
    LENGTH_OVERHEAD,
    BatchHeader,
    iterate_batches,
    rebase,
    stamp_append_time,
    verify_crc,
)
from broker.records.control import Marker, read_marker
from broker.records.record import NO_TIMESTAMP
from broker.records.validation import validate_header
from broker.types import Buffer

PositionedBatches = Sequence[tuple[int, BatchHeader]]
"""Batches in a buffer, by position and header."""
APART = -1
"""In place of the first offset of records that do not lie side by side."""


class Appended(NamedTuple):
    """Where records went: `first_offset` is `APART` where others wrote between those that were there before
    and the rest. `log_append_time_ms` is -1 unless the log stamps its own time; `duplicate`: all were there
    before.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class PlacedBatch(NamedTuple):
    """What the indexes need of a batch that is being appended: where it starts in the append and its size
    (bytes).
    """

    start: int
    size: int
    last_offset: int
    max_timestamp: int


def validate_batch(records: Buffer, position: int, header: BatchHeader, *, size_max: int) -> None:
    """What a leader checks of a producer's batch; the cheapest first.

    Raises ProtocolError MESSAGE_TOO_LARGE, INVALID_RECORD, CorruptRecordsError.
    """
    size = header.batch_length + LENGTH_OVERHEAD
    if size > size_max:
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, the limit is {size_max}")
    validate_header(header)
    verify_crc(records, position, header)


def validate_batches(records: memoryview, *, size_max: int) -> PositionedBatches:
    """The batches that fill `records`, each checked by `validate_batch`. Raises CorruptRecordsError when they
    do not.
    """
    batches = list(iterate_batches(records))
    if not batches or batches[-1][0] + batches[-1][1].size != len(records):
        raise CorruptRecordsError("records do not end with a whole batch")
    for position, header in batches:
        validate_batch(records, position, header, size_max=size_max)
    return batches


def batches_from_leader(records: memoryview, next_offset: int) -> PositionedBatches:
    """The whole batches that a leader sent, from `next_offset` on; a torn one at the end is left out.

    Raises CorruptRecordsError for a wrong checksum and for offsets that do not ascend.
    """
    batches = []
    for position, header in iterate_batches(records):
        verify_crc(records, position, header)
        if header.base_offset < next_offset:
            raise CorruptRecordsError(f"offset {header.base_offset} after {next_offset - 1}")
        next_offset = header.next_offset
        batches.append((position, header))
    return batches


def markers_in(records: memoryview, batches: PositionedBatches) -> dict[int, Marker]:
    """The markers of transactions among the batches, by their positions. Raises CorruptRecordsError."""
    return {
        position: marker
        for position, header in batches
        if header.is_control
        and header.producer_id >= 0
        and (marker := read_marker(records[position : position + header.size], header)) is not None
    }


def has_gaps(batches: PositionedBatches, next_offset: int) -> bool:
    """Whether offsets are missing from `next_offset` on: compaction at the leader leaves such batches."""
    for _, header in batches:
        if header.base_offset != next_offset:
            return True
        next_offset = header.next_offset
    return False


def grouped(batches: PositionedBatches, size_max: int) -> Iterator[PositionedBatches]:
    """Neighbouring batches that together take up to `size_max` bytes; a larger one is alone."""
    start = 0
    for index, (position, header) in enumerate(batches):
        if index > start and position + header.size - batches[start][0] > size_max:
            yield batches[start:index]
            start = index
    if start < len(batches):
        yield batches[start:]


def fill_in(
    records: memoryview, batches: PositionedBatches, offset: int, leader_epoch: int, append_time_ms: int
) -> list[PlacedBatch]:
    """Give batches their offsets from `offset` on, and their epoch, in place; the time too, unless it is -1.
    Where they go when they are stored side by side.
    """
    placed, start = [], 0
    for position, header in batches:
        rebase(records, position, offset, leader_epoch)
        timestamp = header.max_timestamp
        if append_time_ms != NO_TIMESTAMP:
            stamp_append_time(records, position, header, append_time_ms)
            timestamp = append_time_ms
        placed.append(PlacedBatch(start, header.size, offset + header.last_offset_delta, timestamp))
        offset += header.last_offset_delta + 1
        start += header.size
    return placed


def placed_as_sent(batches: PositionedBatches) -> list[PlacedBatch]:
    """Where neighbouring batches go that keep their offsets."""
    start = batches[0][0]
    return [
        PlacedBatch(position - start, header.size, header.last_offset, header.max_timestamp)
        for position, header in batches
    ]


def joined(records: memoryview, batches: PositionedBatches) -> Buffer:
    """These batches of `records` side by side; `records` itself when they are all of it."""
    if sum(header.size for _, header in batches) == len(records):
        return records
    return b"".join(records[position : position + header.size] for position, header in batches)
