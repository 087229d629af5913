"""What a destination keeps that tells whether a route may write a topic there which holds records; see
`plan/grounds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.errors import BrokerError
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.plan.adoption import undecided_topics
from mirrormaker.plan.grounds import Grounds, Written, undecided
from mirrormaker.plan.topics import written_by_topic
from mirrormaker.plan.world import ObservedCluster, ObservedTopic, World
from mirrormaker.reconcile.control import RouteWishes, read_wishes
from mirrormaker.reconcile.take_overs import taken_over
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

FIND_TIMEOUT_MS = 60_000
"""How long a destination may take to tell of one route."""


async def with_grounds(
    topology: Topology, world: World, open_clusters: Mapping[ClusterName, Cluster]
) -> World:
    """The world, with what destinations tell of topics that a plan would ask somebody about."""
    clusters = dict(world.clusters)
    for route in topology.routes:
        source, destination = world.reached(route.source), world.reached(route.destination)
        if not route.enabled or source is None or destination is None:
            continue
        naming = compile_naming(route.source, route.topics)
        written = written_by_topic(route, naming, source.topics.values())
        asked = undecided_topics(route, source, destination, written)
        if asked:
            ends = open_clusters[route.source], open_clusters[route.destination]
            known = clusters[route.destination]
            assert isinstance(known, ObservedCluster)
            clusters[route.destination] = await _with_grounds(known, route, *ends, asked)
    return World(clusters=clusters)


async def _with_grounds(
    known: ObservedCluster, route: RouteSpec, source: Cluster, destination: Cluster, asked: Written
) -> ObservedCluster:
    try:
        async with asyncio.timeout(FIND_TIMEOUT_MS / 1000):
            grounds = await _find_grounds(known, route, source, destination, asked)
    except (BrokerError, TimeoutError) as error:
        told = str(error) or f"no answer within {FIND_TIMEOUT_MS} ms"
        problem = f"what it keeps of {route.name!r}: {told}"
        return replace(known, problems=(*known.problems, problem))
    return replace(known, grounds={**known.grounds, route.name: grounds})


async def _find_grounds(
    known: ObservedCluster, route: RouteSpec, source: Cluster, destination: Cluster, asked: Written
) -> Grounds:
    said = grounds_of(read_wishes(known.control).get(route.name, RouteWishes()), known.topics)
    left = undecided(route, asked, said)
    copied = await copied_before(source, destination, left) if left else frozenset()
    return replace(said, copied=copied)


def grounds_of(wishes: RouteWishes, there: Mapping[str, ObservedTopic]) -> Grounds:
    """What is said of a route in the control topic; `there`: topics of the destination."""
    return Grounds(
        taken_over=taken_over(wishes.take_overs, there),
        standing={source.topic for source in wishes.halts},
    )


async def copied_before(source: Cluster, destination: Cluster, written: Written) -> frozenset[str]:
    """Those of which former topics of the same name were copied there, by the ledger. Raises BrokerError."""
    ids = {topic: source.topics[topic].topic_id for topic in written.keys() & source.topics.keys()}
    ledger = await find_ledger(destination, source.cluster_id)
    return frozenset(
        lane.topic
        for lane in ledger.lanes
        if lane.to in written.get(lane.topic, ()) and lane.topic_id not in (None, str(ids.get(lane.topic)))
    )
