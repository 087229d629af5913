"""What the pages of a lane say of single records: where each is, and whose each is. Pure.

Pages in the order of the destination are cut into passes: within one both sides only ascend. A route that
never crashed and never sought has one pass; what it copied again begins another, and so does what was written
between the records of a process that stood still. Where a topic got partitions, what one lane had left to
another that did not come to copy it may be its own since: that begins none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from operator import attrgetter

from mirrormaker.audit.page_sums import PageSum
from mirrormaker.audit.ranges import Range, holds, joined, outside
from mirrormaker.ledger.page import NOWHERE_KNOWN, Page, PageRun

OFFSET_MAX = (1 << 63) - 1


class Whereabouts(Enum):
    """What is known of a source offset that has no known place."""

    NOWHERE = "nowhere"
    """It was dealt with, and has no copy."""
    SOMEWHERE = "somewhere"
    """It has a copy; where is not known."""
    UNRECORDED = "unrecorded"
    """The ledger does not know of it."""


class Pass:
    """Pages side by side, in whose order both sides ascend."""

    def __init__(self, pages: Sequence[Page]) -> None:
        by_page = [list(page.runs()) for page in pages]
        runs = list(chain.from_iterable(by_page))
        self.source = Range(pages[0].first, max(page.next for page in pages))
        self._covered = joined(Range(page.first, page.next) for page in pages)
        self.sums = [PageSum.of(page, own) for page, own in zip(pages, by_page, strict=True) if page.count]
        """Of its pages with records."""
        self.made = joined(
            Range(page.to_first, page.to_next)
            for page in pages
            if page.more and page.to_first is not None and page.to_next is not None
        )
        """Where a function made several records of some; what has no run there is of these."""
        self._known = [run for run in runs if run.to != NOWHERE_KNOWN]
        self._unknown = joined(_source_of(run) for run in runs if run.to == NOWHERE_KNOWN)
        self._sources = [run.source for run in self._known]
        self._tos = [run.to for run in self._known]
        self.to = Range(self._tos[0], self._known[-1].to + self._known[-1].length) if self._known else None
        """Where the first of its records is, up to after the last; None where that is known of none."""

    @property
    def known_runs(self) -> Sequence[PageRun]:
        """Records whose place is known, in the order of both sides."""
        return self._known

    def run_at(self, offset: int) -> PageRun | None:
        """The run with a source offset in it, whose place is known."""
        index = bisect_right(self._sources, offset) - 1
        if index < 0:
            return None
        run = self._known[index]
        return run if offset < run.source + run.length else None

    def has_copy_of(self, offset: int) -> bool:
        """Whether the record at a source offset was copied, wherever it is."""
        return self.run_at(offset) is not None or holds(self._unknown, offset)

    def place_of(self, offset: int) -> int | Whereabouts:
        """Where the record at a source offset is."""
        run = self.run_at(offset)
        if run is not None:
            return run.to + offset - run.source
        if holds(self._unknown, offset):
            return Whereabouts.SOMEWHERE
        return Whereabouts.NOWHERE if holds(self._covered, offset) else Whereabouts.UNRECORDED

    def place_from(self, offset: int) -> int | None:
        """Where the first record at a source offset or after it is, whose place is known."""
        index = bisect_right(self._sources, offset)
        if index and offset < self._sources[index - 1] + self._known[index - 1].length:
            return self._tos[index - 1] + offset - self._sources[index - 1]
        return self._tos[index] if index < len(self._tos) else None

    def places_around(self, offset: int) -> Range:
        """Destination offsets between the records around a source offset that has no known place."""
        index = bisect_right(self._sources, offset)
        first = self._tos[index - 1] + self._known[index - 1].length if index else 0
        return Range(first, self._tos[index] if index < len(self._tos) else OFFSET_MAX)

    def source_of(self, to: int) -> int | None:
        """Of which source offset the record there is; None: of none in this pass."""
        index = bisect_right(self._tos, to) - 1
        if index < 0:
            return None
        run = self._known[index]
        return run.source + to - run.to if to < run.to + run.length else None

    def source_before(self, to: int) -> int | None:
        """The source offset of the last record before that place."""
        index = bisect_right(self._tos, to) - 1
        if index < 0:
            return None
        run = self._known[index]
        return run.source + min(to - run.to, run.length - 1)

    def place_before(self, to: int) -> int:
        """Where the last record before that place is; -1: there is none."""
        index = bisect_right(self._tos, to) - 1
        return -1 if index < 0 else min(to, self._tos[index] + self._known[index].length - 1)

    def place_behind(self, to: int) -> int | None:
        """Where its first record at that place or behind it is; None: there is none."""
        index = bisect_right(self._tos, to) - 1
        if index >= 0 and to < self._tos[index] + self._known[index].length:
            return to
        return self._tos[index + 1] if index + 1 < len(self._tos) else None

    def may_lack(self, offset: int, to: int) -> bool:
        """Whether a process may have left a copy of the record at a source offset at that place, and ended
        before it wrote that down.
        """
        within = self.lacking_at(to)
        is_between = within.first <= offset < within.next
        return is_between and self.place_of(offset) is Whereabouts.UNRECORDED

    def lacking_at(self, to: int) -> Range:
        """Source offsets between those of the records before and behind that place; where none is behind it,
        all that follow.
        """
        index = bisect_right(self._tos, to) - 1
        first = self._known[index].source + self._known[index].length if index >= 0 else 0
        return Range(first, self._sources[index + 1] if index + 1 < len(self._sources) else OFFSET_MAX)

    def places(self) -> Iterator[Range]:
        """Destination offsets of its records."""
        return (Range(run.to, run.to + run.length) for run in self._known)

    def count(self, within: Range) -> int:
        """Records of these source offsets that have a copy."""
        return sum(each.length for each in self.copied_parts(within))

    def copied_parts(self, within: Range) -> Iterator[Range]:
        """Of these source offsets, those of records that have a copy."""
        for run in self.runs_within(within):
            yield _source_of(run).within(within)
        yield from (each.within(within) for each in self._unknown)

    def covered_parts(self, within: Range) -> Iterator[Range]:
        """Of these source offsets, those that were dealt with."""
        return (each.within(within) for each in self._covered)

    def holes(self) -> Iterator[Range]:
        """Source offsets between its pages that were not."""
        return outside(self._covered, self.source)

    def runs_within(self, within: Range) -> Sequence[PageRun]:
        """Runs with any of these source offsets, whose place is known."""
        if not within.length:
            return ()
        low = bisect_right(self._sources, within.first) - 1
        if low < 0 or self._known[low].source + self._known[low].length <= within.first:
            low += 1
        return self._known[low : bisect_right(self._sources, within.next - 1)]


@dataclass(frozen=True, slots=True)
class OtherPasses:
    """Those of a lane beside one of them, in the order of the destination."""

    before: Sequence[Pass] = ()
    behind: Sequence[Pass] = ()

    @classmethod
    def beside(cls, one: Pass, passes: Sequence[Pass]) -> OtherPasses:
        """Of all of a lane."""
        at = passes.index(one)
        return cls(passes[:at], passes[at + 1 :])

    def have_copy_of(self, offset: int) -> bool:
        """Whether any of them copied the record at a source offset."""
        return any(each.has_copy_of(offset) for each in chain(self.before, self.behind))

    def sources_at(self, to: int) -> list[int]:
        """The source offsets of what they wrote to that place."""
        sources = (each.source_of(to) for each in chain(self.before, self.behind))
        return [source for source in sources if source is not None]

    def left(self, offset: int, *, is_copied: bool) -> bool:
        """Whether those before left the record at a source offset to this pass: they dealt with it and made
        no copy, or they did not, and `is_copied` by this one.
        """
        places = {each.place_of(offset) for each in self.before} - {Whereabouts.UNRECORDED}
        return places <= {Whereabouts.NOWHERE} and (is_copied or bool(places))


def last_place(passes: Iterable[Pass], offset: int) -> int | None:
    """Where the last copy of the record at a source offset is; None: none is known."""
    places = (each.place_of(offset) for each in passes)
    return max((place for place in places if isinstance(place, int)), default=None)


def pass_before(passes: Iterable[Pass], to: int) -> Pass | None:
    """The one with the last record before that place; None: none has any."""
    before = max(passes, key=lambda each: each.place_before(to), default=None)
    return None if before is None or before.place_before(to) < 0 else before


def may_lack(passes: Iterable[Pass], offset: int, to: int) -> bool:
    """See `Pass.may_lack`: of the pass before that place."""
    before = pass_before(passes, to)
    return before is not None and before.may_lack(offset, to)


def passes_of(pages: Iterable[Page], cut_at: int = OFFSET_MAX) -> list[Pass]:
    """The passes of a lane, of what its source has now, in the order of the destination. `cut_at`: what it
    had from there on is gone, though no page says so yet.
    """
    current, _ = _by_log(pages, cut_at)
    return _cut(current)


def severed_passes_of(pages: Iterable[Page], cut_at: int = OFFSET_MAX) -> list[Pass]:
    """The same of what was copied from a log that is gone: the source has other records at these offsets
    since, or none. What it lost at once is in passes of its own.
    """
    _, severed = _by_log(pages, cut_at)
    return [each for lost in severed for each in _cut(lost)]


def _cut(pages: Iterable[Page]) -> list[Pass]:
    """`pages`: in the order of the destination."""
    cut: list[list[Page]] = []
    for page in pages:
        if not cut or not _ascends(cut[-1], page):
            cut.append([])
        cut[-1].append(page)
    return [Pass(each) for each in cut]


def _ascends(pages: Sequence[Page], page: Page) -> bool:
    """Whether the page lies behind these on both sides."""
    reached = max((each.to_next for each in pages if each.to_next is not None), default=0)
    is_behind = page.first >= max(each.next for each in pages) or _takes_up(pages, page)
    return is_behind and (page.to_first is None or page.to_first >= reached)


def _takes_up(pages: Sequence[Page], page: Page) -> bool:
    """Whether the page has records that these left to another lane, and lies behind all that they have."""
    begun = next(page.runs(), None)
    if begun is None or begun.source >= max(each.next for each in pages):
        return False
    reached = (run.source + run.length for each in pages for run in each.runs())
    return page.first >= max(reached, default=pages[0].first)


def _by_log(pages: Iterable[Page], cut_at: int) -> tuple[list[Page], list[list[Page]]]:
    """Pages, or parts of them, of the log that the source has now, and those of logs that are gone, by log:
    where a page begins anew, what earlier ones have from there on is of another.
    """
    current: list[Page] = []
    severed: list[list[Page]] = []

    def cut(at: int) -> None:
        nonlocal current
        severed.append([each.part(at, OFFSET_MAX) for each in current if each.next > at])
        current = [each.part(0, at) for each in current if each.first < at]

    for page in sorted(pages, key=attrgetter("order")):
        if page.is_anew:
            cut(page.first)
        current.append(page)
    cut(cut_at)
    return current, severed


def _source_of(run: PageRun) -> Range:
    return Range(run.source, run.source + run.length)
