"""Whether a destination still has what was written there, by the ledger and by what the cluster says of its
ends. Dead letters are judged so, too: they have a topic of their own, and nobody reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.types import TopicPartition
from mirrormaker.audit.findings import Difference, DifferenceKind, Findings, Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lost_places import lost_places
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView


def judge_copies(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> None:
    """Take what a lane had copied, and the destination has no more, from what is equal."""
    if to in view.to_ends:
        _judge_kept(view, source, to, passes, findings)
        return
    count = sum(each.count(view.windows[source]) for each in passes)
    if count:
        findings.equal -= count
        findings.add(
            Difference(
                kind=DifferenceKind.MISSING,
                source=source,
                source_offset=passes[0].source.first,
                destination=to,
                destination_offset=None,
                count=count,
            )
        )


def judge_letters(view: RouteView, source: TopicPartition, findings: Findings) -> None:
    """The same of dead letters that are not compared as records are; they do not count as equal."""
    lane_map = view.lanes[source]
    if lane_map.parked_lane is None:
        return
    to = lane_map.destinations[lane_map.parked_lane]
    if (source, to) not in view.passes or any(to == there for _, there in view.data_lanes(source)):
        return
    letters = Findings()
    judge_copies(view, source, to, view.passes[source, to], letters)
    letters.equal = 0
    findings.merge(letters)


def _judge_kept(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> None:
    start, window = view.to_starts[to], view.windows[source]
    for each in passes:
        for run in each.runs_within(window):
            at_source = Range(run.source, run.source + run.length).within(window)
            place = run.to + at_source.first - run.source
            gone = Range(place, min(place + at_source.length, start))
            findings.outcomes[Outcome.GONE_AT_DESTINATION] += gone.length
            findings.equal -= gone.length
    runs = [run for each in passes for run in each.known_runs]
    for lost in lost_places(runs, view.to_reached[to]):
        missing = lost.at(Range(max(lost.to, start), lost.to_next)).source.within(window)
        if not missing.length:
            continue
        findings.equal -= missing.length
        findings.add(
            Difference(
                kind=DifferenceKind.MISSING,
                source=source,
                source_offset=missing.first,
                destination=to,
                destination_offset=lost.to + missing.first - lost.source.first,
                count=missing.length,
            )
        )
