"""Checksums in headers beside what the ledger has added up of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker.records.batch import BatchHeader, read_header
from broker.records.builder import BatchBuilder
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.header_check import HeaderCheck, HeaderFindings
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import Page
from tests.audit.views import lane

PLACED = 100
"""How much later everything is at the destination."""
WHOLE, THERE = Range(0, 20), Range(PLACED, PLACED + 20)


def header(base_offset: int, crc: int) -> BatchHeader:
    """Of a batch of five records."""
    builder = BatchBuilder(size_max=1000)
    for number in range(5):
        builder.append(0, None, b"%d" % number)
    return read_header(builder.build())._replace(base_offset=base_offset, crc=crc)


def known() -> Pass:
    """Two pages of ten records, with sums 3 and 7 at the source, 30 and 70 at the destination."""
    pages = []
    for first, crc in ((0, 3), (10, 7)):
        page = Page(first)
        page.add_run(first, first + PLACED, 10)
        page.add_sums(crc * 10, crc)
        pages.append(page)
    return Pass(pages)


def check(source: Iterable[int], to: Iterable[int], within: Range = WHOLE, **sides: bool) -> HeaderFindings:
    """By the checksums of four batches on either side."""
    checked = HeaderCheck(known(), within, THERE, **{"here": True, "there": True, **sides})
    for index, crc in enumerate(source):
        checked.take_source(header(5 * index, crc))
    for index, crc in enumerate(to):
        checked.take_destination(header(PLACED + 5 * index, crc))
    checked.take_source(header(500, 99))
    checked.take_destination(header(5, 99))
    findings = HeaderFindings()
    checked.end(findings)
    return findings


@pytest.mark.parametrize(
    ("source", "there", "changed_source", "changed_there"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], [], []),
        ([1, 2, 3, 5], [10, 20, 30, 40], [Range(10, 20)], []),
        ([1, 2, 3, 4], [10, 21, 30, 40], [], [Range(0, 10)]),
        ([1, 2], [10, 20, 30, 40], [Range(10, 20)], []),
    ],
)
def test_the_side_that_has_changed_is_told(
    source: list[int], there: list[int], changed_source: list[Range], changed_there: list[Range]
) -> None:
    findings = check(source, there)
    assert (findings.pages, findings.changed_source, findings.changed_destination) == (
        2,
        changed_source,
        changed_there,
    )


def test_pages_that_are_not_read_whole_and_compacted_logs_are_not_judged() -> None:
    assert check([9] * 4, [9] * 4, Range(5, 20)).changed_source == [Range(10, 20)]
    findings = check([9] * 4, [9] * 4, here=False, there=False)
    assert (findings.pages, findings.changed_source, findings.changed_destination) == (0, [], [])


def test_pages_in_whose_places_others_stand_since_are_not_judged_there() -> None:
    index = DestinationIndex([known(), *lane((50, PLACED + 15, 5), (80, PLACED + 30, 5))])
    assert index.is_any_contested(Range(PLACED + 10, PLACED + 16))
    assert not index.is_any_contested(Range(PLACED + 10, PLACED + 15))
    assert not index.is_any_contested(Range(PLACED + 20, PLACED + 40))
    checked = HeaderCheck(known(), WHOLE, THERE, here=True, there=True, is_overwritten=index.is_any_contested)
    for at, crc in ((0, 9), (10, 9)):
        checked.take_destination(header(PLACED + at, crc))
    findings = HeaderFindings()
    checked.end(findings)
    assert findings.changed_destination == [Range(0, 10)]


def test_records_whose_place_is_not_known_count_at_the_source_and_leave_their_page_there_unjudged() -> None:
    page = Page(0)
    page.add_run(0, PLACED, 5)
    page.add_run(5, None, 10)
    page.add_run(15, PLACED + 16, 5)
    page.add_sums(100, 10)
    for crc, changed in ((4, []), (5, [WHOLE])):
        checked = HeaderCheck(Pass([page]), WHOLE, Range(PLACED, PLACED + 21), here=True, there=True)
        for index, each in enumerate((1, 2, 3, crc)):
            checked.take_source(header(5 * index, each))
        for place, each in ((0, 10), (5, 20), (16, 40)):
            checked.take_destination(header(PLACED + place, each))
        findings = HeaderFindings()
        checked.end(findings)
        assert (findings.pages, findings.changed_source, findings.changed_destination) == (1, changed, [])
