"""The lanes of a route's partitions: where each leads, and what the ledger knows of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.types import TopicPartition
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.lane_runs import OFFSET_MAX, Pass, passes_of, severed_passes_of
from mirrormaker.audit.standing_cuts import StandingCut
from mirrormaker.flow.batch_limits import BatchLimits
from mirrormaker.flow.transit import RouteTransit
from mirrormaker.flow.ways import LaneMap, Ways
from mirrormaker.ledger.reading import lanes_now
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.model import RouteSpec

PassesByLane = dict[tuple[TopicPartition, TopicPartition], list[Pass]]
"""By source and destination."""


def ways_of_topics(route: RouteSpec, topics: Iterable[str]) -> dict[str, Ways]:
    """Of each topic that the route takes."""
    transit = RouteTransit(route, BatchLimits())
    return {topic: transit.ways(topic) for topic in topics}


def taken_topics(ways: Mapping[str, Ways]) -> set[str]:
    """Topics of the destination that take records of these."""
    return {name for each in ways.values() for name in (each.main, *each.elsewhere)}


def with_beside(asked: Collection[str], ways: Mapping[str, Ways]) -> list[str]:
    """The topics, and those that lead to the same ones: whose a record is there all of them together tell."""
    written = {name for topic in asked for name in ways[topic].data_topics}
    return sorted(topic for topic, each in ways.items() if not written.isdisjoint(each.data_topics))


def lay_lanes(
    ways: Mapping[str, Ways], partitions: Iterable[TopicPartition], there: ClusterMetadata
) -> tuple[dict[TopicPartition, LaneMap], list[TopicPartition]]:
    """Where each partition leads, and all partitions of these topics that there are at the destination."""

    def count_of(topic: str) -> int:
        return len(there.topics[topic].partitions) if topic in there.topics else 1

    lanes = {each: ways[each.topic].lanes(each.partition, count_of) for each in partitions}
    topics = {to.topic for each in lanes.values() for to in each.destinations}
    return lanes, there.topic_partitions(sorted(topics & there.topics.keys()))


def with_former(
    lanes: Mapping[TopicPartition, LaneMap],
    passes: Iterable[tuple[TopicPartition, TopicPartition]],
    existing: Collection[TopicPartition],
) -> dict[TopicPartition, LaneMap]:
    """The lanes, and those of `passes` that records took while the route spread them over partitions."""
    former: dict[TopicPartition, list[TopicPartition]] = {}
    for source, to in sorted(passes):
        if to in existing and to.topic in lanes[source].targets and to not in lanes[source].destinations:
            former.setdefault(source, []).append(to)
    return {each: lane_map.widened(former.get(each, ())) for each, lane_map in lanes.items()}


def read_lanes(
    view: LedgerView,
    route: RouteSpec,
    source: Cluster,
    lanes: Mapping[TopicPartition, LaneMap],
    existing: Iterable[TopicPartition],
    cut_from: Mapping[TopicPartition, int],
) -> tuple[PassesByLane, PassesByLane, dict[TopicPartition, DestinationIndex]]:
    """Passes of the route's own lanes, those of what was copied from logs that the source has no more, and
    what is known of each of these partitions of the destination. In the lane of a merged topic there may be
    pages of other routes, and in one that is written at both ends those from other clusters.
    `cut_from`: by partition, the source offset from which on that is so though no page says it yet.
    """
    passes: PassesByLane = {}
    severed: PassesByLane = {}
    by_destination: dict[TopicPartition, tuple[list[Pass], list[Pass]]] = {to: ([], []) for to in existing}
    own = {
        lane: each
        for each, lane_map in lanes.items()
        for topic in {to.topic for to in lane_map.destinations}
        for lane in lanes_now(view, source, each, topic)
    }
    for lane, ledger in view.lanes.items():
        if lane.destination not in by_destination and lane not in own:
            continue
        cut_at = cut_from.get(own[lane], OFFSET_MAX) if lane in own else OFFSET_MAX
        mine = passes_of(ledger.of_route(route.name), cut_at)
        others = passes_of(page for page in ledger.pages() if page.route not in (None, route.name))
        here, elsewhere = by_destination.setdefault(lane.destination, ([], []))
        (here if lane.cluster == source.cluster_id else elsewhere).extend(mine)
        lost = severed_passes_of(ledger.of_route(route.name), cut_at)
        elsewhere.extend([*others, *lost])
        if lane in own and mine:
            passes[own[lane], lane.destination] = mine
        if lane in own:
            severed[own[lane], lane.destination] = lost
    return passes, severed, {to: DestinationIndex(*found) for to, found in by_destination.items()}


def severed_from(
    cuts: Mapping[TopicPartition, StandingCut], anew: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Of partitions that stand. Of topics that were made anew it is all, where the source tells no ids, by
    which lanes differ.
    """
    return {source: cut.at for source, cut in cuts.items()} | dict.fromkeys(anew, 0)
