"""What pages add up: by window of time, and beside the pages of the route that leads on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.hops import compare_hops
from mirrormaker.audit.outcome import RouteAudit
from mirrormaker.audit.page_sums import PageSum, Places, shared_stretches, sum_window
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.model import ClusterName, RouteName

HOUR = TimeWindow(from_ms=1_000, to_ms=2_000)


def page(first: int, end: int, crc: int | None, *, to: int | None = None, ms: Range | None = None) -> PageSum:
    """Offsets are the same on both sides, unless `to` says where the first is."""
    place, count = first if to is None else to, end - first
    return PageSum(
        source=Range(first, end),
        to=Range(place, place + count),
        times=ms,
        records=count,
        source_crc=crc,
        crc=crc,
        source_places=Places.of([(first, count)]),
        places=Places.of([(place, count)]),
    )


def sparse(first: int, end: int, crc: int, stretches: Sequence[tuple[int, int]]) -> PageSum:
    """A page of the source that has records in these stretches only: first offset and length."""
    records = sum(length for _, length in stretches)
    return page(first, end, crc)._replace(records=records, source_places=Places.of(stretches))


@pytest.mark.parametrize("stretches", [[], [(0, 1)], [(5, 3)], [(3, 2), (7, 10), (40, 1)]])
def test_places_are_sums_over_all_offsets(stretches: Sequence[tuple[int, int]]) -> None:
    offsets = [offset for first, length in stretches for offset in range(first, first + length)]
    assert Places.of(stretches) == (sum(offsets), sum(offset**2 for offset in offsets))
    assert Places.all_of(Places.of([each]) for each in stretches) == Places.of(stretches)


@pytest.mark.parametrize(
    ("pages", "told"),
    [
        ([page(0, 5, 7, ms=Range(1_000, 1_400)), page(5, 9, 8, ms=Range(1_400, 2_000))], (Range(0, 9), 15)),
        ([page(0, 5, 7, ms=Range(500, 900)), page(5, 9, 8, ms=Range(1_900, 2_000))], (Range(5, 9), 8)),
        ([page(0, 5, 7, ms=Range(1_000, 2_001))], None),
        ([page(0, 5, 7, ms=Range(2_000, 2_001))], None),
        ([page(0, 5, None, ms=Range(1_000, 1_001))], (Range(0, 5), None)),
        ([page(3, 5, 7), page(5, 9, 8)], (Range(3, 9), 15)),
        ([page(2, 5, 7)], None),
    ],
)
def test_a_window_has_the_sums_of_its_pages_where_none_is_of_others_too(
    pages: Sequence[PageSum], told: tuple[Range, int | None] | None
) -> None:
    found = sum_window(pages, HOUR, Range(3, 9))
    assert (None if found is None else (found.source, found.crc)) == told


@pytest.mark.parametrize(
    ("written", "read", "stretches"),
    [
        ([page(0, 10, 5)], [page(0, 10, 5)], [(0, 10, 5, 5)]),
        ([page(0, 4, 5), page(4, 10, 6)], [page(0, 10, 11)], [(0, 10, 11, 11)]),
        ([page(0, 4, 5), page(4, 10, 6)], [page(0, 4, 5), page(4, 10, 7)], [(0, 4, 5, 5), (4, 10, 6, 7)]),
        ([page(0, 10, 5)], [page(0, 8, 4)], []),
        ([page(0, 10, 5)], [], []),
        ([page(0, 10, None)], [page(0, 10, 5)], []),
        ([page(0, 4, 5), page(7, 9, 1, to=2)], [page(0, 4, 6)], []),
        ([page(0, 4, 5)], [page(0, 4, 5), page(2, 4, 1)], []),
        ([page(0, 4, 5), page(4, 8, 6, to=5)], [sparse(0, 5, 5, [(0, 4)])], [(0, 4, 5, 5)]),
        ([page(0, 4, 5), page(4, 8, 6, to=9)], [sparse(0, 13, 5, [(0, 4), (9, 4)])], [(0, 13, 11, 5)]),
        pytest.param(
            [page(4, 8, 6)],
            [sparse(0, 8, 9, [(0, 4)])],
            [],
            id="it read as many that were born there, and left out those that came",
        ),
        pytest.param(
            [page(4, 5, 6)],
            [sparse(4, 6, 9, [(5, 1)])],
            [],
            id="the same of one record each",
        ),
    ],
)
def test_stretches_that_both_routes_know_are_compared(
    written: Sequence[PageSum], read: Sequence[PageSum], stretches: Sequence[tuple[int, int, int, int]]
) -> None:
    found = shared_stretches(written, read)
    assert [(*each.offsets, each.written_crc, each.read_crc) for each in found] == stretches


def test_what_the_second_route_read_otherwise_than_the_first_wrote_it_is_named() -> None:
    audits = [
        RouteAudit(
            route=RouteName(f"{source}-to-{to}"),
            source=ClusterName(source),
            destination=ClusterName(to),
            is_deep=False,
        )
        for source, to in (("plant", "region"), ("region", "centre"))
    ]
    middle, other = TopicPartition("plant.alarms", 0), TopicPartition("plant.alarms", 1)
    audits[0].written = {middle: [page(0, 4, 5), page(4, 9, 6)], other: [page(0, 4, 5)]}
    audits[1].read = {middle: [page(0, 4, 5), page(4, 9, 7)], TopicPartition("others", 0): [page(0, 4, 5)]}
    (hop,) = compare_hops(audits)
    assert (hop.records, hop.differing, hop.writers) == (9, 5, ("plant-to-region",))
    assert hop.line() == (
        "region: plant.alarms-0 offsets 4 to 8: plant-to-region wrote checksum 6, region-to-centre read 7"
    )
