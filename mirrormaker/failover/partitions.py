"""Where the routes of one direction stand: positions, ends, and what the ledgers say, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.offsets import EARLIEST, LATEST, list_offsets
from broker.errors import BrokerError, ConfigurationError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.audit.lost_places import Placed, lost_places
from mirrormaker.failover.sides import Sides
from mirrormaker.flow.lane_note import arrears_in
from mirrormaker.flow.position_moves import move_positions
from mirrormaker.flow.position_note import Led, read_note, write_note
from mirrormaker.flow.positions import SourceId
from mirrormaker.ledger.current_lanes import is_current
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.reading import read_ledger
from mirrormaker.ledger.view import LedgerView
from mirrormaker.plan.topics import select_topics
from mirrormaker.reconcile.switches import Side
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import Delivery, RouteSpec
from mirrormaker.topology.naming import compile_naming

READ_TIMEOUT_MS = 30_000
"""For leaders and coordinators that move. A side of which one is not found meanwhile is not read in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """One source partition of a route."""

    route: RouteSpec
    source: TopicPartition
    to: TopicPartition
    committed: int | None
    """Where the route goes on; None where it has never been."""
    start: int
    stable_end: int
    """What readers of committed records see."""
    end: int
    noted: int | None = None
    """Source offset before which the destination has everything, where what is stored beside the position
    says that this is less.
    """
    is_elsewhere: bool = False
    """Whether the position is said to be of copies in another cluster, or topic, that was lost."""

    @property
    def position(self) -> int:
        """Where it goes on, or begins."""
        return self.start if self.committed is None else self.committed

    @property
    def copied_to(self) -> int:
        """Source offset before which nothing is to be copied any more: it is there, or was given up."""
        return self.position if self.noted is None else min(self.position, self.noted)

    @property
    def is_copied(self) -> bool:
        """Whether nothing is left."""
        return self.copied_to >= self.end


async def read_places(sides: Sides, side: Side) -> list[PartitionPlace]:
    """Of all routes that lead from `side`, which must answer. Raises BrokerError."""
    cluster, spec = sides.cluster(side), sides.topology.clusters[sides.name(side)]
    metadata, there = await cluster.refresh(), _id_of(sides.clusters.get(side.other))
    places: list[PartitionPlace] = []
    for route in sides.leaving(side):
        names = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
        sources = metadata.topic_partitions(sorted(names))
        async with route_group(route, spec, cluster, timeout_ms=READ_TIMEOUT_MS) as admin:
            committed = await admin.group_offsets(route.group, sources)
        first, last = dict.fromkeys(sources, EARLIEST), dict.fromkeys(sources, LATEST)
        starts = await list_offsets(cluster, first, timeout_ms=READ_TIMEOUT_MS)
        ends = await list_offsets(cluster, last, timeout_ms=READ_TIMEOUT_MS)
        stable = await list_offsets(cluster, last, read_committed=True, timeout_ms=READ_TIMEOUT_MS)
        places += (
            PartitionPlace(
                route=route,
                source=source,
                to=TopicPartition(names[source.topic], source.partition),
                committed=committed[source].offset if source in committed else None,
                start=starts[source].offset,
                stable_end=stable[source].offset,
                end=ends[source].offset,
                noted=noted_offset(route, committed.get(source)),
                is_elsewhere=_is_elsewhere(committed.get(source), Led(names[source.topic], there)),
            )
            for source in sources
        )
    return places


async def source_topics(sides: Sides, side: Side) -> list[str]:
    """Those that routes copy from `side`. Raises BrokerError."""
    topics = (await sides.cluster(side).refresh()).topics.values()
    names = (select_topics(compile_naming(each.source, each.topics), topics) for each in sides.leaving(side))
    return sorted(set().union(*names))


async def lose_unreadable(sides: Sides, side: Side) -> None:
    """Where not all that routes copy from `side` can be read, as while a partition or the coordinator of
    their group has no leader, it counts as away: nobody could copy the rest of it.
    """
    if side in sides.clusters:
        try:
            await read_places(sides, side)
        except BrokerError as error:
            sides.lose(side, f"cluster {sides.name(side)!r} cannot be read in full: {error}")


def noted_offset(route: RouteSpec, stored: OffsetAndMetadata | None) -> int | None:
    """Of what its group has stored of a partition, see `PartitionPlace.noted`: a route that copies at most
    once has its position behind what it is about to send.
    """
    if stored is None or route.delivery is not Delivery.AT_MOST_ONCE:
        return None
    lacked = arrears_in(stored.offset, read_note(stored.metadata).note)
    return None if lacked is None else lacked.first


