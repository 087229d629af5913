"""Stretches of offsets, and what of them the pages of a lane cover. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from mirrormaker.ledger.page import Page


class Range(NamedTuple):
    """Offsets from `first` up to `next`."""

    first: int
    next: int

    @property
    def length(self) -> int:
        """Offsets in it; none where it ends before it begins."""
        return max(self.next - self.first, 0)

    def __str__(self) -> str:
        return str(self.first) if self.next == self.first + 1 else f"{self.first} to {self.next - 1}"

    def within(self, other: Range) -> Range:
        """What of it lies in the other; nothing, where it ends before it begins."""
        return Range(max(self.first, other.first), min(self.next, other.next))


NOTHING = Range(0, 0)


def total(ranges: Iterable[Range]) -> int:
    """How many offsets these are."""
    return sum(each.length for each in ranges)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets as ranges in their order, none of which touch."""
    whole: list[Range] = []
    for each in sorted(each for each in ranges if each.length):
        if whole and each.first <= whole[-1].next:
            whole[-1] = Range(whole[-1].first, max(whole[-1].next, each.next))
        else:
            whole.append(each)
    return whole


def outside(covered: Sequence[Range], within: Range) -> Iterator[Range]:
    """What of a range none of these cover; `covered` as `joined` makes them."""
    at = within.first
    for index in range(max(bisect_right(covered, (at, at)) - 1, 0), len(covered)):
        each = covered[index]
        if each.first >= within.next:
            break
        if each.first > at:
            yield Range(at, each.first)
        at = max(at, each.next)
    if at < within.next:
        yield Range(at, within.next)


def holds(ranges: Sequence[Range], offset: int) -> bool:
    """Whether one of these has the offset; they are as `joined` makes them."""
    return is_any_held(ranges, Range(offset, offset + 1))


def is_any_held(ranges: Sequence[Range], within: Range) -> bool:
    """Whether any offset of `within` is in one of these, which are as `joined` makes them."""
    index = bisect_left(ranges, (within.next, 0)) - 1
    return index >= 0 and within.first < ranges[index].next


def common(one: Sequence[Range], other: Sequence[Range]) -> Iterator[Range]:
    """What both cover; either as `joined` makes them."""
    at = at_other = 0
    while at < len(one) and at_other < len(other):
        part = one[at].within(other[at_other])
        if part.length:
            yield part
        if one[at].next < other[at_other].next:
            at += 1
        else:
            at_other += 1


def covered_by(pages: Iterable[Page]) -> list[Range]:
    """The source offsets that pages of a lane deal with, as far as they are of the log that the source has
    now: a page that begins anew says that what earlier pages have from there on is of one that is gone.
    """
    covered: list[Range] = []
    for page in sorted(pages, key=attrgetter("order")):
        if page.is_anew:
            covered = [each.within(Range(0, page.first)) for each in covered]
        covered.append(Range(page.first, page.next))
    return joined(covered)
