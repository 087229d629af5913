"""All pages of one lane: translation, and what of them can go. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from mirrormaker.flow.books import EpochMark, Reached
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.returned import Span
from mirrormaker.ledger.lane_map import LaneMap, Translation
from mirrormaker.ledger.page import NOWHERE_KNOWN, RUNS_MAX, Page, PageRun
from mirrormaker.ledger.page_windows import NO_TIME, PageWindows

PACKED_RUNS_MIN = RUNS_MAX // 4
"""Pages with so many runs are held packed."""
PageKey = tuple[int, int | None, str | None]
"""First offset at the source, and at the destination; where that is not known, who wrote it."""


class LaneLedger:
    """Pages by their keys; whole maps are made only where pages overlap, as after a crash."""

    def __init__(self) -> None:
        self._pages: dict[PageKey, Page] = {}
        self._ordered: list[Page] | None = None
        """None: to be put in order when asked for."""
        self._is_straight = True
        self._map: LaneMap | None = None
        """Of all pages, once it was needed."""

    def __len__(self) -> int:
        return len(self._pages)

    def put(self, page: Page) -> None:
        """Take a page in, in place of the one with its key. It may not grow any more."""
        if len(page) >= PACKED_RUNS_MIN:
            page.pack()
        self._pages[page.first, page.to_first, page.by if page.to_first is None else None] = page
        self._ordered = self._map = None

    def remove(self, key: PageKey) -> None:
        """Forget a page, if there is one."""
        if self._pages.pop(key, None) is not None:
            self._ordered = self._map = None

    def pages(self) -> Sequence[Page]:
        """By their first source offset."""
        if self._ordered is None:
            self._ordered = sorted(self._pages.values(), key=_position)
            self._is_straight = all(_follows(*pair) for pair in pairwise(self._ordered))
        return self._ordered

    @property
    def first(self) -> int | None:
        """The least source offset that is known of; None where nothing is."""
        pages = self.pages()
        return pages[0].first if pages else None

    @property
    def next(self) -> int | None:
        """The source offset after all that is known of; None where nothing is."""
        pages = self.pages()
        if not pages:
            return None
        return pages[-1].next if self._is_straight else self._whole_map().next

    @property
    def first_copied(self) -> int | None:
        """The least source offset of a record that was copied; None where none was."""
        firsts = (next(page.runs(), None) for page in self._pages.values())
        return min((run.source for run in firsts if run is not None), default=None)

    @property
    def to_first(self) -> int | None:
        """The least destination offset that is known of; None where none is."""
        return min(
            (page.to_first for page in self._pages.values() if page.to_first is not None), default=None
        )

    @property
    def to_next(self) -> int | None:
        """The destination offset after all that is known of; None where none is."""
        ends = (page.to_next for page in self._pages.values())
        return max((end for end in ends if end is not None), default=None)

    def placed_runs(self, start: int = 0) -> Iterator[PageRun]:
        """The runs whose places are known, by these; pages that lie before the destination offset `start` are
        left out.
        """
        pages = (page for page in self.pages() if page.to_next is not None and page.to_next > start)
        runs = (run for page in pages for run in page.runs() if run.to != NOWHERE_KNOWN)
        return runs if self._is_straight else iter(sorted(runs, key=attrgetter("to")))

    def came_back(self, first: int, end: int) -> list[Span]:
        """The source offsets between these that may be of records which came straight from the destination;
        those of several pages in any order.
        """
        if not any(next(page.came_back(first, end), None) for page in self._pages.values()):
            return []
        found: list[Span] = []
        for page in sorted(self._pages.values(), key=attrgetter("order"), reverse=True):
            found += page.came_back(first, end)
            end = min(end, page.first) if page.is_anew else end
        return found

    def forward(self, offset: int) -> Translation:
        """What an offset of the source is at the destination; see `LaneMap`."""
        pages = self.pages()
        if not self._is_straight:
            return self._whole_map().forward(offset)
        at = bisect_right(pages, offset, key=lambda page: page.first)
        return LaneMap(_around(pages, at)).forward(offset)

    def back(self, offset: int, since: int = 0) -> Translation:
        """What an offset of the destination is at the source; see `LaneMap`. `since`: within the
        `unknown` of what was told without it, or its end.
        """
        pages = self.pages()
        if not self._is_straight or any(page.to_first is None for page in pages):
            return self._whole_map().back(offset, since)
        at = bisect_right(pages, offset, key=lambda page: page.to_first or 0)
        return LaneMap(_around(pages, at)).back(offset, since)

    def _whole_map(self) -> LaneMap:
        if self._map is None:
            self._map = LaneMap(self.pages())
        return self._map

    # ---- upkeep

    def of_route(self, route: str | None) -> Sequence[Page]:
        """Its pages, and those that say of no route; by their first source offset."""
        return [page for page in self.pages() if page.route in (None, route)]

    def next_of(self, route: str | None) -> int | None:
        """As `next`, of what is the route's."""
        pages = self.of_route(route)
        if len(pages) == len(self):
            return self.next
        return LaneMap(pages).next if pages else None

    def reached(self, route: str | None) -> Reached | None:
        """How far the source's log, as it is now, had been copied by the route; None: nothing is known."""
        end = self.next_of(route)
        if end is None:
            return None
        mark: EpochMark | None = None
        starts: list[EpochStart] = []
        for page in sorted(self.of_route(route), key=attrgetter("order")):
            if page.is_anew:
                mark, starts = None, [start for start in starts if start.offset < page.first]
            starts += page.epochs
            if page.epoch is not None and (mark is None or page.epoch.before > mark.before):
                mark = page.epoch
        return Reached(end, mark, tuple(starts))

    def outdated(self, log_start: int, route: str | None) -> list[Page]:
        """Pages of the route of which the source, whose log begins at `log_start`, has nothing any more; the
        last page is kept.
        """
        pages = self.of_route(route)
        return [page for page in pages[:-1] if page.next <= log_start]

    def repeated(self, route: str | None) -> list[Page]:
        """Pages of the route all of which a page before them tells too: a process that was killed had written
        them joined, and not deleted the one that was taken in. The last page is kept.
        """
        found: list[Page] = []
        before: Page | None = None
        for page in self.of_route(route)[:-1]:
            if before is not None and before.holds(page):
                found.append(page)
            elif before is None or page.next > before.next:
                before = page
        return found

    def mergeable(
        self, windows: PageWindows, route: str | None, passed: Collection[Page] = ()
    ) -> Iterator[tuple[Page, Page]]:
        """Pages of the route but those `passed`, each with the one that goes on where it ends, but those of
        windows that are kept apart; none twice. The last page is left alone.
        """
        pages = [page for page in self.of_route(route) if page not in passed]
        newest_ms = max((page.last_ms for page in pages), default=NO_TIME)
        index = 0
        while index < len(pages) - 2:
            page, following = pages[index], pages[index + 1]
            is_apart = windows.are_apart(page.first_ms, following.last_ms, newest_ms)
            if not is_apart and page.adjoins(following):
                yield page, following
                index += 1
            index += 1


def _position(page: Page) -> tuple[int, int]:
    return page.first, -1 if page.to_first is None else page.to_first


def _follows(page: Page, following: Page) -> bool:
    """Whether all of `following` is after all of `page`, at either side."""
    if page.next > following.first or following.is_anew:
        return False
    to_next = page.behind if page.to_next is None else page.to_next
    if to_next is None or following.to_first is None:
        return not page.is_anew  # else `following` may be of the log that is gone
    return to_next <= following.to_first


def _around(pages: Sequence[Page], at: int) -> Sequence[Page]:
    """The pages that decide about an offset between those before index `at` and those from it on."""
    low = max(at - 1, 0)
    if low > 0 and _begins_anywhere(pages[low]):
        low -= 1
    while low > 0 and pages[low].to_next is None:
        low -= 1
    high = at
    while high < len(pages) and pages[high].to_first is None:
        high += 1
    return pages[low : high + 1]


def _begins_anywhere(page: Page) -> bool:
    """Whether its first records are behind the page before it, nobody knows where."""
    first = next(page.runs(), None)
    return first is not None and first.to == NOWHERE_KNOWN
