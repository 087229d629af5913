"""Offsets of a source partition as offsets of a destination partition, and back, out of the pages. Pure.

What a position means decides the answers: whoever is at an offset has everything before it, and nothing from
it on. So whoever goes on at the translated offset misses nothing; and sees nothing twice, as far as the
destination holds everything once.
- Forward: the least destination offset that a record at or after the source offset is at. Where a crash had a
  stretch copied twice the later copy is the one meant: records come once from there on.
- Back: the first source record that is at or after the destination offset; of records there twice the earlier
  copy counts: whoever has passed that has them. Where several records were made of one, whoever has not
  passed all of them has not passed that one.
Where it is not known what is where, the answer is the last offset that certainly misses nothing, and is not
`is_exact`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from mirrormaker.ledger.page import NOWHERE_KNOWN, Page
from mirrormaker.ledger.stretches import Stretch, Stretches

_ENDLESS = 1 << 62


class Standing(Enum):
    """How an offset stands to what was copied."""

    COPIED = "copied"
    """The record there is the record at the translated offset."""
    BETWEEN = "between"
    """It has no counterpart, as it was filtered, or is a marker, or another's: the translated one is of the
    next that has.
    """
    END = "end"
    """All that is known lies before it, once or more: the translated one is of the record that comes next."""
    BEYOND = "beyond"
    """It lies beyond what is known: the translated one is the end of that."""
    BEFORE = "before"
    """It lies before all that is known: only the first that there is certainly misses nothing."""
    UNRECORDED = "unrecorded"
    """It is known what lies before and after it; the translated one is where what lies before it ends, or
    back, of the record that it may have been made of beside another.
    """


class UnknownStretch(NamedTuple):
    """Source offsets that no page tells of, or of which none tells where they are."""

    first: int
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What an offset is at the other side."""

    offset: int | None
    """None: nothing is known, or only the first that there is certainly misses nothing."""
    standing: Standing
    is_exact: bool = True
    unknown: UnknownStretch | None = None
    """What comes first, where nobody knows what of it was copied, and so decides."""


NOTHING_KNOWN = Translation(offset=None, standing=Standing.UNRECORDED, is_exact=False)

_BEFORE = Translation(offset=None, standing=Standing.BEFORE, is_exact=False)


