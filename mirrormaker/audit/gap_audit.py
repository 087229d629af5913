"""Records at the destination that no page of the ledger knows of: read, and explained where they can be.

A process that ends before it wrote down what it had sent leaves such records. Those of one that delivered at
least once were copied again: the source has them from the last known record before them on. Those of an
at-most-once route are in what the ledger lacks. One that delivered exactly once leaves none. Whatever else
stands there was written by somebody else, but for what a mirror left whose source has compacted it away
since. Who delivered at least once the ledger tells, as a route may be another now; where it lacks something
between its pages, the route was at most once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from itertools import compress, repeat
from operator import and_
from typing import NamedTuple

from broker.client.backoff import system_random
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.entries import columns_of, items_of, letters_of
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Difference, DifferenceKind, Findings, Outcome
from mirrormaker.audit.lane_runs import OFFSET_MAX, Pass, may_lack, pass_before
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range, holds, joined, outside, total
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.source_reading import SourceReading
from mirrormaker.topology.model import Delivery

GAPS_READ_MAX = 1_000
"""Stretches of a partition, at most, that are read for records that no page knows of."""
MARKERS_READ_MAX = 50
"""Of a partition, of those of one offset in a route of transactions, where a marker may stand: the others are
taken for markers.
"""
MARKERS_OF_ALL_READ_MAX = 1_000
"""The same of all lanes together, about: each place is a round trip of its own."""
MARKERS_LANE = "audit-markers"
"""Of the connections over which such places are asked for; they are kept from audit to audit."""
GAP_FETCH_BYTES = 4096
"""Asked for first: at most places a marker stands alone, or a few records."""
BACK_OFFSETS = 200_000
"""A process that stood still while another took over repeats what lies so far back, at most."""
GAP_RECORDS_MAX = 50_000
"""Of one stretch, at most, that are looked at."""
SLACK_OFFSETS = 10_000
"""What is left out on the way may lie between records of a stretch: so many offsets more are looked at."""


Lane = tuple[TopicPartition, TopicPartition]
"""Source and destination."""


class Origin(NamedTuple):
    """Where a record at the destination may come from."""

    offset: int
    is_filtered: bool
    """The filters of the route let it go, as they are now."""


class GapAudit:
    """Of one route."""

    def __init__(self, view: RouteView, looked_to: Mapping[Lane, int]) -> None:
        """`looked_to`: offsets of the destination before which such records have been told already, by lane:
        each judges what stands behind its own records.
        """
        self._bytes = 0
        """Read of the destination."""
        self.looked_to = dict(looked_to)
        """The same now."""
        self._view = view
        self._expectations = Expectations(view)
        self._reading = SourceReading(view)
        self._lane_there = ""
        """Of the connections to the destination, by which all of a partition is read."""

    @property
    def bytes(self) -> int:
        """Read of both sides."""
        return self._bytes + self._reading.bytes

    async def lane(
        self, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
    ) -> list[int]:
        """Look behind the records of these passes. Source offsets of records that are at the destination
        though no page says so, be it behind those of other lanes. Raises BrokerError, CorruptRecordsError.
        """
        found: list[int] = []
        has_markers = self._view.route.delivery is Delivery.EXACTLY_ONCE
        single: list[Range] = []
        gaps: list[Range] = []
        beside: list[Range] = []
        for gap, is_own in self._gaps(source, to, passes):
            if is_own:
                (single if has_markers and gap.length == 1 else gaps).append(gap)
            elif not has_markers or gap.length > 1:
                beside.append(gap)
        if not self._view.is_exclusive:  # whatever stands there, somebody may have written it
            findings.outcomes[Outcome.OTHERS] += total(gaps)
            return []
        destination = self._view.destination
        self._lane_there = destination.new_lane("audit")
        try:
            for gap in gaps[:GAPS_READ_MAX]:
                found += await self._read_gap(source, to, gap, findings)
            for gap in beside[:GAPS_READ_MAX] if self._may_be_beside(source) else ():
                found += await self._read_gap(source, to, gap, Findings())  # for that lane to judge
        finally:
            await destination.release_lane(self._lane_there)
        self._lane_there = MARKERS_LANE
        for gap in _spread(single, self._markers_room()):
            try:
                found += await self._read_gap(source, to, gap, findings)
            except ProtocolError as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                break  # who may only write there has them taken for markers, as those that are not looked at
        findings.outcomes[Outcome.UNRECORDED] += sum(gap.length for gap in gaps[GAPS_READ_MAX:])
        return found

    # ---- where

    def _markers_room(self) -> int:
        """How many places of a lane are looked at. Where there are more lanes than places for all, each audit
        has others in it.
        """
        share = MARKERS_OF_ALL_READ_MAX / len(self._view.passes)
        return min(MARKERS_READ_MAX, int(share + system_random()))

    def _gaps(
        self, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass]
    ) -> Iterator[tuple[Range, bool]]:
        """Offsets of which no page knows, and whether they are behind a record of these passes."""
        view = self._view
        index = view.indexes.get(to, DestinationIndex(()))
        within = self._places(source, to, passes).within(Range(0, self._view.to_ends[to]))
        made = joined(part for each in passes for part in each.made)
        for gap in (part for whole in index.gaps(within) for part in outside(made, whole)):
            yield gap, any(index.is_neighbour(each, gap.first) for each in passes)
        self.looked_to[source, to] = max(*within, self.looked_to.get((source, to), 0))

    def _places(self, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass]) -> Range:
        """Where what is judged is at the destination. What a route at work has just written is not in the
        ledger yet: what stands behind all that is known counts once the route has nothing more to copy. What
        cannot be read yet, as while a transaction is open, is for the next time.
        """
        view, window = self._view, self._view.windows[source]
        placed = [each for each in passes if each.to is not None]
        if not placed:
            return Range(0, 0)
        firsts = [at for each in placed if (at := each.place_from(window.first)) is not None]
        behind = max(each.to.next for each in placed if each.to is not None)
        first = min(firsts, default=behind)
        if view.begun_at(source, passes) < min(each.source.first for each in passes):
            first = view.to_starts[to]
        first = max(self.looked_to.get((source, to), first), view.to_starts[to])
        if window.next >= max(each.source.next for each in passes):
            is_at_end = view.ends[source] <= window.next
            return Range(first, view.to_ends[to] if is_at_end else behind)
        nexts = [at for each in placed if (at := each.place_from(window.next)) is not None]
        return Range(first, max(nexts, default=behind))

    def _may_be_beside(self, source: TopicPartition) -> bool:
        """Whether at most once wrote records of the partition, of what is judged, that no page tells of: what
        stands before them may be of another lane.
        """
        view = self._view
        passes = [each for _, to in view.data_lanes(source) for each in view.passes.get((source, to), ())]
        judged = Range(view.begun_at(source, passes), OFFSET_MAX).within(view.windows[source])
        covered = joined(part for each in passes for part in each.covered_parts(judged))
        return any(
            each.within(part).length for part in outside(covered, judged) for each in view.may_be_lost(source)
        )

    # ---- what

    async def _read_gap(
        self, source: TopicPartition, to: TopicPartition, gap: Range, findings: Findings
    ) -> list[int]:
        view = self._view
        items = await self._read_there(to, gap, findings)
        found: list[int] = []
        for lane, number, passes in view.lanes_to(to):
            if items:
                items, offsets = await self._explain(lane, to, number, passes, gap, items, findings)
                found += offsets if lane == source else []
        if not view.is_exclusive_at(to):
            findings.outcomes[Outcome.OTHERS] += len(items)
            return found
        if view.indexes[to].is_before_all(gap.first):
            findings.outcomes[Outcome.THERE_BEFORE] += len(items)
            return found
        before = _source_before(view.passes[source, to], gap.first)
        is_compacted = any(lane.topic in view.compacted_sources for lane, _, _ in view.lanes_to(to))
        for item in items:
            if is_compacted and item.may_repeat:
                findings.outcomes[Outcome.GONE_AT_SOURCE] += 1
                continue
            findings.add(
                Difference(
                    kind=DifferenceKind.UNEXPLAINED,
                    source=source,
                    source_offset=before,
                    destination=to,
                    destination_offset=item.offset,
                )
            )
        return found

    async def _explain(
        self,
        source: TopicPartition,
        to: TopicPartition,
        number: int,
        passes: Sequence[Pass],
        gap: Range,
        items: Sequence[Item],
        findings: Findings,
    ) -> tuple[list[Item], list[int]]:
        """Those of the records that a lane did not leave there, and the source offsets of the others, where
        these are not known to be anywhere else.
        """
        holes = self._holes(source, passes)
        lost = self._view.may_be_lost(source)
        wanted = {item.content for item in items if holes or lost or self._may_be_left(item)}
        origins = await self._find(source, to, number, passes, gap, wanted)
        anywhere = {content: deque(each) for content, each in origins.items()}
        untold = {
            content: deque(one for one in each if holds(holes, one.offset) or holds(lost, one.offset))
            for content, each in origins.items()
        }
        left: list[Item] = []
        found: list[int] = []
        taken = set[int]()
        reached = self._first(source, passes, gap)
        for item in items:
            known = (anywhere if self._may_be_left(item) else untold).get(item.content)
            if not known:
                left.append(item)
                continue
            while len(known) > 1 and known[0].offset in taken:
                known.popleft()
            offset, is_filtered = known[0]
            is_again = offset in taken or any(isinstance(each.place_of(offset), int) for each in passes)
            is_repeated = offset >= reached if item.may_repeat is None else item.may_repeat
            if not is_again and (not is_filtered or holds(holes, offset)):
                taken.add(offset)
                found.append(offset)
            elif is_repeated:
                findings.outcomes[Outcome.REPEATED] += 1
            elif offset not in taken and holds(lost, offset) and may_lack(passes, offset, gap.first):
                taken.add(offset)  # what is known of it is what a seek had copied again
                findings.outcomes[Outcome.REPEATED] += 1
            else:
                left.append(item)
        return left, found

    def _may_be_left(self, item: Item) -> bool:
        """Whether a process of the route may have ended before it wrote down that it had sent a record, be it
        one that was copied again; of those that were exactly once none did.
        """
        return item.may_repeat is not False or self._view.route.delivery is not Delivery.EXACTLY_ONCE

    async def _read_there(self, to: TopicPartition, gap: Range, findings: Findings) -> list[Item]:
        """Among letters the route's own: those of consumers are not looked for."""
        view = self._view
        with_time = to.topic not in view.timed_destinations
        has_others = to.topic in view.letter_topics
        items: list[Item] = []
        count = 0
        reader = LogReader(
            view.destination,
            to,
            gap,
            committed_only=True,
            lane=self._lane_there,
            fetch_bytes=GAP_FETCH_BYTES,
        )
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                columns = columns_of(entry)
                may_repeat = view.repeaters.may_have_written(entry)
                there = items_of(columns, with_time=with_time, letters=view.letters, may_repeat=may_repeat)
                here = [gap.first <= each.offset < gap.next for each in there]
                own = letters_of(columns, view.route.name) if has_others else repeat(True)
                items += compress(there, map(and_, here, own))
                count += sum(here)
                if count >= GAP_RECORDS_MAX:
                    findings.outcomes[Outcome.UNRECORDED] += max(gap.next - entry.next, 0)
                    break
        findings.outcomes[Outcome.OTHERS] += count - len(items)
        self._bytes += reader.bytes
        return items

    async def _find(
        self,
        source: TopicPartition,
        to: TopicPartition,
        number: int,
        passes: Sequence[Pass],
        gap: Range,
        wanted: AbstractSet[int],
    ) -> dict[int, list[Origin]]:
        """By content, records that a process may have left there."""
        found: dict[int, list[Origin]] = {}
        expectation = self._expectations.of(source, to, number, tells_filtered=True)
        for within in self._origins(source, passes, gap):
            if found.keys() >= wanted:
                break
            async with aclosing(self._reading.items(source, expectation, within)) as items:
                async for item in items:
                    if item.content in wanted:
                        origin = Origin(item.offset, item.outcome is Outcome.LEFT_OUT)
                        found.setdefault(item.content, []).append(origin)
        return found

    def _origins(self, source: TopicPartition, passes: Sequence[Pass], gap: Range) -> Iterator[Range]:
        """Where what was left there may come from. At least once a process that starts again begins with
        these very records. At most once they are in what has no known place, most likely in what follows, or
        in what the pass before them lacks there, where a seek had it copied again.
        """
        view = self._view
        first = self._first(source, passes, gap)
        whole = Range(max(view.begun_at(source, passes), view.source_starts[source]), view.ends[source])
        if view.route.delivery is Delivery.AT_MOST_ONCE:
            placed = joined(part for each in passes for part in each.copied_parts(whole))
            holes = list(outside(placed, whole))
        else:
            holes = self._holes(source, passes)
        before = pass_before(passes, gap.first)
        if before is not None and view.may_be_lost(source):
            near = Range(first, first + gap.length + SLACK_OFFSETS).within(whole)
            yield before.lacking_at(gap.first).within(near)
        yield from (hole for hole in holes if hole.next > first)
        yield from (hole for hole in reversed(holes) if hole.next <= first)
        if view.repeaters.are_any:
            yield Range(first, first + gap.length + SLACK_OFFSETS).within(whole)
            yield Range(first - BACK_OFFSETS, first).within(whole)

    def _holes(self, source: TopicPartition, passes: Sequence[Pass]) -> list[Range]:
        """Source offsets between those that pages tell of, and that none tells of."""
        reached = max(each.source.next for each in passes)
        judged = Range(self._view.begun_at(source, passes), reached)
        covered = joined(part for each in passes for part in each.covered_parts(judged))
        return list(outside(covered, judged))

    def _first(self, source: TopicPartition, passes: Sequence[Pass], gap: Range) -> int:
        """The source offset behind the last known record before the gap."""
        before = _source_before(passes, gap.first)
        return self._view.begun_at(source, passes) if before is None else before + 1


def _spread(gaps: Sequence[Range], count: int) -> Sequence[Range]:
    """So many of them at most, from the first to the last."""
    return gaps[:: -(-len(gaps) // count)] if gaps and count > 0 else ()


def _source_before(passes: Sequence[Pass], to: int) -> int | None:
    """The source offset of the last record that is known to be before that place; None: of none."""
    places = [
        (each.place_before(to), before) for each in passes if (before := each.source_before(to)) is not None
    ]
    return max(places)[1] if places else None
