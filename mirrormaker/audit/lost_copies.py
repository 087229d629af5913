"""Whether a destination still has what was written there, by the ledger and by what the cluster says of its
ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.types import TopicPartition
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lost_places import lost_places
from mirrormaker.audit.ranges import Range, joined, outside, total
from mirrormaker.audit.route_view import RouteView
from mirrormaker.ledger.page import PageRun


def judge_copies(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> None:
    """Take what a lane had copied, and the destination has no more, from what is equal."""
    if to in view.to_ends:
        _judge_kept(view, source, to, passes, findings)
        return
    findings.equal -= miss_all(view, source, to, passes, findings)


def miss_all(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> int:
    """Name what a lane had copied to a partition that is not there; how many records that is."""
    copied = joined(part for each in passes for part in each.copied_parts(view.windows[source]))
    for missing in copied:
        findings.add_missing(source, missing, to, None)
    return total(copied)


def _judge_kept(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> None:
    start, window = view.to_starts[to], view.windows[source]
    runs = [run for each in passes for run in each.known_runs]
    there = [_since(start, run) for run in runs if run.to + run.length > start]
    copied, kept = (joined(_source(run).within(window) for run in some) for some in (runs, there))
    gone = total(part for each in copied for part in outside(kept, each))
    findings.outcomes[Outcome.GONE_AT_DESTINATION] += gone
    findings.equal -= gone
    for lost in lost_places(there, view.to_reached[to]):
        missing = lost.source.within(window)
        if missing.length:
            findings.equal -= missing.length
            findings.add_missing(source, missing, to, lost.to + missing.first - lost.source.first)


def _since(start: int, run: PageRun) -> PageRun:
    """What of it a destination has that begins there."""
    gone = max(start - run.to, 0)
    return run._replace(source=run.source + gone, to=run.to + gone, length=run.length - gone)


def _source(run: PageRun) -> Range:
    return Range(run.source, run.source + run.length)
