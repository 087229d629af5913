"""The batches of a stretch of a log that hold wanted records. Pure.

Whole batches pass as they are, or are left out; a batch with some wanted records is cut to those where that
is worth packing it again. What is passed may therefore hold unwanted records: whoever asked looks again.
Markers of transactions, batches of old formats, and whatever cannot be looked into (damaged, or unpacking to
too much) pass as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.errors import CorruptRecordsError
from broker.records.batch import MAGIC_POSITION, BatchHeader, read_header, verify_crc
from broker.records.excerpt import OpenedBatch, excerpt, open_batch
from broker.records.reader import iterate_entries
from broker.records.record_filter import RecordFilter
from broker.types import Buffer

CUT_BELOW = 0.5
"""Share of wanted records below which a batch is cut to them."""
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is left of a stretch."""

    records: bytes
    next_offset: int
    """Behind what was looked at; -1 when there was nothing."""
    leader_epoch: int = -1
    """Of the batch before that, as far as it has one."""
    looked_at_bytes: int
    """As they are stored."""


def select(stored: Buffer, wanted: RecordFilter, *, unpacked_max: int, batch_unpacked_max: int) -> Selection:
    """Look at batch after batch, until they came to more than `unpacked_max` bytes uncompressed; a batch of
    more than `batch_unpacked_max` is not looked into.
    """
    view = memoryview(stored)
    kept: list[Buffer] = []
    next_offset, leader_epoch, end, unpacked = -1, -1, 0, 0
    for start, size in iterate_entries(view):
        if unpacked > unpacked_max:
            break
        entry, end = view[start : start + size], start + size
        if entry[MAGIC_POSITION] < 2:
            kept.append(entry)
            unpacked += size
            next_offset, leader_epoch = int.from_bytes(entry[:_OFFSET_BYTES], "big", signed=True) + 1, -1
            continue
        header = read_header(entry)
        next_offset, leader_epoch = header.next_offset, header.leader_epoch
        opened = _opened(entry, header, batch_unpacked_max)
        if opened is None:
            kept.append(entry)
            unpacked += size
            continue
        unpacked += len(opened.content)
        if (left := _wanted_of(entry, opened, wanted)) is not None:
            kept.append(left)
    return Selection(
        records=b"".join(kept), next_offset=next_offset, leader_epoch=leader_epoch, looked_at_bytes=end
    )


def _opened(entry: memoryview, header: BatchHeader, size_max: int) -> OpenedBatch | None:
    """The batch to look into, None where there is nothing to be seen or it is for the client to see."""
    if header.is_control or not header.record_count:
        return None
    try:
        verify_crc(entry, 0, header)
        return open_batch(entry, header, size_max=size_max)
    except CorruptRecordsError:
        return None


def _wanted_of(entry: memoryview, opened: OpenedBatch, wanted: RecordFilter) -> Buffer | None:
    columns = opened.columns
    marks: Sequence[bool] = list(map(wanted.matches, columns.keys, columns.values, columns.headers))
    count = sum(marks)
    if not count:
        return None
    if count >= CUT_BELOW * len(marks):
        return entry
    return excerpt(opened, marks)
