"""Answers to fetches, decoded into Arrow record batches some megabytes at a time.

Batches are verified and decompressed one by one, their records are then found all at once. What is not as
usual (messages of magic 0 and 1, and whatever `find_fields` does not understand) goes record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from broker.client.aborted import AbortedBatches
from broker.client.fetch import FetchedBatches
from broker.records.batch import HEADER_SIZE, MAGIC_POSITION, BatchHeader, Codec, read_header, verify_crc
from broker.records.compression import decompress_view
from broker.records.reader import iterate_entries, read_batches
from broker.types import Buffer
from mirrormaker.spark.arrow import fields_to_arrow, to_arrow
from mirrormaker.spark.offsets import OffsetRange, TimeRange
from mirrormaker.spark.record_fields import Section, find_fields

_UNIT_BYTES = 4 * 1024 * 1024
"""Uncompressed, of what is decoded at once."""
_ARROW_BYTES = 1024 * 1024
_ARROW_ROWS_MAX = 8192
"""How much Spark is handed at once: it reads from these while they are in the caches."""
_BATCH_SIZE_MAX = 512 * 1024 * 1024
"""Uncompressed bytes of one batch that a task is ready to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingTerms:
    """What becomes of an answer's records."""

    wanted: OffsetRange
    times: TimeRange
    committed_only: bool
    check_crcs: bool
    include_headers: bool


class _Entry(NamedTuple):
    """One batch, or a message of magic 0 or 1, which has no header."""

    position: int
    data: memoryview
    header: BatchHeader | None


@dataclass(slots=True)
class _Unit:
    """Batches to decode at once, as they came and uncompressed."""

    entries: list[_Entry] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    contents: list[Buffer] = field(default_factory=list)
    size: int = 0
    is_plain: bool = True
    """Nothing is compressed: the records can be read where they are."""

    def add(self, entry: _Entry, header: BatchHeader) -> None:
        content = decompress_view(header.codec, entry.data[HEADER_SIZE:], size_max=_BATCH_SIZE_MAX)
        self.entries.append(entry)
        self.headers.append(header)
        self.contents.append(content)
        self.size += len(content)
        self.is_plain = self.is_plain and header.codec is Codec.NONE

    def sections(self, answer: memoryview) -> tuple[bytes | memoryview, list[Section]]:
        """A buffer with the records of all batches, and where those of each are."""
        sizes = [len(content) for content in self.contents]
        if self.is_plain:
            data: bytes | memoryview = answer
            starts = [entry.position + HEADER_SIZE for entry in self.entries]
        else:
            data = b"".join(self.contents)
            starts = list(accumulate(sizes[:-1], initial=0))
        return data, [
            Section(header=header, start=start, end=start + size)
            for header, start, size in zip(self.headers, starts, sizes, strict=True)
        ]


def decode_answer(fetched: FetchedBatches, terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    """The records of an answer that are wanted, those asked for and no others of its first batch; batches of
    Arrow are not empty.

    Raises CorruptRecordsError.
    """
    begin = max(terms.wanted.start, fetched.start_offset)
    terms = replace(terms, wanted=replace(terms.wanted, start=begin))
    unit = _Unit()
    for entry in _visible_entries(fetched, terms):
        if entry.header is not None:
            unit.add(entry, entry.header)
        if entry.header is None or unit.size >= _UNIT_BYTES:
            yield from _decode_unit(unit, fetched.records, terms)
            unit = _Unit()
        if entry.header is None:
            yield from _decode_slowly([entry], terms)
    yield from _decode_unit(unit, fetched.records, terms)


def _visible_entries(fetched: FetchedBatches, terms: DecodingTerms) -> Iterator[_Entry]:
    """The batches that have wanted records, verified, and all messages of magic 0 and 1."""
    aborted = AbortedBatches(fetched.aborted)
    for position, size in iterate_entries(fetched.records):
        entry = fetched.records[position : position + size]
        if entry[MAGIC_POSITION] < 2:
            yield _Entry(position, entry, None)
            continue
        header = read_header(entry)
        is_aborted = aborted.includes(header) and terms.committed_only
        if header.is_control or is_aborted or not header.record_count:
            continue
        if header.next_offset <= terms.wanted.start or header.base_offset >= terms.wanted.end:
            continue
        if header.is_log_append_time and not terms.times.has(header.max_timestamp):
            continue
        if terms.check_crcs:
            verify_crc(entry, 0, header)
        yield _Entry(position, entry, header)


def _decode_unit(unit: _Unit, answer: memoryview, terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    if not unit.entries:
        return
    data, sections = unit.sections(answer)
    fields = find_fields(data, sections)
    if fields is None:
        yield from _decode_slowly(unit.entries, terms)
        return
    rows = max(1, min(_ARROW_ROWS_MAX, len(fields.offsets) * _ARROW_BYTES // unit.size))
    fields = fields.between(terms.wanted.start, terms.wanted.end).at_times(terms.times)
    if not len(fields.offsets):
        return
    try:
        topic, partition = terms.wanted.partition
        batch = fields_to_arrow(data, fields, topic, partition, include_headers=terms.include_headers)
    except (IndexError, pa.ArrowInvalid):
        yield from _decode_slowly(unit.entries, terms)
        return
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _decode_slowly(entries: list[_Entry], terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    for entry in entries:
        for batch in read_batches(
            entry.data, start_offset=terms.wanted.start, size_max=_BATCH_SIZE_MAX, check_crc=terms.check_crcs
        ):
            records = [
                record
                for record in batch.records
                if record.offset < terms.wanted.end and terms.times.has(record.timestamp)
            ]
            if records:
                yield to_arrow(records, *terms.wanted.partition, include_headers=terms.include_headers)
