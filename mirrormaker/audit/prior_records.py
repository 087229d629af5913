"""What stands at a destination before all that the ledger knows: read, counted, and never a difference, as a
route adds to a topic that holds records only where somebody has decided so.

A route that was at least once may have left copies there itself: a process that was killed before it wrote
its first page. These are of what the route began with, stand right before the first known place, and are told
apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing

from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.entries import columns_of, items_of
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.gap_audit import GAP_RECORDS_MAX, SLACK_OFFSETS
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import NOTHING, Range
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.source_reading import SourceReading

Tell = Callable[[Item], None]


class PriorRecords:
    """Of one route."""

    def __init__(self, view: RouteView, expectations: Expectations) -> None:
        self._bytes = 0
        """Read of the destination."""
        self._view = view
        self._expectations = expectations
        self._reading = SourceReading(view)

    @property
    def bytes(self) -> int:
        """Read of both sides."""
        return self._bytes + self._reading.bytes

    async def judge(
        self,
        source: TopicPartition,
        to: TopicPartition,
        number: int,
        findings: Findings,
        tell: Tell | None = None,
    ) -> None:
        """Count them, once for each partition of the destination. `number`: of that lane. `tell`: called with
        each. Raises BrokerError, CorruptRecordsError.
        """
        view = self._view
        within = prior_places(view, source, to)
        if not within.length:
            return
        may_be_copies = view.repeaters.are_any
        last: deque[int] = deque(maxlen=GAP_RECORDS_MAX if may_be_copies else 0)
        count = await self._read_there(to, within, self._expectations.of(source, to, number), last, tell)
        known = set[int]()
        for lane, index, passes in view.lanes_to(to) if last else ():
            expectation = self._expectations.of(lane, to, index, tells_filtered=True)
            known |= await self._contents(lane, passes, expectation, set(last), len(last))
        copies = sum(content in known for content in last)
        findings.outcomes[Outcome.REPEATED] += copies
        prior = Outcome.THERE_BEFORE if view.is_exclusive_at(to) else Outcome.OTHERS
        findings.outcomes[prior] += count - copies

    async def _read_there(
        self,
        to: TopicPartition,
        within: Range,
        expectation: Expectation,
        last: deque[int],
        tell: Tell | None,
    ) -> int:
        """How many there are; `last`: takes the contents of those that a mirror may have written."""
        cluster = self._view.destination
        reader = LogReader(cluster, to, within, committed_only=True, lane=cluster.new_lane("audit"))
        count = 0
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                items = items_of(
                    columns_of(entry),
                    with_time=expectation.with_time,
                    with_sums=expectation.with_sums,
                    letters=expectation.letters_of,
                )
                items = [item for item in items if within.first <= item.offset < within.next]
                count += len(items)
                if self._view.repeaters.may_have_written(entry):
                    last.extend(item.content for item in items)
                if tell is not None:
                    for item in items:
                        tell(item)
        self._bytes += reader.bytes
        await cluster.release_lane(reader.lane)
        return count

    async def _contents(
        self,
        source: TopicPartition,
        passes: Sequence[Pass],
        expectation: Expectation,
        wanted: Collection[int],
        count: int,
    ) -> set[int]:
        """Those of the contents that are in what the route began with, of a lane."""
        view = self._view
        first = view.begun_at(source, passes)
        within = Range(first, first + count + SLACK_OFFSETS)
        within = within.within(Range(view.source_starts[source], view.ends[source]))
        async with aclosing(self._reading.items(source, expectation, within)) as items:
            return {item.content async for item in items if item.content in wanted}


def prior_places(view: RouteView, source: TopicPartition, to: TopicPartition) -> Range:
    """Where they are, of the time that is audited. Nothing, where the lane is not the first of the route
    there, where that time begins behind what the route began with, and where they are read with the rest.
    """
    lanes = view.lanes_to(to)
    if not lanes or min(lanes, key=_first_place)[0] != source:
        return NOTHING
    passes = view.passes[source, to]
    begun = view.begun_at(source, passes)
    if view.windows[source].first > begun or begun < min(each.source.first for each in passes):
        return NOTHING
    end = view.indexes[to].first
    there = Range(view.to_starts[to], view.to_ends[to] if end is None else min(end, view.to_ends[to]))
    return there.within(view.to_windows[to])


def _first_place(lane: tuple[TopicPartition, int, list[Pass]]) -> tuple[bool, int, TopicPartition]:
    source, _, passes = lane
    places = [each.to.first for each in passes if each.to is not None]
    return (False, min(places), source) if places else (True, 0, source)