class LaneMap:
    """See the module. Made of all pages of a lane as they are now."""

    def __init__(self, pages: Iterable[Page]) -> None:
        ordered = sorted(pages, key=attrgetter("order"))
        later, earlier, covered = Stretches(), Stretches(), Stretches()
        since = 0
        for page, until in zip(ordered, _untils(ordered), strict=True):
            if page.is_anew:
                for stretches in (later, earlier, covered):
                    stretches.cut_from(page.first)
            for stretch in _stretches(page, since, until):
                later.put(stretch)
                earlier.put_where_free(stretch)
            since = max(since, page.to_next or 0)
            if page.next > page.first:
                covered.put_where_free(Stretch(page.first, page.next, 0, 0, is_known=False))
        for gap in _gaps(covered, ordered):
            later.put(gap)
            earlier.put_where_free(gap)
        self._later: Sequence[Stretch] = tuple(later)
        self._earlier: Sequence[Stretch] = tuple(earlier)
        self._least = list(accumulate((each.to for each in reversed(self._later)), min))[::-1]
        known = (each.to if each.is_known else _ENDLESS for each in reversed(self._later))
        self._least_known = list(accumulate(known, min))[::-1]
        self._most = list(accumulate((each.to_next for each in self._earlier), max))
        self._nexts = [each.next for each in self._later]
        ends = (each.to_next for each in self._later if each.is_known)
        self._known_to = max([*self._most[-1:], *ends], default=0)
        """The destination offset after all that is known of, copied once more or not."""
        self.first = min((page.first for page in ordered), default=0)
        """The least source offset that is known of."""
        self.next = max((each.next for each in covered), default=0)
        """The source offset after all that is known of."""
        self.to_next = _end(ordered)
        """The least destination offset that what comes next at the source may have."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return self.next <= self.first

    @property
    def _is_end_known(self) -> bool:
        """Whether no record that is known of may stand where what comes next would."""
        return self.to_next is not None and (not self._later or self._later[-1].is_known)

    def forward(self, offset: int) -> Translation:
        """What an offset of the source is at the destination."""
        if self.is_empty:
            return NOTHING_KNOWN
        if offset < self.first:
            return _BEFORE
        if offset >= self.next:
            is_end = offset == self.next
            standing = Standing.END if is_end else Standing.BEYOND
            return Translation(offset=self.to_next, standing=standing, is_exact=is_end and self._is_end_known)
        index = bisect_right(self._nexts, offset)
        if index == len(self._later):
            return Translation(offset=self.to_next, standing=Standing.BETWEEN, is_exact=self._is_end_known)
        stretch = self._later[index]
        unknown = None if stretch.is_known else UnknownStretch(max(stretch.first, offset), stretch.next)
        if unknown is not None or stretch.first > offset:
            return Translation(
                offset=self._least[index],
                standing=Standing.BETWEEN if stretch.first > offset else Standing.UNRECORDED,
                is_exact=unknown is None and self._least[index] == self._least_known[index],
                unknown=unknown,
            )
        at = stretch.to + offset - stretch.first
        following = slice(index + 1, index + 2)
        least = min([at, *self._least[following]])
        is_exact = least == min([at, *self._least_known[following]])
        return Translation(offset=least, standing=Standing.COPIED, is_exact=is_exact)

    def back(self, offset: int, since: int = 0) -> Translation:
        """What an offset of the destination is at the source, where that has nothing of its own from there up
        to `since`.
        """
        if self.is_empty:
            return NOTHING_KNOWN
        index = max(
            bisect_right(self._most, offset),
            bisect_right(self._earlier, since, key=lambda stretch: stretch.next),
        )
        if index == len(self._earlier):
            is_end = not self._earlier or offset <= self._known_to
            standing = Standing.END if is_end else Standing.BEYOND
            return Translation(offset=self.next, standing=standing, is_exact=is_end)
        stretch = self._earlier[index]
        if not stretch.is_known:
            unknown = UnknownStretch(max(stretch.first, since), stretch.next)
            return Translation(
                offset=unknown.first, standing=Standing.UNRECORDED, is_exact=False, unknown=unknown
            )
        if stretch.to > offset:
            if index == 0 and offset < self._least[0]:
                return _BEFORE
            return Translation(offset=stretch.first, standing=Standing.BETWEEN)
        source = stretch.first + offset - stretch.to
        if source >= stretch.next:
            return Translation(offset=stretch.next - 1, standing=Standing.UNRECORDED, is_exact=False)
        return Translation(offset=source, standing=Standing.COPIED)


def _untils(ordered: Sequence[Page]) -> Iterator[int]:
    """For each page a destination offset that its records are certainly before."""
    for page, following in pairwise(ordered):
        is_known = following.to_first is not None and following.first >= page.next
        yield following.to_first if is_known and following.to_first is not None else _ENDLESS
    if ordered:
        yield _ENDLESS


def _stretches(page: Page, since: int, until: int) -> Iterator[Stretch]:
    """Its runs; what is before the page ends at `since`, what is after it begins at `until`."""
    runs = list(page.runs())
    highs = [until] * len(runs)
    for index in range(len(runs) - 2, -1, -1):
        following = runs[index + 1]
        highs[index] = highs[index + 1] if following.to == NOWHERE_KNOWN else following.to
    low = since
    for (source, to, length), high in zip(runs, highs, strict=True):
        if to == NOWHERE_KNOWN:
            yield Stretch(source, source + length, low, high, is_known=False)
        else:
            low = to + length
            end = min(high, low + page.more, page.to_next or low)
            yield Stretch(source, source + length, to, end)


def _gaps(covered: Stretches, ordered: Sequence[Page]) -> Iterator[Stretch]:
    """Source offsets between pages that no page covers."""
    for before, after in pairwise(covered):
        first, end = before.next, after.first
        if first == end:
            continue
        lows = [page.to_next for page in ordered if page.next <= first and page.to_next is not None]
        highs = [page.to_first for page in ordered if page.first >= end and page.to_first is not None]
        yield Stretch(first, end, max(lows, default=0), min(highs, default=_ENDLESS), is_known=False)


def _end(ordered: Sequence[Page]) -> int | None:
    """Where the page that reaches farthest at the source ends at the destination."""
    known: list[tuple[int, int]] = []
    for page in ordered:
        if page.is_anew:
            known = [end for end in known if end[0] <= page.first]
        to_next = page.behind if page.to_next is None else page.to_next
        if to_next is not None:
            known.append((page.next, -to_next))
    return -max(known)[1] if known else None
