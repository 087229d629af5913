"""A route audited by reading both sides. Memory is bounded: some answers of each side, and what differs.

Each lane is read in the order of its passes; without a ledger all of its source beside all of its
destination. Batches that are the same bytes on both sides are not looked into.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from broker.errors import CorruptRecordsError
from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.entries import Entry, are_alike, columns_of, items_of
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_comparison import LaneComparison, LaneTerms
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView, committed_only
from mirrormaker.topology.model import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A part of a lane that is compared as one."""

    source: Range
    to: Range
    known: Pass | None
    repeated_to: int
    """Source offsets before this have been compared already."""


class DeepAudit:
    """Of one route."""

    def __init__(self, view: RouteView) -> None:
        self.bytes = 0
        """Read of both sides."""
        self._view = view
        self._expectations = Expectations(view)

    async def partition(self, source: TopicPartition) -> PartitionAudit:
        """Compare one partition of the source with what became of it. Raises BrokerError."""
        view = self._view
        lanes = view.data_lanes(source)
        findings = Findings()
        audit = PartitionAudit(source=source, window=view.windows[source], findings=findings)
        audit.has_ledger = any((source, to) in view.passes for _, to in lanes)
        if len(lanes) > 1 and not audit.has_ledger:
            audit.problem = "its records are spread over several partitions, and there is no ledger of them"
            return audit
        try:
            for number, to in lanes:
                await self._lane(source, to, number, findings)
        except CorruptRecordsError as error:
            audit.problem = f"damaged records: {error}"
        findings.sort()
        return audit

    async def _lane(
        self, source: TopicPartition, to: TopicPartition, number: int, findings: Findings
    ) -> None:
        view = self._view
        if to not in view.to_ends:
            pending = view.windows[source]
            if pending.length and (view.copied_to(source) or 0) > pending.first:
                raise CorruptRecordsError(f"the destination has no partition {to}")
            findings.outcomes[Outcome.PENDING] += pending.length
            return
        for stretch in self._stretches(source, to, findings if number == 0 else Findings()):
            expectation = self._expectations.of(source, to, number)
            comparison = LaneComparison(
                LaneTerms(
                    source=source,
                    destination=to,
                    delivery=view.route.delivery,
                    is_exclusive=view.is_exclusive,
                    destination_start=view.to_starts[to],
                    is_source_compacted=source.topic in view.compacted_sources,
                    is_destination_compacted=to.topic in view.compacted_destinations,
                    repeated_to=stretch.repeated_to,
                ),
                findings,
                stretch.known,
                view.indexes.get(to, DestinationIndex(())),
                **({} if stretch.known is not None else self._skips(source, to)),
            )
            await self._compare(comparison, expectation, stretch, source, to)
            findings.outcomes.update(expectation.outcomes)
            if comparison.strangers:
                comparison.name_strangers(await self._find(source, to, number, comparison))

    # ---- what is compared with what

    def _stretches(
        self, source: TopicPartition, to: TopicPartition, findings: Findings
    ) -> Iterator[_Stretch]:
        view = self._view
        window, end = view.windows[source], view.to_ends[to]
        passes = view.passes.get((source, to), ())
        if not passes:
            yield _Stretch(
                source=window, to=view.to_windows[to].within(Range(0, end)), known=None, repeated_to=0
            )
            return
        begun = view.begun_at(source, passes)
        findings.outcomes[Outcome.BEFORE_START] += Range(window.first, begun).within(window).length
        placed = [each for each in passes if each.to is not None] or list(passes[-1:])
        reached = 0
        for index, each in enumerate(placed):
            is_last = index == len(placed) - 1
            until = window.next if is_last else each.source.next
            first = each.source.first if index else min(each.source.first, begun)
            part = Range(max(first, window.first), min(until, window.next))
            following = None if is_last else placed[index + 1].to
            bounds = Range(
                each.to.first if each.to is not None and first == each.source.first else view.to_starts[to],
                following.first if following is not None else end,
            )
            if part.length:
                yield _Stretch(
                    source=part, to=_places(each, part, window, bounds), known=each, repeated_to=reached
                )
            reached = max(reached, part.next)

    def _skips(self, source: TopicPartition, to: TopicPartition) -> Mapping[str, Outcome | None]:
        """What stands before the first record that both sides have, where there is no ledger."""
        view = self._view
        began_later = view.route.start is not Start.EARLIEST
        is_cut_there = view.to_starts[to] > 0
        return {
            "skips_source": Outcome.BEFORE_START
            if began_later
            else Outcome.GONE_AT_DESTINATION
            if is_cut_there
            else None,
            "skips_destination": Outcome.GONE_AT_SOURCE if view.source_starts[source] > 0 else None,
        }

    # ---- reading

    async def _compare(
        self,
        comparison: LaneComparison,
        expectation: Expectation,
        stretch: _Stretch,
        source: TopicPartition,
        to: TopicPartition,
    ) -> None:
        view = self._view
        one = LogReader(
            view.source,
            source,
            stretch.source,
            committed_only=committed_only(view.route),
            lane=view.source.new_lane("audit"),
        )
        other = LogReader(
            view.destination,
            to,
            stretch.to,
            committed_only=True,
            lane=view.destination.new_lane("audit"),
        )
        async with aclosing(one.entries()) as entries, aclosing(_Ahead(other.entries())) as there:
            async for entry in entries:
                if expectation.is_plain(entry) and comparison.is_in_step:
                    beside = await there.peek()
                    if beside is not None and _agree(entry, beside, stretch):
                        there.take()
                        assert entry.header is not None
                        comparison.take_equal(entry.header.base_offset, entry.header.record_count)
                        continue
                comparison.take_source(expectation.items(entry, stretch.source))
                await self._feed(comparison, there, expectation, stretch.to)
            while (beside := await there.next()) is not None:
                comparison.take_destination(_items_there(beside, expectation, stretch.to))
        comparison.end()
        self.bytes += one.bytes + other.bytes
        await view.source.release_lane(one.lane)
        await view.destination.release_lane(other.lane)

    @staticmethod
    async def _feed(
        comparison: LaneComparison, there: _Ahead, expectation: Expectation, within: Range
    ) -> None:
        """As much of the destination as the comparison wants."""
        while comparison.wants_destination:
            beside = await there.next()
            if beside is None:
                comparison.end_destination()
                return
            comparison.take_destination(_items_there(beside, expectation, within))

    async def _find(
        self, source: TopicPartition, to: TopicPartition, number: int, comparison: LaneComparison
    ) -> dict[int, int]:
        """Source offsets of the contents of strangers: the first that each has."""
        view = self._view
        wanted = {item.content for item in comparison.strangers}
        expectation = self._expectations.of(source, to, number)
        found: dict[int, int] = {}
        within = Range(view.source_starts[source], view.windows[source].next)
        lane = view.source.new_lane("audit")
        reader = LogReader(view.source, source, within, committed_only=committed_only(view.route), lane=lane)
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                for item in expectation.items(entry, within):
                    if item.content in wanted:
                        found.setdefault(item.content, item.offset)
                if len(found) == len(wanted):
                    break
        self.bytes += reader.bytes
        await view.source.release_lane(lane)
        return found


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


def _places(one: Pass, part: Range, window: Range, bounds: Range) -> Range:
    """Where a part of a pass is at the destination; what surrounds it there belongs to it unless the window
    cuts it off.
    """
    first, end = bounds
    if part.first == window.first and part.first > one.source.first:
        first = max(one.place_from(part.first) or bounds.next, bounds.first)
    if part.next == window.next and part.next < one.source.next:
        end = min(one.place_from(part.next) or bounds.next, bounds.next)
    return Range(first, end)


def _agree(entry: Entry, beside: Entry, stretch: _Stretch) -> bool:
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


def _items_there(entry: Entry, expectation: Expectation, within: Range) -> list[Item]:
    items = items_of(columns_of(entry), with_time=expectation.with_time)
    return [item for item in items if within.first <= item.offset < within.next]
