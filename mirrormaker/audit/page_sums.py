"""What pages of the ledger add up of the headers of batches, on either side: by window of time, and by
stretches of a partition that two routes know, one as its destination and the other as its source. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mirrormaker.audit.ranges import Range
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.ledger.page import CRC_MODULUS, NOWHERE_KNOWN, Page, PageRun
from mirrormaker.ledger.page_windows import NO_TIME


class Places(NamedTuple):
    """Which offsets of a partition records have, however pages divide them: the sums of those and of their
    squares.
    """

    offsets: int = 0
    squares: int = 0

    @classmethod
    def of(cls, stretches: Iterable[tuple[int, int]]) -> Places:
        """`stretches`: first offset and length of each."""
        offsets = squares = 0
        for first, length in stretches:
            before = length * (length - 1) // 2
            offsets += length * first + before
            squares += length * first**2 + 2 * first * before + before * (2 * length - 1) // 3
        return cls(offsets, squares)

    @classmethod
    def all_of(cls, parts: Iterable[Places]) -> Places:
        """Of records that are in several pages."""
        offsets = squares = 0
        for part in parts:
            offsets += part.offsets
            squares += part.squares
        return cls(offsets, squares)


class PageSum(NamedTuple):
    """Of one page with records."""

    source: Range
    """Offsets of the source that it deals with."""
    to: Range | None
    """Where its records are; None: not known of all."""
    times: Range | None
    """Of its records, milliseconds since the epoch; None: not known."""
    records: int
    source_crc: int | None
    crc: int | None
    source_places: Places
    places: Places
    """At the destination; means nothing where `to` is None."""

    @classmethod
    def of(cls, page: Page, runs: Sequence[PageRun]) -> PageSum:
        """`runs`: of the page. Raises nothing: what a page does not tell is None."""
        is_placed = all(run.to != NOWHERE_KNOWN for run in runs)
        return cls(
            source=Range(page.first, page.next),
            to=Range(page.to_first or 0, page.to_next or 0) if is_placed else None,
            times=None if page.first_ms == NO_TIME else Range(page.first_ms, page.last_ms + 1),
            records=page.count,
            source_crc=page.source_crc,
            crc=page.crc,
            source_places=Places.of((run.source, run.length) for run in runs),
            places=Places.of((run.to, run.length) for run in runs),
        )


class WindowSum(NamedTuple):
    """Of the pages of one window."""

    source: Range
    """Offsets of the source that these deal with."""
    source_crc: int | None
    crc: int | None


def sum_window(sums: Iterable[PageSum], window: TimeWindow, offsets: Range) -> WindowSum | None:
    """Of the pages that are of the window wholly; those that tell no time, if they deal with its `offsets`.
    None: there are none, or a page is of other windows too.
    """
    own: list[PageSum] = []
    for each in sums:
        if each.times is None:
            part, whole = each.source.within(offsets), each.source
        else:
            part, whole = each.times.within(window.range_ms), each.times
        if part.length and part != whole:
            return None
        if part.length:
            own.append(each)
    if not own:
        return None
    return WindowSum(
        source=Range(min(each.source.first for each in own), max(each.source.next for each in own)),
        source_crc=add_up(each.source_crc for each in own),
        crc=add_up(each.crc for each in own),
    )


def add_up(sums: Iterable[int | None]) -> int | None:
    """As pages add checksums up; None: not all are known."""
    total = 0
    for each in sums:
        if each is None:
            return None
        total = (total + each) % CRC_MODULUS
    return total


class SharedStretch(NamedTuple):
    """A stretch of a partition in the middle, as both routes know it."""

    offsets: Range
    records: int
    written_crc: int
    read_crc: int


def shared_stretches(written: Iterable[PageSum], read: Iterable[PageSum]) -> Iterator[SharedStretch]:
    """The shortest stretches that begin and end with pages of both, and of which both know the checksums of
    records at the same offsets. `written`: pages of the routes that lead there; `read`: of one that leads on.
    """
    known = [(each.to, 0, each) for each in written if each.to is not None]
    known += [(each.source, 1, each) for each in read]
    group: list[tuple[Range, int, PageSum]] = []
    end = -1
    for each in sorted(known, key=lambda each: each[:2]):
        if each[0].first >= end and group:
            yield from _shared(group)
            group = []
        group.append(each)
        end = max(end, each[0].next)
    yield from _shared(group)


def _shared(group: Sequence[tuple[Range, int, PageSum]]) -> Iterator[SharedStretch]:
    written = [(where, page) for where, side, page in group if side == 0]
    read = [(where, page) for where, side, page in group if side == 1]
    if (
        not written
        or not read
        or _overlap(where for where, _ in written)
        or _overlap(where for where, _ in read)
    ):
        return  # records of several lanes among each other, or read more than once
    records = sum(page.records for _, page in written)
    if records != sum(page.records for _, page in read) or Places.all_of(
        page.places for _, page in written
    ) != Places.all_of(page.source_places for _, page in read):
        return  # the second left some out, or knows of records that others wrote there
    written_crc = add_up(page.crc for _, page in written)
    read_crc = add_up(page.source_crc for _, page in read)
    if written_crc is not None and read_crc is not None:
        first, end = written[0][0].first, max(where.next for where, _ in written)
        yield SharedStretch(Range(first, end), records, written_crc, read_crc)


def _overlap(ranges: Iterable[Range]) -> bool:
    end = -1
    for each in ranges:
        if each.first < end:
            return True
        end = each.next
    return False
