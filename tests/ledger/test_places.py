"""Where a route stands by the pages of a lane."""

from __future__ import annotations

import pytest

from broker.types import TopicPartition
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.places import Reach, lanes_at, last_reach, reach_from


def page(first: int, end: int, to: int | None, *, is_anew: bool = False, behind: int | None = None) -> Page:
    """Of the source offsets from one to the other, copied to that place; None: they were left out."""
    made = Page(first, is_anew=is_anew, behind=behind)
    if to is not None:
        made.add_run(first, to, end - first)
    made.cover(end)
    return made


COPIED = page(0, 1000, 0)
SOUGHT_BACK = page(500, 620, 1000)


def test_nothing_is_known_of_a_lane_without_pages() -> None:
    assert last_reach([]) is None
    assert reach_from([], 7) == Reach(7, 0)


@pytest.mark.parametrize(
    ("pages", "reach"),
    [
        ([COPIED], Reach(1000, 1000)),
        ([COPIED, page(1000, 1300, None)], Reach(1300, 1000)),
        ([COPIED, SOUGHT_BACK], Reach(620, 1120)),
        ([COPIED, page(2000, 2100, 1000)], Reach(2100, 1100)),
        ([COPIED, page(800, 800, None, is_anew=True, behind=1000)], Reach(800, 0)),
        ([page(0, 40, None)], Reach(40, 0)),
        (
            [page(0, 40, None), page(30, 35, None, is_anew=True), page(20, 20, None, is_anew=True)],
            Reach(20, 0),
        ),
    ],
)
def test_a_lane_stands_where_what_was_written_last_ends(pages: list[Page], reach: Reach) -> None:
    assert last_reach(pages) == last_reach(pages[::-1]) == reach


@pytest.mark.parametrize(
    ("pages", "position", "goes_on"),
    [
        ([COPIED], 400, 1000),
        ([COPIED], 1000, 1000),
        ([COPIED], 1700, 1700),
        ([COPIED, page(1000, 1040, 1000)], 1000, 1040),
        ([page(0, 500, 0), page(500, 700, 500)], 300, 700),
        ([COPIED, SOUGHT_BACK], 600, 620),
        ([page(0, 620, 0), page(620, 1000, 620), SOUGHT_BACK], 600, 620),
        ([COPIED, page(2000, 2100, 1000)], 2050, 2100),
        ([COPIED, page(2000, 2100, 1000)], 900, 1000),
        ([COPIED, page(500, 620, None)], 620, 620),
        ([page(0, 40, None)], 30, 40),
        ([COPIED, page(800, 850, 1000, is_anew=True)], 820, 850),
        ([COPIED, page(800, 800, None, is_anew=True, behind=1000)], 800, 800),
    ],
)
def test_a_route_goes_on_where_whoever_stored_its_position_had_come(
    pages: list[Page], position: int, goes_on: int
) -> None:
    assert reach_from(pages, position).next == reach_from(pages[::-1], position).next == goes_on


def test_lanes_go_on_each_by_itself_but_those_to_a_topic_with_other_partitions_than_before() -> None:
    copies = [TopicPartition("copies", number) for number in range(3)]
    parked = TopicPartition("parked", 0)
    assert lanes_at({copies[0]: 9, copies[1]: 7, parked: 5}) == (9, 7, 5)
    assert lanes_at({copies[0]: 9, copies[1]: 7, copies[2]: None, parked: 8}) == (7, 7, 7, 8)
    assert lanes_at({copies[0]: 9, parked: None}) == (9, 9)
