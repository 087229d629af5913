"""Stretches of offsets, against sets of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from mirrormaker.audit.ranges import Range, common, covered_by, joined, outside, total
from mirrormaker.ledger.page import Page

ranges = some.builds(
    lambda first, length: Range(first, first + length), some.integers(0, 40), some.integers(0, 9)
)


def offsets(*given: Range) -> set[int]:
    return {offset for each in given for offset in range(each.first, each.next)}


@given(some.lists(ranges))
def test_joined_ranges_are_the_same_offsets_and_do_not_touch(given: list[Range]) -> None:
    whole = joined(given)
    assert offsets(*whole) == offsets(*given)
    assert total(whole) == len(offsets(*given))
    assert all(before.next < after.first for before, after in pairwise(whole))


@given(some.lists(ranges), ranges)
def test_what_is_outside_is_what_none_of_them_cover(given: list[Range], within: Range) -> None:
    assert offsets(*outside(joined(given), within)) == offsets(within) - offsets(*given)


@given(some.lists(ranges), some.lists(ranges))
def test_what_is_common_is_what_both_cover(given: list[Range], other: list[Range]) -> None:
    assert offsets(*common(joined(given), joined(other))) == offsets(*given) & offsets(*other)


def page(first: int, end: int, to_first: int | None, *, is_anew: bool = False) -> Page:
    made = Page(first, is_anew=is_anew)
    if to_first is not None:
        made.add_run(first, to_first, end - first)
    made.cover(end)
    return made


def test_pages_cover_what_they_deal_with_copied_or_not() -> None:
    assert covered_by([page(0, 10, 0), page(12, 20, None), page(20, 25, 10)]) == [Range(0, 10), Range(12, 25)]


def test_what_earlier_pages_have_of_a_log_that_is_gone_does_not_count() -> None:
    assert covered_by([page(0, 100, 0), page(40, 50, 100, is_anew=True)]) == [Range(0, 50)]


def test_a_range_is_shown_with_its_last_offset() -> None:
    assert [str(Range(3, 4)), str(Range(3, 6))] == ["3", "3 to 5"]
