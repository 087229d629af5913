"""A route audited by its ledger and by what both clusters say of their ends: no records are read, but those
at the destination that no page knows of, what of the source may explain them, and what of the source nothing
tells of.

What is found so: source offsets that were never dealt with, records that the destination has lost from its
end, and records that stand there and come from nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.gap_audit import GapAudit, Lane
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lost_copies import Lanes, judge_copies
from mirrormaker.audit.lost_places import uncertain_offsets
from mirrormaker.audit.outcome import PartitionAudit, WindowCount
from mirrormaker.audit.page_sums import sum_window
from mirrormaker.audit.ranges import Range, joined, outside, total
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.untold_records import Untold, UntoldRecords
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.model import Start, StartAtOffsets


class LedgerAudit:
    """Of one route."""

    def __init__(self, view: RouteView, looked_to: Mapping[Lane, int] | None = None) -> None:
        """`looked_to`: offsets of the destination before which records that no page knows of have been told
        already, by lane.
        """
        self._view = view
        self._gaps = GapAudit(view, looked_to or {})
        self._untold = UntoldRecords(view)

    @property
    def bytes(self) -> int:
        """Read of both sides, for records that no page knows of, and of what may be lost or missing."""
        return self._gaps.bytes + self._untold.bytes

    @property
    def looked_to(self) -> Mapping[Lane, int]:
        """`looked_to` as it is now."""
        return self._gaps.looked_to

    async def partition(
        self, source: TopicPartition, windows: Sequence[tuple[TimeWindow, Range]]
    ) -> PartitionAudit:
        """Judge a partition; `windows`: spans of time to count it by, with their source offsets. Raises
        BrokerError.
        """
        view = self._view
        findings = Findings()
        audit = PartitionAudit(
            source=source, window=view.windows[source], findings=findings, problem=self._why_doubtful(source)
        )
        audit.tell_kept(view.kept_copies(source))
        lanes = [
            (to, view.passes[source, to]) for _, to in view.data_lanes(source) if (source, to) in view.passes
        ]
        audit.has_ledger = bool(lanes)
        found: list[int] = []
        judge_copies(view, source, lanes, findings)
        for to, passes in lanes:
            if to not in view.to_ends:
                continue
            audit.problem = audit.problem or _why_uncertain(view, source, to, passes)
            try:
                found += await self._gaps.lane(source, to, passes, findings)
            except CorruptRecordsError as error:
                audit.problem = f"damaged records: {error}"
            except ProtocolError as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                audit.problem = f"what the ledger does not know of {to} cannot be read: {error}"
        try:
            if not lanes:
                await self._judge_untold(source, audit)
                return audit
            copied = joined(Range(each, each + 1) for each in found)
            untold = judge_source(view, source, lanes, copied, findings)
            pending = await self._untold.without_last_marker(source, untold.pending, findings)
            findings.outcomes[Outcome.PENDING] += total(pending)
            await self._untold.count_lost(source, untold.may_be_lost, findings)
            problem = await self._judge_holes(source, untold.holes, findings)
            audit.problem = audit.problem or problem
        except CorruptRecordsError as error:
            audit.problem = f"damaged records: {error}"
        audit.windows = tuple(count_window(lanes, window, offsets) for window, offsets in windows)
        findings.sort()
        return audit

    async def _judge_untold(self, source: TopicPartition, audit: PartitionAudit) -> None:
        """A partition that the ledger has nothing of. Raises BrokerError, CorruptRecordsError."""
        view, outcomes = self._view, audit.findings.outcomes
        explained = view.explain(source, [audit.window])
        outcomes.update(explained.outcomes)
        begun = self._begun_untold(source)
        rest = await self._untold.without_last_marker(source, explained.rest, audit.findings)
        if begun is None:
            if rest:
                audit.problem = self._why_no_ledger(source)
            return
        before = total(part.within(Range(0, begun)) for part in rest)
        outcomes[Outcome.BEFORE_START] += before
        outcomes[Outcome.PENDING] += total(rest) - before

    def _begun_untold(self, source: TopicPartition) -> int | None:
        """Where the route began by its `start`, which is not at the oldest record, if it has certainly copied
        nothing since: nobody ever wrote where its records go; or where it would begin, as its topic was made
        anew, or its source has lost all that was copied; or at its oldest record. None: that cannot be told.
        """
        view, start = self._view, self._view.route.start
        if source in view.made_anew:
            return view.copied_to(source)
        if view.is_all_severed(source) or view.is_to_begin(source):
            return 0
        if start is Start.EARLIEST or any(view.to_reached.get(to) != 0 for _, to in view.own_lanes(source)):
            return None
        if isinstance(start, StartAtOffsets) and source.partition not in start.offsets.get(source.topic, ()):
            return None
        return view.copied_to(source)

    def _why_doubtful(self, source: TopicPartition) -> str | None:
        doubt = self._view.doubts.get(source)
        return None if doubt is None else f"it stands, and --deep compares what is there: {doubt}"

    def _why_no_ledger(self, source: TopicPartition) -> str:
        position = self._view.positions.get(source)
        helps = self._view.why_unplaced(source) or "--deep reads it"
        if position is None:
            return f"nothing of it is in the ledger, and the route has no position in it: {helps}"
        return f"the route is at offset {position}, and nothing of it is in the ledger: {helps}"

    async def _judge_holes(
        self, source: TopicPartition, holes: Sequence[Range], findings: Findings
    ) -> str | None:
        """Offsets that no page deals with, and that no note explains. Why not all can be judged. Raises
        BrokerError, CorruptRecordsError.
        """
        due = await self._untold.due(source, holes, findings)
        for to, records in due.records.items():
            passes = self._view.passes.get((source, to), ())
            for missing in records:
                places = (each.place_from(missing.next) for each in passes)
                at = next((place for place in places if place is not None), None)
                findings.add_missing(source, missing, to, at)
        if not due.unread:
            return None
        return f"nothing tells of {due.unread:,} offsets, too many to be looked at: --deep reads them"


def _why_uncertain(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass]
) -> str | None:
    """Why it cannot be told whether all of it is there: another partition's records were written to the same
    places, as to a topic that was made anew.
    """
    kept = Range(view.to_starts[to], view.to_reached[to])
    if not view.indexes[to].is_any_contested(kept):
        return None
    others = [
        place.within(kept)
        for lane, _, known in view.lanes_to(to)
        if lane != source
        for each in known
        for place in each.places()
    ]
    uncertain = uncertain_offsets([run for each in passes for run in each.known_runs], others)
    count = total(each.within(view.windows[source]) for each in uncertain)
    if not count:
        return None
    return (
        f"{to} was made anew, or lost its end: records of several partitions were written to the places of "
        f"{count:,} of this, and --deep says whether they are there"
    )


def judge_source(
    view: RouteView,
    source: TopicPartition,
    lanes: Lanes,
    found: Sequence[Range],
    findings: Findings,
) -> Untold:
    """Whether all source offsets that the route has passed were dealt with; `found`: those of records that
    are at the destination, and that no page knows of. Those that were not, which are not counted.
    """
    may_be_lost: list[Range] = []
    missed: list[Range] = []
    window = view.windows[source]
    passes = [each for _, known in lanes for each in known]
    first, reached = view.begun_at(source, passes), max(each.source.next for each in passes)
    before, pending = Range(window.first, first).within(window), Range(reached, window.next).within(window)
    early = total(each.within(pending) for each in found)
    explained = view.explain(source, [before])
    findings.outcomes.update(explained.outcomes)
    findings.outcomes[Outcome.BEFORE_START] += total(explained.rest)
    explained = view.explain(source, outside(found, pending))
    findings.outcomes.update(explained.outcomes)
    to_come = explained.rest
    judged = Range(first, reached).within(window)
    found = [each.within(judged) for each in found]
    dealt_with = joined([*(part for each in passes for part in each.covered_parts(judged)), *found])
    explained, lost = view.explain(source, outside(dealt_with, judged)), view.may_be_lost(source)
    findings.outcomes.update(explained.outcomes)
    for hole in explained.rest:
        may_be_lost += [each.within(hole) for each in lost]
        missed += outside(lost, hole)
    copied = sum(each.count(judged) for each in passes) + total(found)
    distinct = total(joined([*(part for each in passes for part in each.copied_parts(judged)), *found]))
    findings.records += distinct + early
    findings.equal += distinct + early
    findings.outcomes[Outcome.REPEATED] += copied - distinct
    findings.outcomes[Outcome.LEFT_OUT] += total(dealt_with) - distinct
    return Untold([each for each in may_be_lost if each.length], missed, to_come)


def count_window(lanes: Lanes, window: TimeWindow, offsets: Range) -> WindowCount:
    """What the pages say of a span of time."""
    passes = [each for _, found in lanes for each in found]
    covered = joined(part for each in passes for part in each.covered_parts(offsets))
    copied = joined(part for each in passes for part in each.copied_parts(offsets))
    dealt = sum(each.length for each in covered)
    count = sum(each.length for each in copied)
    by_lane = [[run for each in known for run in each.runs_within(offsets)] for _, known in lanes]
    filled = [runs for runs in by_lane if runs]
    ends: Range | None = None
    if len(filled) == 1:
        (runs,) = filled
        places = [
            Range(
                run.to + max(offsets.first - run.source, 0),
                run.to + min(run.length, offsets.next - run.source),
            )
            for run in runs
        ]
        ends = Range(min(each.first for each in places), max(each.next for each in places))
    sums = sum_window((page for each in passes for page in each.sums), window, offsets)
    return WindowCount(
        window=window,
        source=offsets,
        copied=count,
        uncopied=dealt - count,
        unrecorded=offsets.length - dealt,
        to=ends,
        sums=sums,
    )
