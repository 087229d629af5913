"""Batches of a log as they are stored, and the records in them, as far as an audit looks at these. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from broker.client.aborted import AbortedBatches
from broker.client.dead_letter_headers import ERROR_HEADER, ROUTE_HEADER
from broker.client.fetch import FetchedBatches
from broker.records.batch import (
    HEADER_SIZE,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    verify_crc,
)
from broker.records.message_set import read_message
from broker.records.reader import Columns, iterate_entries, read_columns
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.window_tally import checksums_of

DECODED_BYTES_MAX = 256 << 20
_OFFSET_BYTES = 8
_FIELDS = attrgetter("key", "value", "offset", "timestamp", "headers")


class Entry(NamedTuple):
    """A batch, or what stood in its place before there were batches."""

    data: memoryview
    header: BatchHeader | None
    """None: of magic 0 or 1."""
    next: int
    """Offset after it."""

    @property
    def crc(self) -> int:
        """The checksum in its header."""
        return 0 if self.header is None else self.header.crc


def visible_entries(fetched: FetchedBatches, *, committed_only: bool) -> Iterator[Entry]:
    """Those that hold records, without markers, and where asked for without what was aborted. Raises
    CorruptRecordsError.
    """
    aborted = AbortedBatches(fetched.aborted if committed_only else ())
    for start, size in iterate_entries(fetched.records):
        data = fetched.records[start : start + size]
        if data[MAGIC_POSITION] < 2:
            yield Entry(data, None, int.from_bytes(data[:_OFFSET_BYTES], "big", signed=True) + 1)
            continue
        header = read_header(data)
        is_aborted = aborted.includes(header)
        if header.is_control or is_aborted or not header.record_count:
            continue
        yield Entry(data, header, header.next_offset)


def are_alike(entry: Entry, other: Entry) -> bool:
    """Whether two batches hold the same records in the same bytes, so that there is no need to look into
    them; False where that is not so, or cannot be seen.
    """
    one, two = entry.header, other.header
    if one is None or two is None:
        return False
    return (
        one.batch_length == two.batch_length
        and (one.attributes ^ two.attributes) & ~TRANSACTIONAL_FLAG == 0
        and one[6:9] == two[6:9]
        and one.record_count == two.record_count == one.last_offset_delta + 1
        and entry.data[HEADER_SIZE:] == other.data[HEADER_SIZE:]
    )


def check(entry: Entry) -> None:
    """Raises CorruptRecordsError when the bytes of a batch are not those of its checksum."""
    if entry.header is not None:
        verify_crc(entry.data, 0, entry.header)


def columns_of(entry: Entry) -> Columns:
    """The records of an entry, field by field. Raises CorruptRecordsError."""
    if entry.header is not None:
        return read_columns(entry.data, entry.header, size_max=DECODED_BYTES_MAX, exact_names=True)
    records = read_message(entry.data, size_max=DECODED_BYTES_MAX)
    return Columns(*(list(each) for each in zip(*map(_FIELDS, records), strict=True)))


def items_of(
    columns: Columns,
    *,
    with_time: bool,
    with_sums: bool = False,
    letters: str | None = None,
    may_repeat: bool | None = False,
    is_own: bool = False,
) -> list[Item]:
    """The records, to be compared. `with_time`: their times count. `with_sums`: they have checksums.
    `letters`: the route whose dead letters there may be. `may_repeat`, `is_own`: see `Item`.
    """
    if letters is not None:
        columns = _without_errors(columns, letters)
    headers = map(tuple, columns.headers)
    if with_time:
        contents = map(hash, zip(columns.keys, columns.values, headers, columns.timestamps, strict=True))
    else:
        contents = map(hash, zip(columns.keys, columns.values, headers, strict=True))
    sums = checksums_of(columns, with_time=with_time) if with_sums else repeat(0)
    fields = (columns.offsets, contents, map(hash, columns.keys), columns.timestamps)
    return list(map(Item, *fields, repeat(None), sums, repeat(may_repeat), repeat(is_own)))


def letters_of(columns: Columns, route: str) -> list[bool]:
    """Of each record, whether it is a dead letter of the route."""
    mark = ROUTE_HEADER, route.encode()
    return [mark in headers for headers in columns.headers]


def _without_errors(columns: Columns, route: str) -> Columns:
    """What keeps a step from processing a record is said by each version in its own words."""
    are_letters = letters_of(columns, route)
    if not any(are_letters):
        return columns
    headers = [
        [header for header in each if header[0] != ERROR_HEADER] if is_letter else each
        for each, is_letter in zip(columns.headers, are_letters, strict=True)
    ]
    return columns._replace(headers=headers)


class Repeaters(NamedTuple):
    """Who may have left copies of records that were copied again: mirrors that deliver at least once."""

    producers: Collection[int] = frozenset()
    """Their ids, as the ledger tells, also those of a time in which the route said so; none: not known."""
    is_route_one: bool = True
    """The route delivers at least once now, and nobody else writes there: where none is known, anybody may be
    one.
    """

    @property
    def are_any(self) -> bool:
        """Whether there may be one at all."""
        return self.is_route_one or bool(self.producers)

    def may_have_written(self, entry: Entry) -> bool | None:
        """By the producer that a batch names; None: its format names none, and its place decides."""
        if entry.header is None:
            return None if self.is_route_one else False
        producer_id = entry.header.producer_id
        return producer_id in self.producers if self.producers else self.is_route_one and producer_id >= 0
