"""Keeps the pages of the lanes at work, and says what of them is to be written. Pure.

It is told what arrived (`take`, once a chunk), how far lanes are (`advance`), and hands out what changed
since it was last `settled`. What was handed out and not settled is handed out again. Where records arrive in
transactions, `settled` follows the commit, and names its sources, as transactions of different buckets end on
their own; one that is aborted ends its lanes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from broker.types import TopicPartition
from mirrormaker.flow.books import EpochMark, ReadSoFar
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.kept_view import Document
from mirrormaker.ledger.lane_id import LaneId, page_key, page_record
from mirrormaker.ledger.page import PART_RUNS_MAX, RUNS_MAX, Page, PageMark
from mirrormaker.ledger.page_windows import LaneTime, PageWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be written, in this order."""

    records: tuple[tuple[Document, Document | None], ...]
    """None: to be deleted."""
    states: Mapping[LaneId, tuple[Page, PageMark]]
    """By lane the page that it was at, and how that stood."""


class _LaneBook:
    """The pages of one lane that are not settled."""

    __slots__ = (
        "behind",
        "by",
        "first",
        "is_anew",
        "is_changed",
        "lane",
        "live",
        "pages",
        "read",
        "route",
        "settled",
        "time",
        "told",
    )

    def __init__(self, lane: LaneId, first: int, by: str, route: str | None, read: ReadSoFar) -> None:
        self.lane = lane
        self.by = by
        self.route = route
        self.first = first
        """Where the next page begins, at the earliest."""
        self.is_anew = False
        self.behind: int | None = None
        """Of the next page: see `Page`."""
        self.live: Page | None = None
        self.pages: list[Page] = []
        """Not settled as they are now, the live one last."""
        self.settled: PageMark | None = None
        """What the first of them was when it was settled; None: it is not yet known at all."""
        self.is_changed = False
        self.time = LaneTime()
        self.read = read
        self.told = first
        """Pages tell of all epochs that begin before this."""

    def begin_page(self, first: int) -> Page:
        page = Page(first, is_anew=self.is_anew, by=self.by, behind=self.behind, route=self.route)
        self.is_anew, self.behind = False, None
        self.live = page
        self.pages.append(page)
        self.is_changed = True
        return page

    def go_on(self, page: Page, runs: Sequence[tuple[SourceRun, int | None]], end: int | None) -> Page:
        """Put the runs, which end there, into `page`, and more of the same batch into the one returned."""
        page.add_runs(runs, end)
        page.is_part = True
        return self.begin_page(page.next)

    def end_page(self, copied: Copied) -> Page | None:
        """The page at hand from now on; another than until now, where these records are right behind it."""
        page = self.live
        if page is None or not page.count or copied.first < page.next:
            return page
        return page if _is_before(copied.base_offset, page.to_next) else self.begin_page(page.next)

    def tell_what_was_read(self) -> None:
        """What was read before the ends of the pages is known, but of what is of a log that is gone."""
        anew = [index for index, page in enumerate(self.pages) if page.is_anew]
        for page in () if self.is_anew else self.pages[anew[-1] if anew else 0 :]:
            page.returned = self.read.returned.within(page.first, page.next)
            if page.epochs and page.next <= self.told:
                continue
            if page.epochs:
                starts = self.read.epochs.between(self.told, page.next)
            else:
                starts = self.read.epochs.since(min(self.told, page.first), page.next)
            page.epochs += tuple(starts)
            epoch = self.read.epochs.told_before(page.next)
            page.epoch = EpochMark(page.next, epoch) if epoch >= 0 else page.epoch
            self.told = max(page.next, self.told)

    def touch(self) -> None:
        """The live page is about to change."""
        if self.live is not None and not self.is_changed:
            self.pages, self.settled = [self.live], self.live.mark()
            self.is_changed = True


