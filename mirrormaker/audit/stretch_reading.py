"""One stretch of a lane, read on both sides beside each other. Memory is bounded: some answers of each side,
and what differs. Batches that are the same bytes on both sides are not looked into.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from mirrormaker.audit.alignment import Item
from mirrormaker.audit.entries import Entry, Repeaters, are_alike, columns_of, items_of
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.header_check import HeaderCheck
from mirrormaker.audit.lane_comparison import LaneComparison
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.stretches import Stretch


class StretchReading:
    """See the module."""

    def __init__(
        self,
        stretch: Stretch,
        comparison: LaneComparison,
        expectation: Expectation,
        check: HeaderCheck | None,
        repeaters: Repeaters,
        name_strangers: Callable[[], Awaitable[None]],
    ) -> None:
        """`check`: takes in the headers of all batches; None: nobody does. `name_strangers`:
        looks for what the comparison has not found so far.
        """
        self._stretch = stretch
        self._comparison = comparison
        self._expectation = expectation
        self._check = check
        self._repeaters = repeaters
        self._name_strangers = name_strangers
        self._own_producers: set[int] = set()
        """Of batches that the ledger knows as copies of this stretch."""

    async def read(self, one: LogReader, other: LogReader) -> None:
        """Compare what the two read: source and destination. Raises BrokerError, CorruptRecordsError."""
        async with aclosing(one.entries()) as entries, aclosing(_Ahead(other.entries())) as there:
            async for entry in entries:
                if self._check is not None:
                    self._check.take_source(entry.header)
                if await self._is_alike(entry, there):
                    self._take_alike(entry)
                    continue
                self._comparison.take_source(self._expectation.items(entry, self._stretch.source))
                while self._comparison.wants_destination:
                    beside = await there.next()
                    self._comparison.heed_start(other.log_start)
                    if beside is None:
                        self._comparison.end_destination()
                        break
                    self._take_there(beside)
                    await self._name_many()
                await self._name_many()
            self._comparison.end_source()
            while (beside := await there.next()) is not None:
                self._comparison.heed_start(other.log_start)
                self._take_there(beside)
                await self._name_many()
        self._comparison.heed_start(other.log_start)
        self._comparison.end()
        await self._name_strangers()

    async def _name_many(self) -> None:
        if self._comparison.has_many_strangers:
            await self._name_strangers()

    async def _is_alike(self, entry: Entry, there: _Ahead) -> bool:
        """Whether the next batch of the destination is this one; then it is taken."""
        if not self._comparison.is_in_step or not self._expectation.is_plain(entry):
            return False
        beside = await there.peek()
        if beside is None or not _agree(entry, beside, self._stretch):
            return False
        if self._check is not None:
            self._check.take_destination(beside.header)
        self._is_own(beside)
        there.take()
        return True

    def _take_alike(self, entry: Entry) -> None:
        if self._expectation.with_sums:
            self._comparison.take_equal_items(self._expectation.items(entry, self._stretch.source))
        elif entry.header is not None:
            self._comparison.take_equal(entry.header.base_offset, entry.header.record_count)

    def _take_there(self, entry: Entry) -> None:
        if self._check is not None:
            self._check.take_destination(entry.header)
        within, expectation = self._stretch.to, self._expectation
        items = items_of(
            columns_of(entry),
            with_time=expectation.with_time,
            with_sums=expectation.with_sums,
            letters=expectation.letters_of,
            may_repeat=self._repeaters.may_have_written(entry),
            is_own=self._is_own(entry),
        )
        self._comparison.take_destination(_within(items, within))

    def _is_own(self, entry: Entry) -> bool:
        """Whether the producer of a batch of the destination has written copies that are known, as far as
        read.
        """
        header, known = entry.header, self._stretch.known
        if header is None or known is None or header.producer_id < 0:
            return False
        if known.source_of(header.base_offset) is not None:
            self._own_producers.add(header.producer_id)
        return header.producer_id in self._own_producers


def _within(items: list[Item], within: Range) -> list[Item]:
    return [item for item in items if within.first <= item.offset < within.next]


class _Ahead:
    """Entries of which the next can be looked at before it is taken."""

    def __init__(self, entries: AsyncGenerator[Entry]) -> None:
        self._entries = entries
        self._held: Entry | None = None

    async def peek(self) -> Entry | None:
        """The next; None at the end."""
        if self._held is None:
            self._held = await anext(self._entries, None)
        return self._held

    def take(self) -> None:
        """The one that was looked at is done with."""
        self._held = None

    async def next(self) -> Entry | None:
        """Take the next; None at the end."""
        entry = await self.peek()
        self.take()
        return entry

    async def aclose(self) -> None:
        """End the reading."""
        await self._entries.aclose()


def _agree(entry: Entry, beside: Entry, stretch: Stretch) -> bool:
    """Whether the two are one batch, where the ledger says that it is."""
    first, to = entry.header, beside.header
    if first is None or to is None:
        return False
    if first.base_offset < stretch.source.first or entry.next > stretch.source.next:
        return False
    if to.base_offset < stretch.to.first or beside.next > stretch.to.next:
        return False
    if stretch.known is not None:
        run = stretch.known.run_at(first.base_offset)
        if run is None or run.to + first.base_offset - run.source != to.base_offset:
            return False
        if entry.next > run.source + run.length:
            return False
    return are_alike(entry, beside)