def _is_elsewhere(stored: OffsetAndMetadata | None, led: Led) -> bool:
    was = None if stored is None else read_note(stored.metadata).led
    return was is not None and not was.is_at(led)


def _id_of(cluster: Cluster | None) -> str | None:
    return None if cluster is None else cluster.cluster_id


async def move_places(sides: Sides, side: Side, positions: Mapping[TopicPartition, int]) -> None:
    """Have the routes that lead from `side` go on at these offsets, of copies at the other one as it is now;
    nobody may be copying. Raises BrokerError.
    """
    cluster, spec = sides.cluster(side), sides.topology.clusters[sides.name(side)]
    metadata, there = await cluster.refresh(), _id_of(sides.clusters.get(side.other))
    for route in sides.leaving(side):
        names = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
        own = {source: offset for source, offset in positions.items() if source.topic in names}
        if not own:
            continue
        async with route_group(route, spec, cluster) as admin:
            led = {source: Led(names[source.topic], there) for source in own}
            noted = {
                source: OffsetAndMetadata(offset=to, metadata=write_note(NO_TOPIC_ID, "", led[source]))
                for source, to in own.items()
            }
            await admin.reset_group_offsets(route.group, noted)
        if route.delivery is Delivery.EXACTLY_ONCE and side.other in sides.clusters:
            moves = {
                SourceId(
                    cluster_id=cluster.cluster_id,
                    topic_id=metadata.topics[source.topic].topic_id,
                    partition=source,
                    to=names[source.topic],
                ): offset
                for source, offset in own.items()
            }
            await move_positions(sides.cluster(side.other), route, moves)


async def ledger_at(cluster: Cluster) -> LedgerView:
    """What a cluster's ledger says; nothing where it has none. Raises BrokerError."""
    try:
        return await read_ledger(cluster)
    except ConfigurationError:
        return LedgerView()


def lane_of(
    view: LedgerView, source: Cluster | None, place: TopicPartition, to: TopicPartition
) -> LaneLedger:
    """What the ledger says of the lane between two partitions: of the source's topic as it is now, or while
    that does not answer, of the one that was written to last.
    """
    last = _last_lane(view, source, place, to)
    return LaneLedger() if last is None else view.lanes[last]


def lost_of(lane: LaneLedger, end: int) -> list[Placed]:
    """What was copied by a lane and is not where it was written any more: its destination, which ends at
    `end` by now, was made anew or has lost its end. Ledgers have to be read before ends are asked for.
    """
    return lost_places(list(lane.placed_runs()), end)


def kept_of(lane: LaneLedger, end: int) -> LaneLedger:
    """What of a lane is certainly where it was written: of one that has lost records (`lost_of`), only what
    was copied after all of those. What lies elsewhere may be anybody's.
    """
    lost = lost_of(lane, end)
    if not lost:
        return lane
    kept, reached = LaneLedger(), max(each.source.next for each in lost)
    for page in lane.pages():
        if page.first >= reached:
            kept.put(page)
    return kept


def cluster_before(view: LedgerView, place: TopicPartition, to: TopicPartition) -> str | None:
    """The id of the cluster from which the partition `place` there was copied last, as the ledger says."""
    last = _last_lane(view, None, place, to)
    return None if last is None else last.cluster


def _last_lane(
    view: LedgerView, source: Cluster | None, place: TopicPartition, to: TopicPartition
) -> LaneId | None:
    lanes = [lane for lane in view.of_source(place, to.topic) if lane.to_partition == to.partition]
    if source is not None:
        lanes = [lane for lane in lanes if is_current(lane, source)]
    return max(lanes, key=lambda lane: view.lanes[lane].to_next or -1, default=None)


def former_lanes(
    view: LedgerView, source: Cluster, place: TopicPartition, to: TopicPartition
) -> list[LaneLedger]:
    """What the ledger says of lanes between two partitions whose source topic is another now, or gone, in a
    cluster that has lived on.
    """
    return [
        view.lanes[lane]
        for lane in view.of_source(place, to.topic)
        if lane.to_partition == to.partition
        and (lane.cluster, lane.topic_id is None) == (source.cluster_id, False)
        and not is_current(lane, source)
    ]
