"""What has arrived behind the last stable offset."""

from __future__ import annotations

import pytest

from mirrormaker.audit.ranges import Range, joined
from mirrormaker.audit.stable_ends import LogEnd, unstable_ranges
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.ledger.page import Page


def page(first: int, *runs: tuple[int, int | None, int]) -> Page:
    """Runs: source offset, destination offset, records."""
    made = Page(first)
    made.add_runs([(SourceRun(source, length), to) for source, to, length in runs])
    return made


PAGES = [page(0, (0, 100, 10), (12, 110, 5)), page(17, (17, 120, 3), (30, 200, 10))]


@pytest.mark.parametrize(
    ("stable", "held"),
    [
        (300, []),
        (210, []),
        (209, [Range(39, 40)]),
        (150, [Range(30, 40)]),
        (112, [Range(14, 20), Range(30, 40)]),
        (0, [Range(0, 10), Range(12, 20), Range(30, 40)]),
    ],
)
def test_copies_behind_the_stable_end_are_found(stable: int, held: list[Range]) -> None:
    assert joined(unstable_ranges(PAGES, LogEnd(high=300, stable=stable))) == held


def test_what_is_nobody_knows_where_is_before_what_came_after_it() -> None:
    pages = [page(0, (0, 100, 10), (10, None, 5)), page(15, (15, 120, 5), (20, None, 5))]
    for stable, held in ((120, [Range(15, 25)]), (119, [Range(10, 25)]), (299, [Range(20, 25)]), (300, [])):
        assert joined(unstable_ranges(pages, LogEnd(high=300, stable=stable))) == held


def test_pages_of_a_topic_that_is_gone_hold_nothing_back() -> None:
    for stable in (50, 48):
        assert not list(unstable_ranges(PAGES, LogEnd(high=50, stable=stable)))
