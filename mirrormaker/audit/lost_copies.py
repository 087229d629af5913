"""Whether a destination still has what was written there, by the ledger and by what the cluster says of its
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.types import TopicPartition
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lost_places import lost_places
from mirrormaker.audit.ranges import Range, joined, outside, total
from mirrormaker.audit.route_view import RouteView
from mirrormaker.ledger.page import PageRun

Lanes = Sequence[tuple[TopicPartition, Sequence[Pass]]]
"""Of one partition: where each leads, and what is known of it."""


def judge_copies(view: RouteView, source: TopicPartition, lanes: Lanes, findings: Findings) -> None:
    """Take what was copied of a partition, and the destination has no more, from what is equal. A record may
    have been copied to several places, as one that was parked and copied after all: it is gone when none of
    these is there any more.
    """
    copied: list[Range] = []
    kept: list[Range] = []
    missing: list[Range] = []
    for to, passes in lanes:
        if to not in view.to_ends:
            missing += miss_all(view, source, to, passes, findings)
            continue
        start, window = view.to_starts[to], view.windows[source]
        runs = [run for each in passes for run in each.known_runs]
        there = [_since(start, run) for run in runs if run.to + run.length > start]
        copied += (_source(run).within(window) for run in runs)
        kept += (_source(run).within(window) for run in there)
        missing += _miss_lost(there, view, source, to, findings)
    kept = joined(kept)
    gone = [part for each in joined(copied) for part in outside(kept, each)]
    findings.outcomes[Outcome.GONE_AT_DESTINATION] += total(gone)
    findings.equal -= total(joined([*gone, *missing]))


def miss_all(
    view: RouteView, source: TopicPartition, to: TopicPartition, passes: Sequence[Pass], findings: Findings
) -> list[Range]:
    """Name what a lane had copied to a partition that is not there; which records that is."""
    copied = joined(part for each in passes for part in each.copied_parts(view.windows[source]))
    for missing in copied:
        findings.add_missing(source, missing, to, None)
    return copied


def _miss_lost(
    there: Sequence[PageRun], view: RouteView, source: TopicPartition, to: TopicPartition, findings: Findings
) -> Iterator[Range]:
    """The same of what is not where it was written, of these."""
    for lost in lost_places(there, view.to_reached[to]):
        missing = lost.source.within(view.windows[source])
        if missing.length:
            findings.add_missing(source, missing, to, lost.to + missing.first - lost.source.first)
            yield missing


def _since(start: int, run: PageRun) -> PageRun:
    """What of it a destination has that begins there."""
    gone = max(start - run.to, 0)
    return run._replace(source=run.source + gone, to=run.to + gone, length=run.length - gone)


def _source(run: PageRun) -> Range:
    return Range(run.source, run.source + run.length)
