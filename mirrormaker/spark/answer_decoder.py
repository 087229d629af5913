"""Answers to fetches, decoded into Arrow record batches some megabytes at a time.

Batches are verified and decompressed one by one, their records are then found all at once. What is not as
usual (messages of magic 0 and 1, and whatever `find_fields` does not understand) goes record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from broker.client.aborted import AbortedBatches
from broker.client.fetch import FetchedBatches
from broker.records.batch import HEADER_SIZE, MAGIC_POSITION, BatchHeader, read_header, verify_crc
from broker.records.compression import decompress_view
from broker.records.reader import iterate_entries, read_batches
from broker.types import Buffer
from mirrormaker.spark.arrow import fields_to_arrow, to_arrow
from mirrormaker.spark.offsets import OffsetRange
from mirrormaker.spark.record_fields import Section, find_fields

_UNIT_BYTES = 4 * 1024 * 1024
"""Uncompressed, of what is decoded at once."""
_BATCH_SIZE_MAX = 512 * 1024 * 1024
"""Uncompressed bytes of one batch that a task is ready to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingTerms:
    """What becomes of an answer's records."""

    wanted: OffsetRange
    committed_only: bool
    check_crcs: bool
    include_headers: bool


@dataclass(slots=True)
class _Unit:
    """Batches to decode at once, as they came and uncompressed."""

    entries: list[memoryview] = field(default_factory=list)
    contents: list[Buffer] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    size: int = 0

    def add(self, entry: memoryview, header: BatchHeader, content: Buffer) -> None:
        self.entries.append(entry)
        self.contents.append(content)
        self.sections.append(Section(header=header, start=self.size, end=self.size + len(content)))
        self.size += len(content)


def decode_answer(fetched: FetchedBatches, terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    """The records of an answer that are wanted; batches of Arrow are not empty.

    Raises CorruptRecordsError.
    """
    unit = _Unit()
    for entry, header in _visible_entries(fetched, terms):
        if header is None:
            yield from _decode_unit(unit, terms)
            unit = _Unit()
            yield from _decode_slowly([entry], terms)
            continue
        content = decompress_view(header.codec, entry[HEADER_SIZE:], size_max=_BATCH_SIZE_MAX)
        unit.add(entry, header, content)
        if unit.size >= _UNIT_BYTES:
            yield from _decode_unit(unit, terms)
            unit = _Unit()
    yield from _decode_unit(unit, terms)


def _visible_entries(
    fetched: FetchedBatches, terms: DecodingTerms
) -> Iterator[tuple[memoryview, BatchHeader | None]]:
    """The batches that have wanted records, verified; without a header those of magic 0 and 1."""
    aborted = AbortedBatches(fetched.aborted)
    for position, size in iterate_entries(fetched.records):
        entry = fetched.records[position : position + size]
        if entry[MAGIC_POSITION] < 2:
            yield entry, None
            continue
        header = read_header(entry)
        is_aborted = aborted.includes(header) and terms.committed_only
        if header.is_control or is_aborted or not header.record_count:
            continue
        if header.next_offset <= terms.wanted.start or header.base_offset >= terms.wanted.end:
            continue
        if terms.check_crcs:
            verify_crc(entry, 0, header)
        yield entry, header


def _decode_unit(unit: _Unit, terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    if not unit.sections:
        return
    data = b"".join(unit.contents)
    fields = find_fields(data, unit.sections)
    if fields is None:
        yield from _decode_slowly(unit.entries, terms)
        return
    fields = fields.between(terms.wanted.start, terms.wanted.end)
    if not len(fields.offsets):
        return
    try:
        topic, partition = terms.wanted.partition
        yield fields_to_arrow(data, fields, topic, partition, include_headers=terms.include_headers)
    except (IndexError, pa.ArrowInvalid):
        yield from _decode_slowly(unit.entries, terms)


def _decode_slowly(entries: list[memoryview], terms: DecodingTerms) -> Iterator[pa.RecordBatch]:
    for entry in entries:
        for batch in read_batches(
            entry, start_offset=terms.wanted.start, size_max=_BATCH_SIZE_MAX, check_crc=terms.check_crcs
        ):
            records = [record for record in batch.records if record.offset < terms.wanted.end]
            if records:
                yield to_arrow(records, *terms.wanted.partition, include_headers=terms.include_headers)
