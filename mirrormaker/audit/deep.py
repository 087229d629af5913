"""A route audited by reading both sides.

Each lane is read in the order of its passes; without a ledger all of its source beside all of its
destination.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from broker.client.cluster import Cluster
from broker.errors import CorruptRecordsError
from broker.types import TopicPartition
from mirrormaker.audit.alignment import NO_SKIPS, Skips
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.header_check import HeaderCheck
from mirrormaker.audit.lane_comparison import LaneComparison
from mirrormaker.audit.lane_runs import OtherPasses, Pass, last_place, may_lack
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.lost_copies import miss_all
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.prior_records import PriorRecords
from mirrormaker.audit.ranges import Range, holds, total
from mirrormaker.audit.route_view import RouteView, committed_only
from mirrormaker.audit.source_reading import SourceReading
from mirrormaker.audit.strangers import Origin
from mirrormaker.audit.stretch_reading import StretchReading
from mirrormaker.audit.stretches import Stretch, stretches_of
from mirrormaker.audit.window_tally import WindowTally
from mirrormaker.plan.grounds import may_append
from mirrormaker.topology.model import Start


class DeepAudit:
    """Of one route."""

    def __init__(self, view: RouteView, tally: Callable[[], WindowTally] | None = None) -> None:
        """`tally`: counts by window, one for each partition of the source."""
        self.bytes = 0
        """Read of both sides."""
        self._view = view
        self._new_tally = tally
        self._expectations = Expectations(view, with_sums=tally is not None)
        self._prior = PriorRecords(view, self._expectations)

    async def partition(self, source: TopicPartition) -> PartitionAudit:
        """Compare one partition of the source with what became of it. Raises BrokerError,
        ConfigurationError.
        """
        view = self._view
        lanes = view.data_lanes(source)
        findings = Findings()
        audit = PartitionAudit(source=source, window=view.windows[source], findings=findings)
        audit.tell_kept(view.kept_copies(source))
        audit.has_ledger = any((source, to) in view.passes for _, to in lanes)
        if not audit.has_ledger and (problem := view.why_unplaced(source)) is not None:
            audit.problem = problem if audit.window.length else None
            return audit
        tally = None if self._new_tally is None else self._new_tally()
        meets_errors = False
        try:
            for number, to in lanes:
                if meets_errors or not self._is_without_letters(source, to):
                    meets_errors |= await self._lane(audit, to, number, tally)
        except CorruptRecordsError as error:
            audit.problem = f"damaged records: {error}"
        findings.sort()
        audit.read_windows = () if tally is None else tally.counts()
        return audit

    def _is_without_letters(self, source: TopicPartition, to: TopicPartition) -> bool:
        """Whether a lane is one of dead letters alone, and nothing is known to have taken it. Then the source
        is read for it only where there should be some.
        """
        view = self._view
        passes = view.passes.get((source, to), ())
        return to.topic in view.letter_topics and not any(each.count(view.windows[source]) for each in passes)

    async def _lane(
        self, audit: PartitionAudit, to: TopicPartition, number: int, tally: WindowTally | None
    ) -> bool:
        """Whether it met records that no step can process."""
        view, source, findings = self._view, audit.source, audit.findings
        if to not in view.to_ends:
            await self._judge_absent(audit, to, number)
            return False
        meets_errors, gone = False, set[int]()
        await self._judge_prior(source, to, number, findings, tally)
        for stretch in self._stretches(source, to, findings if number == 0 else Findings()):
            expectation = self._expectations.of(
                source, to, number, known=stretch.known, told_to=stretch.repeated_to
            )
            comparison = LaneComparison(
                LaneTerms(
                    source=source,
                    destination=to,
                    delivery=view.route.delivery,
                    is_exclusive=view.is_exclusive_at(to),
                    is_shared=len(view.lanes_to(to)) > 1,
                    destination_start=view.to_starts[to],
                    written_meanwhile=Range(view.to_ends[to], view.to_reached[to]),
                    is_source_compacted=source.topic in view.compacted_sources,
                    compacted_to=view.to_reached[to] if to.topic in view.compacted_destinations else 0,
                    repeated_to=stretch.repeated_to,
                    lost=view.lost.get(source, ()),
                    is_elsewhere=self._is_elsewhere(expectation, source, number),
                    kin=OtherPasses()
                    if stretch.known is None
                    else OtherPasses.beside(stretch.known, view.passes[source, to]),
                    gone=gone,
                ),
                findings,
                stretch.known,
                view.indexes.get(to, DestinationIndex(())),
                tally,
                skips=NO_SKIPS if stretch.known is not None else self._skips(source, to),
            )
            name = partial(self._name_strangers, comparison, source, to, number)
            await self._compare(comparison, expectation, stretch, audit, to, name)
            findings.outcomes.update(expectation.outcomes)
            meets_errors |= expectation.meets_errors
        return meets_errors

    async def _judge_absent(self, audit: PartitionAudit, to: TopicPartition, number: int) -> None:
        """Of a lane to a partition that is not there. Raises BrokerError, and CorruptRecordsError where
        nobody knows what stood there.
        """
        view, source, findings = self._view, audit.source, audit.findings
        window = view.windows[source]
        passes = view.passes.get((source, to), ())
        findings.records += total(miss_all(view, source, to, passes, findings))
        begun = max([window.first, *(each.source.next for each in passes)])
        if number > 0:
            await self._miss_due(source, to, number, Range(begun, window.next), findings)
            return
        if not passes and (view.copied_to(source) or 0) > begun:
            raise CorruptRecordsError(f"the destination has no partition {to}")
        findings.outcomes[Outcome.PENDING] += Range(begun, window.next).length

    async def _miss_due(
        self, source: TopicPartition, to: TopicPartition, number: int, within: Range, findings: Findings
    ) -> None:
        """Name what should be there of these source offsets, as steps say, or what they cannot process."""
        expectation, reading = self._expectations.of(source, to, number), SourceReading(self._view)
        absent = None if self._view.route.start is Start.EARLIEST else Outcome.BEFORE_START
        async with aclosing(reading.items(source, expectation, within)) as items:
            async for item in items:
                findings.records += 1
                is_lossy = holds(self._view.may_be_lost(source), item.offset)
                outcome = item.outcome or (Outcome.LOST if is_lossy else absent)
                if outcome is None:
                    findings.add_missing(source, Range(item.offset, item.offset + 1), to, None)
                else:
                    findings.outcomes[outcome] += 1
        self.bytes += reading.bytes

    async def _judge_prior(
        self,
        source: TopicPartition,
        to: TopicPartition,
        number: int,
        findings: Findings,
        tally: WindowTally | None,
    ) -> None:
        tell = None if tally is None else partial(tally.add, destination=True)
        before = self._prior.bytes
        await self._prior.judge(source, to, number, findings, tell)
        self.bytes += self._prior.bytes - before

    def _is_elsewhere(
        self, expectation: Expectation, source: TopicPartition, number: int
    ) -> Callable[[int], bool]:
        places, start = expectation.places, self._view.source_starts[source]
        if places is None:
            return lambda _: False
        return lambda offset: offset >= start and places.is_elsewhere(number, offset)

    # ---- what is compared with what

    def _stretches(self, source: TopicPartition, to: TopicPartition, findings: Findings) -> Iterator[Stretch]:
        view = self._view
        window, end = view.windows[source], view.to_ends[to]
        passes = view.passes.get((source, to), ())
        if not passes:
            yield Stretch(
                source=window, to=view.to_windows[to].within(Range(0, end)), known=None, repeated_to=0
            )
            return
        begun = view.begun_at(source, passes)
        before = view.explain(source, [Range(window.first, begun).within(window)])
        findings.outcomes.update(before.outcomes)
        findings.outcomes[Outcome.BEFORE_START] += total(before.rest)
        yield from stretches_of(passes, begun, window, Range(view.to_starts[to], end))

    def _skips(self, source: TopicPartition, to: TopicPartition) -> Skips:
        """What stands before the first record that both sides have, where there is no ledger."""
        view = self._view
        at_source = Outcome.GONE_AT_DESTINATION if view.to_starts[to] > 0 else None
        prior = Outcome.THERE_BEFORE if view.is_exclusive_at(to) else Outcome.OTHERS
        at_destination = prior if self._may_be_prior(source, to) else None
        return Skips(
            source=Outcome.BEFORE_START if view.route.start is not Start.EARLIEST else at_source,
            destination=Outcome.GONE_AT_SOURCE if view.source_starts[source] > 0 else at_destination,
        )

    def _may_be_prior(self, source: TopicPartition, to: TopicPartition) -> bool:
        """Whether what stands at the destination of a partition without a ledger may have been there before
        the route: as far as it is known to have copied nothing of the partition, or has a ledger of others
        that lead to the topic. Else the ledger may have been lost, and what is strange be altered copies.
        """
        view = self._view
        position = view.positions.get(source)
        return (
            may_append(view.route)
            or view.ends[source] == 0
            or position is None
            or position <= view.source_starts[source]
            or view.route.start is not Start.EARLIEST
            or any(there.topic == to.topic for _, there in view.passes)
        )

    # ---- reading

    async def _compare(
        self,
        comparison: LaneComparison,
        expectation: Expectation,
        stretch: Stretch,
        audit: PartitionAudit,
        to: TopicPartition,
        name_strangers: Callable[[], Awaitable[None]],
    ) -> None:
        view, source = self._view, audit.source
        check = None
        if stretch.known is not None:
            is_kept_here = source.topic not in view.compacted_sources
            is_kept_there = to.topic not in view.compacted_destinations | view.rewritten_destinations
            check = HeaderCheck(
                stretch.known,
                stretch.source,
                stretch.to,
                here=is_kept_here,
                there=is_kept_there,
                is_overwritten=view.indexes[to].is_any_contested,
            )
        one = self._reader(view.source, source, stretch.source, committed_only(view.route))
        other = self._reader(view.destination, to, stretch.to, committed=True)
        await StretchReading(stretch, comparison, expectation, check, view.repeaters, name_strangers).read(
            one, other
        )
        if check is not None:
            check.end(audit.headers)
        self.bytes += one.bytes + other.bytes
        await view.source.release_lane(one.lane)
        await view.destination.release_lane(other.lane)

    def _reader(
        self, cluster: Cluster, partition: TopicPartition, within: Range, committed: bool
    ) -> LogReader:
        lane = cluster.new_lane("audit")
        return LogReader(cluster, partition, within, committed_only=committed, lane=lane)

    async def _name_strangers(
        self, comparison: LaneComparison, source: TopicPartition, to: TopicPartition, number: int
    ) -> None:
        wanted = {item.content: item.offset for item in reversed(comparison.strangers.items)}
        if wanted:
            comparison.strangers.name(await self._find(source, to, number, wanted))

    async def _find(
        self, source: TopicPartition, to: TopicPartition, number: int, wanted: Mapping[int, int]
    ) -> dict[int, Origin]:
        """Where contents are at the source, of which each stands at that place of the destination: the first
        record that has it, in this partition or in others that lead to the same place; last, one that would
        lead there if the topic had other partitions.
        """
        lanes = self._view.lanes_to(to)
        own = [each for each in lanes if each[0] == source] or [(source, number, [])]
        looked_at = [*own, *(each for each in lanes if each[0] != source)]
        found: dict[int, Origin] = {}
        for is_wide in (False, True):
            for lane, index, passes in looked_at:
                left = {each: place for each, place in wanted.items() if each not in found}
                expectation = self._expectations.of(lane, to, index, is_wide=is_wide, tells_filtered=True)
                if is_wide and expectation.places is None:
                    continue
                if left:
                    found |= await self._find_in(lane, index, passes, expectation, left)
        return found

    async def _find_in(
        self,
        source: TopicPartition,
        number: int,
        passes: Sequence[Pass],
        expectation: Expectation,
        wanted: Mapping[int, int],
    ) -> dict[int, Origin]:
        view = self._view
        if expectation.is_wide and expectation.places is not None:
            passes = expectation.places.passes_beside(number)
        found: dict[int, Origin] = {}
        within = Range(view.source_starts[source], view.windows[source].next)
        reached = max((each.source.next for each in passes), default=within.next)
        reader = self._reader(view.source, source, within, committed_only(view.route))
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                for item in expectation.items(entry, within):
                    if item.content in wanted and item.content not in found:
                        place = last_place(passes, item.offset)
                        found[item.content] = Origin(
                            source,
                            item.offset,
                            place,
                            is_behind=item.offset >= reached,
                            is_elsewhere=expectation.is_wide,
                            is_filtered=item.outcome is Outcome.LEFT_OUT,
                            may_be_untold=may_lack(passes, item.offset, wanted[item.content]),
                        )
                if len(found) == len(wanted):
                    break
        self.bytes += reader.bytes
        await view.source.release_lane(reader.lane)
        return found