class LedgerRecorder:
    """See the module."""

    def __init__(
        self,
        owner: str,
        runs_max: int = RUNS_MAX,
        *,
        windows: PageWindows | None = None,
        route: str | None = None,
    ) -> None:
        """`owner`: a name that no other recorder has or had. `runs_max`: a page with so many runs is followed
        by another. `windows`: that pages keep to. `route`: that pages name.
        """
        self._owner = owner
        self._route = route
        self._windows = windows
        self._begun = 0
        self._runs_max = runs_max
        self._books: dict[TopicPartition, dict[TopicPartition, _LaneBook]] = {}
        """By source and destination: there are many sources, and few lanes of each."""

    # ---- lanes come and go

    def begin(self, lane: LaneId, position: int, read: ReadSoFar) -> None:
        """A lane is copied from `position` on."""
        self._begun += 1
        by = f"{self._owner}/{self._begun}"
        books = self._books.setdefault(lane.source, {})
        books[lane.destination] = _LaneBook(lane, position, by, self._route, read)

    def end(self, sources: Collection[TopicPartition]) -> None:
        """Forget these: others write their pages now."""
        for source in sources:
            self._books.pop(source, None)

    def restart(self, source: TopicPartition, positions: Sequence[int], known: Mapping[LaneId, int]) -> None:
        """The source's log is another from the positions of its lanes on, or ends there. `known`: by lane,
        the destination offset before which all is that others have written down.
        """
        for book, first in zip(self._of(source), positions, strict=False):
            pages = [page for page in (*book.pages, book.live) if page is not None]
            ends = [end for page in pages for end in (page.to_next, page.behind)]
            ends += [known.get(book.lane), book.behind]
            book.live = None
            book.first, book.told, book.is_anew = first, min(first, book.told), True
            book.behind = max((end for end in ends if end is not None), default=None)

    def lose(self, source: TopicPartition, destination: TopicPartition, first: int, next_offset: int) -> None:
        """What became of these source offsets nobody knows: no page tells of them."""
        book = self._book(source, destination)
        if book is not None:
            self._advance(book, first)
            book.begin_page(next_offset)

    def lanes(self, source: TopicPartition) -> list[LaneId]:
        """The lanes of a source that are copied."""
        return [book.lane for book in self._of(source)]

    # ---- what arrives

    def take(self, copied: Copied) -> None:
        """Records arrived."""
        book = self._book(copied.source, copied.destination)
        if book is None:
            return
        page = book.live
        if not book.is_changed:
            book.touch()
        base = copied.base_offset
        at_ms = copied.max_timestamp
        time = book.time
        if at_ms >= time.window_end_ms and self._windows is not None and time.passes(at_ms, self._windows):
            page = book.end_page(copied)
        if page is None or copied.runs or base is None or not page.continues(copied.first, base):
            page = self._take_runs(book, copied)
        else:
            page.prolong(copied.count)
            page.add_sums(copied.crc, copied.source_crc)
        page.tell_time(time.advance(at_ms))

    def advance(self, positions: Mapping[TopicPartition, Sequence[int]]) -> None:
        """All of these sources before the positions of their lanes is dealt with, records or not. That a log
        is another is written down before anything of it is copied: else it would be found out once more.
        """
        for source, lanes in positions.items():
            for book, offset in zip(self._of(source), lanes, strict=False):
                self._advance(book, offset)

    @staticmethod
    def _advance(book: _LaneBook, offset: int) -> None:
        page = book.live
        if page is None:
            if offset > book.first or book.is_anew:
                book.begin_page(book.first).cover(offset)
        elif page.next < offset:
            book.touch()
            page.cover(offset)

    def _take_runs(self, book: _LaneBook, copied: Copied) -> Page:
        page = book.live
        if page is None:
            page = book.begin_page(min(book.first, copied.first))
        elif copied.first < page.next or _is_before(copied.base_offset, page.to_next):
            page = book.begin_page(copied.first)
        elif len(page) + max(len(copied.runs), 1) > self._runs_max and len(page):
            page = book.begin_page(page.next)
        runs = list(copied.source_runs())
        for part in range(0, len(runs) - PART_RUNS_MAX, PART_RUNS_MAX):
            following = part + PART_RUNS_MAX
            page = book.go_on(page, runs[part:following], runs[following][1])
        left = (len(runs) - 1) % PART_RUNS_MAX + 1
        page.add_runs(runs[-left:], copied.end_offset)
        page.add_sums(copied.crc, copied.source_crc)
        return page

    # ---- what is to be written

    def due(self, sources: Collection[TopicPartition] | None = None) -> Due:
        """What changed since it was settled; of these sources, or of all."""
        records: list[tuple[Document, Document | None]] = []
        states: dict[LaneId, tuple[Page, PageMark]] = {}
        for book in self._all() if sources is None else self._of(*sources):
            if book.is_changed:
                book.tell_what_was_read()
                records += _records_of(book)
                states[book.lane] = book.pages[-1], book.pages[-1].mark()
        return Due(records=tuple(records), states=states)

    def is_due(self, sources: Iterable[TopicPartition]) -> bool:
        """Whether something of these changed since it was settled."""
        return any(book.is_changed for book in self._of(*sources))

    def owing_cuts(self, sources: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of which it is not written yet that their log is another than before."""
        return {
            book.lane.source
            for book in self._of(*sources)
            if book.is_changed
            and any(page.is_anew for page in book.pages[0 if book.settled is None else 1 :])
        }

    def settled(self, due: Due) -> None:
        """All of `due` has been written."""
        for lane, (page, mark) in due.states.items():
            book = self._book(lane.source, lane.destination)
            if book is None or page not in book.pages:
                continue
            del book.pages[: book.pages.index(page)]
            book.settled = mark
            if book.pages == [page] and page.mark() == mark:
                book.pages, book.settled, book.is_changed = [], None, False

    @property
    def pending_pages(self) -> int:
        """Pages that are not settled."""
        return sum(len(book.pages) for book in self._all())

    def drop_pending(self) -> int:
        """Give pages that are full and not settled up, for their memory: the ledger will lack them. How many
        these were.
        """
        dropped = 0
        for book in self._all():
            if len(book.pages) > 1:
                dropped += len(book.pages) - 1
                del book.pages[:-1]
                book.settled = None
        return dropped

    def _book(self, source: TopicPartition, destination: TopicPartition) -> _LaneBook | None:
        books = self._books.get(source)
        return None if books is None else books.get(destination)

    def _of(self, *sources: TopicPartition) -> Iterator[_LaneBook]:
        return (book for source in sources for book in self._books.get(source, _NO_BOOKS).values())

    def _all(self) -> Iterator[_LaneBook]:
        return (book for books in self._books.values() for book in books.values())


_NO_BOOKS: Mapping[TopicPartition, _LaneBook] = {}


def _is_before(to: int | None, to_next: int | None) -> bool:
    return to is not None and to_next is not None and to < to_next


def _records_of(book: _LaneBook) -> Iterator[tuple[Document, Document | None]]:
    first, settled = book.pages[0], book.settled
    for page in book.pages:
        yield page_record(book.lane, page)
    if settled is not None and settled.to_first != first.to_first:
        yield page_key(book.lane, first, settled.to_first), None
