"""What one side of a failover group has and the other one had once, and has not any more: a topic was made
anew there, or has lost its end. Nobody copies that again: routes go on behind what they have copied, and what
had come from there does not go back. Groups that have not read it miss it once the sides are switched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets_found
from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range, joined, total
from mirrormaker.failover.group_place import GroupPlace, Missed
from mirrormaker.failover.partitions import (
    PartitionPlace,
    former_lanes,
    kept_of,
    lane_of,
    ledger_at,
    lost_of,
)
from mirrormaker.failover.sides import Sides
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.view import LedgerView
from mirrormaker.reconcile.switches import Side
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.naming import compile_naming

TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Of one partition."""

    source: TopicPartition
    """Of the side that has the records."""
    stretches: tuple[Range, ...]
    """Their offsets, by which they are sorted; at least one."""

    @property
    def records(self) -> int:
        """At the most: some may have been compacted."""
        return total(self.stretches)

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "first": self.stretches[0].first,
            "last": self.stretches[-1].next - 1,
            "records": self.records,
        }

    def line(self) -> str:
        """For people."""
        told = self.describe()
        return f"{self.source}: {self.records:,} records, offsets {told['first']} to {told['last']}"


async def look_for_lost(sides: Sides, side: Side, places: Collection[PartitionPlace]) -> list[Lost]:
    """Of what `side` has still; `places` of it. Both sides must answer. Raises BrokerError."""
    cluster, other = sides.cluster(side), sides.cluster(side.other)
    came, went = await ledger_at(cluster), await ledger_at(other)
    ends = await _ends_of(other, {place.to for place in places})
    found: list[Lost] = []
    for place in places:
        lane = lane_of(went, cluster, place.source, place.to)
        gone = lost_of(lane, ends[place.to]) if place.to in ends else []
        copied, kept = Range(place.start, place.copied_to), Range(place.start, place.end)
        stretches = [each.source.within(copied) for each in gone]
        for former in former_lanes(came, other, place.to, place.source):
            stretches += [each.within(kept) for each in _places_in(kept_of(former, place.end))]
        found.append(Lost(source=place.source, stretches=tuple(joined(stretches))))
    return [lost for lost in found if lost.stretches]


async def lost_as_known(cluster: Cluster, routes: Iterable[RouteSpec], view: LedgerView) -> list[Lost]:
    """The same of a side that does not answer, as far as `view` tells, the ledger at `cluster`, to which
    `routes` lead from there: what it has deleted since is told too. Raises BrokerError.
    """
    ways: set[tuple[TopicPartition, TopicPartition]] = set()
    for route in routes:
        naming = compile_naming(route.source, route.topics)
        ways |= {
            (lane.source, lane.destination)
            for lane in view.lanes
            if naming.selects(lane.topic) and naming.destination_of(lane.topic) == lane.to
        }
    ends = await _ends_of(cluster, {to for _, to in ways})
    return [
        Lost(source=source, stretches=tuple(joined(each.source for each in gone)))
        for source, to in sorted(ways)
        if to in ends and (gone := lost_of(lane_of(view, None, source, to), ends[to]))
    ]


async def _ends_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """0 of those that are gone; nothing of those without a leader."""
    metadata = await cluster.refresh()
    there = {each: LATEST for each in partitions if metadata.partition(each) is not None}
    listed = await list_offsets_found(cluster, there, timeout_ms=TIMEOUT_MS)
    gone = dict.fromkeys(set(partitions) - there.keys(), 0)
    return gone | {each: at.offset for each, at in listed.found.items()}


def _places_in(lane: LaneLedger) -> Iterable[Range]:
    return (Range(run.to, run.to + run.length) for run in lane.placed_runs())


def past_lost(places: Iterable[GroupPlace], lost: Iterable[Lost]) -> tuple[GroupPlace, ...]:
    """The places, and what of `lost`, of the side that groups leave, each group has not read there."""
    found = {each.source: each for each in lost}
    return tuple(replace(place, missed=_missed(place.at, found.get(place.source))) for place in places)


def _missed(at: int, lost: Lost | None) -> Missed | None:
    if lost is None or lost.stretches[-1].next <= at:
        return None
    left = joined(Range(max(each.first, at), each.next) for each in lost.stretches)
    return Missed(first=left[0].first, last=left[-1].next - 1, records=total(left))


def made_anew_notes(
    sides: Sides, side: Side, places: Iterable[PartitionPlace], view: LedgerView
) -> list[str]:
    """For people, of each topic at the other side that is another now: what had come from it to `side`, whose
    ledger is `view`, does not go back.
    """
    other = sides.clusters.get(side.other)
    if other is None:
        return []
    anew = {place.to.topic for place in places if _was_made_anew(view, other, place.to, place.source)}
    return [
        f"topic {topic} at {sides.name(side.other)} was made anew: what had come from there to"
        f" {sides.name(side)} stays there alone"
        for topic in sorted(anew)
    ]


def _was_made_anew(view: LedgerView, source: Cluster, place: TopicPartition, to: TopicPartition) -> bool:
    """Whether all that came by the lane is of a topic that had the name before, in the same cluster."""
    is_read = len(lane_of(view, source, place, to)) > 0
    return place.topic in source.topics and not is_read and bool(former_lanes(view, source, place, to))
