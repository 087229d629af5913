"""Consumer groups of a side that does not answer: where they go on at the other one, by the notes of how they
were carried there last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from broker.client.cluster import Cluster
from broker.client.group_offsets import fetch_offsets
from broker.client.offsets import LATEST, list_offsets_found
from broker.types import TopicPartition
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.failover.group_place import AS_CARRIED, GroupPlace
from mirrormaker.ledger.group_mark import GroupMark
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.two_way import read_again_at_most
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.group_selection import GroupSelection
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.naming import compile_naming

TIMEOUT_MS = 10_000


async def groups_as_carried(
    cluster: Cluster,
    routes: Collection[RouteSpec],
    view: LedgerView,
    went_back_to: Mapping[TopicPartition, int] | None,
) -> list[GroupPlace]:
    """Of `routes`, which lead to `cluster`, whose ledger is `view`. `went_back_to`: how far routes back have
    come in its partitions; None: not known. Raises BrokerError.
    """
    carried = [(route, *item) for route in routes for item in sorted(_marks_of(route, view).items())]
    ends = await known_ends(cluster, {lane.destination for _, _, marks in carried for lane in marks})
    found: list[GroupPlace] = []
    for route, group, marks in carried:
        there = await fetch_offsets(cluster, group, timeout_ms=TIMEOUT_MS)
        for lane, mark in sorted(marks.items()):
            at = there.get(lane.destination)
            committed, end = None if at is None else at.offset, ends.get(lane.destination)
            again = None
            if committed is not None and end is not None:
                back_to = None if went_back_to is None else went_back_to.get(lane.destination, 0)
                again = read_again_at_most(committed, end, _lanes_beside(view, lane), back_to)
            found.append(_place_of(route, group, lane, mark, committed, again))
    return found


async def known_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Without those that are gone, or have no leader."""
    metadata = await cluster.refresh()
    wanted = {each: LATEST for each in partitions if metadata.partition(each) is not None}
    listed = await list_offsets_found(cluster, wanted, timeout_ms=TIMEOUT_MS)
    return {each: at.offset for each, at in listed.found.items()}


def _marks_of(route: RouteSpec, view: LedgerView) -> dict[str, dict[LaneId, GroupMark]]:
    """By group and lane; of a topic that was made anew, those of the one that was written to last."""
    selection, naming = GroupSelection(route.sync.groups), compile_naming(route.source, route.topics)
    found: dict[str, dict[LaneId, GroupMark]] = defaultdict(dict)
    for (group, lane), mark in sorted(view.marks.items(), key=lambda item: _end(view, item[0].lane)):
        is_of_route = naming.selects(lane.topic) and naming.destination_of(lane.topic) == lane.to
        if is_of_route and selection.selects(group):
            for other in [each for each in found[group] if each.destination == lane.destination]:
                del found[group][other]
            found[group][lane] = mark
    return found


def _lanes_beside(view: LedgerView, lane: LaneId) -> list[LaneLedger]:
    """What came to the same partition from the topic, or one that had its name before."""
    lanes = view.of_source(lane.source, lane.to)
    return [view.lanes[each] for each in lanes if each.to_partition == lane.to_partition]


def _end(view: LedgerView, lane: LaneId) -> int:
    return (view.lanes[lane].to_next or 0) if lane in view.lanes else 0


def _place_of(
    route: RouteSpec, group: str, lane: LaneId, mark: GroupMark, committed: int | None, again: int | None
) -> GroupPlace:
    return GroupPlace(
        route=route.name,
        group=group,
        source=lane.source,
        at=mark.source,
        to=lane.destination,
        continues_at=committed,
        standing=AS_CARRIED if mark.fits(committed) else GroupStanding.OWN.value,
        is_exact=False,
        unread=0,
        again=again,
    )
