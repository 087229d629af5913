"""Where routes go on by their ledgers in partitions of which their groups have forgotten the positions, as
plans reckon with it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.flow.books import Written
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.ledger.resting_places import find_resting_places
from mirrormaker.plan.topics import select_topics
from mirrormaker.plan.world import ObservedCluster, World
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

FIND_TIMEOUT_MS = 60_000
"""How long a destination may take to tell of one route."""


async def with_forgotten_positions(
    topology: Topology, world: World, open_clusters: Mapping[ClusterName, Cluster]
) -> World:
    """The world, with what destinations have written of what no position is known of."""
    clusters = dict(world.clusters)
    for route in topology.routes:
        source, destination = clusters[route.source], world.reached(route.destination)
        if not route.enabled or destination is None or not isinstance(source, ObservedCluster):
            continue
        if route.name in source.untold or LEDGER_TOPIC not in destination.topics:
            continue
        fresh = _without_position(route, source)
        if not fresh:
            continue
        ends = open_clusters[route.source], open_clusters[route.destination]
        try:
            async with asyncio.timeout(FIND_TIMEOUT_MS / 1000):
                written = await find_resting_places(route, *ends, fresh)
        except (BrokerError, TimeoutError) as error:
            told = str(error) or f"no answer within {FIND_TIMEOUT_MS} ms"
            problem = f"where {route.name!r} goes on by the ledger of {route.destination!r}: {told}"
            clusters[route.source] = replace(source, problems=(*source.problems, problem))
            continue
        resting = {**source.resting, route.name: _places(source, written)}
        clusters[route.source] = replace(source, resting=resting)
    return World(clusters=clusters)


def _without_position(route: RouteSpec, source: ObservedCluster) -> dict[TopicPartition, str]:
    """Partitions that hold something which the route takes from where nobody knows, with the topics that they
    lead to.
    """
    known = source.positions.get(route.name, {})
    destinations = select_topics(compile_naming(route.source, route.topics), source.topics.values())
    return {
        TopicPartition(topic, number): to
        for topic, to in destinations.items()
        for number, traffic in source.topics[topic].traffic.items()
        if number not in known.get(topic, {}) and traffic.end > traffic.start
    }


def _places(source: ObservedCluster, written: Written) -> dict[str, dict[int, int]]:
    """Where those go on of which something is written; one that was made anew is read from its beginning."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for at in (*written.former, *written.sent_farther):
        traffic = source.topics[at.topic].traffic[at.partition]
        found[at.topic][at.partition] = traffic.end if at in written.sent_farther else traffic.start
    for at, place in written.stood.items():
        found[at.topic][at.partition] = min(place.lanes)
    return dict(found)
