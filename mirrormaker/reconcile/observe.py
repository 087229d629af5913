"""Looks at every cluster of a topology once: what it is, has and allows, as `plan/world` says it.

First all clusters tell which topics they have; then it is known which topics any route reads or writes, and
each cluster is asked about those. Then sources tell of positions that routes will bring along which have
another membership than before, and destinations about what is written of partitions without a position, and
about topics that hold records which are not seen to be of their route. A cluster that does not answer is part
of the picture, and so is what one does not tell (rights may be missing, or a version too old): nothing here
fails because of one cluster.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError
from mirrormaker.clusters import open_cluster
from mirrormaker.plan.topics import written_by_topic
from mirrormaker.plan.world import ObservedCluster, UnreachableCluster, World
from mirrormaker.reconcile.cluster_visit import ClusterVisit
from mirrormaker.reconcile.control import RouteWishes, read_wishes
from mirrormaker.reconcile.forgotten_positions import with_forgotten_positions
from mirrormaker.reconcile.former_group import former_positions
from mirrormaker.reconcile.grounds import with_grounds
from mirrormaker.reconcile.kept_positions import (
    KeptPosition,
    KeptPositions,
    current_positions,
    moved_topics,
)
from mirrormaker.topology.model import ClusterName, ClusterSpec, Delivery, RouteName, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

OBSERVE_TIMEOUT_MS = 60_000
"""How long one cluster may take to tell everything."""
OPEN_AT_ONCE = 64


async def observe(topology: Topology, clock: Clock) -> World:
    """The world that `topology` is about."""
    gate = asyncio.Semaphore(OPEN_AT_ONCE)
    specs = list(topology.clusters.values())
    exact = {
        route.name: route.destination
        for route in topology.routes
        if route.enabled and route.delivery is Delivery.EXACTLY_ONCE
    }
    kept: dict[RouteName, Iterable[KeptPosition]] = {}
    async with AsyncExitStack() as stack:

        async def begin(spec: ClusterSpec) -> ClusterVisit | UnreachableCluster:
            try:
                async with gate, asyncio.timeout(OBSERVE_TIMEOUT_MS / 1000):
                    cluster = await stack.enter_async_context(open_cluster(spec))
                    return await ClusterVisit.begin(cluster, spec, clock)
            except (BrokerError, TimeoutError) as error:
                return _unreachable(spec, error)

        async def finish(visit: ClusterVisit) -> ObservedCluster | UnreachableCluster:
            try:
                async with asyncio.timeout(OBSERVE_TIMEOUT_MS / 1000):
                    if visit.spec.name in exact.values():
                        here = await visit.kept_positions()
                        kept.update({name: here[name] for name in here if exact.get(name) == visit.spec.name})
                    return await visit.finish(topology, wanted[visit.spec.name], ids)
            except (BrokerError, TimeoutError) as error:
                return _unreachable(visit.spec, error)

        begun = await asyncio.gather(*map(begin, specs))
        visits = {visit.spec.name: visit for visit in begun if isinstance(visit, ClusterVisit)}
        wanted = _wanted_topics(topology, visits)
        ids = {name: visit.cluster.cluster_id for name, visit in visits.items()}
        finished = await asyncio.gather(*map(finish, visits.values()))
        failed = [visit for visit in begun if isinstance(visit, UnreachableCluster)]
        found = {each.name: with_kept_positions(each, topology.routes, kept) for each in (*failed, *finished)}
        seen = World(clusters={spec.name: found[spec.name] for spec in specs})
        open_clusters = {name: visit.cluster for name, visit in visits.items()}
        seen = await _with_former_positions(topology, seen, open_clusters)
        seen = await with_forgotten_positions(topology, seen, open_clusters)
        return await with_grounds(topology, seen, open_clusters)


def with_kept_positions(
    cluster: ObservedCluster | UnreachableCluster, routes: Iterable[RouteSpec], kept: KeptPositions
) -> ObservedCluster | UnreachableCluster:
    """Positions that destinations keep count before those that the source's group has; these count where
    there are none, as of partitions that nothing has come to since their route became exactly-once.
    """
    if isinstance(cluster, UnreachableCluster):
        return cluster
    positions, moved = dict(cluster.positions), dict(cluster.moved)
    for route in routes:
        if route.name not in positions or route.name not in kept:
            continue
        naming, known = compile_naming(route.source, route.topics), tuple(kept[route.name])
        there, here = positions[route.name], current_positions(known, cluster, naming)
        positions[route.name] = {
            topic: {**there.get(topic, {}), **here.get(topic, {})} for topic in there.keys() | here.keys()
        }
        moved[route.name] = moved_topics(known, cluster.cluster_id, naming, moved.get(route.name, {}))
    return replace(cluster, positions=positions, moved=moved)


async def _with_former_positions(
    topology: Topology, world: World, open_clusters: Mapping[ClusterName, Cluster]
) -> World:
    """The world with positions that routes will bring along, as they have another membership than before."""
    clusters = dict(world.clusters)
    for route in topology.routes:
        source, destination = clusters[route.source], world.reached(route.destination)
        if not route.enabled or destination is None or isinstance(source, UnreachableCluster):
            continue
        said = read_wishes(destination.control).get(route.name, RouteWishes()).positions
        spec, here = topology.clusters[route.source], source.positions.get(route.name, {})
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_MS / 1000):
                found = await former_positions(route, spec, open_clusters[route.source], said, here)
        except (BrokerError, TimeoutError) as error:
            problem = f"positions of {route.name!r}: {error or 'no answer in time'}"
            clusters[route.source] = replace(source, problems=(*source.problems, problem))
            continue
        positions = {topic: dict(numbers) for topic, numbers in here.items()}
        for partition, offset in found.items():
            positions.setdefault(partition.topic, {})[partition.partition] = offset
        told = {**source.positions, route.name: positions}
        clusters[route.source] = replace(source, positions=told)
    return World(clusters=clusters)


def _wanted_topics(
    topology: Topology, visits: Mapping[ClusterName, ClusterVisit]
) -> Mapping[ClusterName, Collection[str]]:
    """Topics that routes read or write, or that the file asks for, by cluster."""
    wanted: dict[ClusterName, set[str]] = defaultdict(set)
    for spec in topology.clusters.values():
        wanted[spec.name] |= spec.topics.keys()
    for route in topology.routes:
        source = visits.get(route.source)
        if source is not None and route.enabled:
            naming = compile_naming(route.source, route.topics)
            written = written_by_topic(route, naming, source.topics.values())
            wanted[route.source] |= written.keys()
            wanted[route.destination] |= frozenset().union(*written.values())
    return wanted


def _unreachable(spec: ClusterSpec, error: Exception) -> UnreachableCluster:
    told = str(error) or f"cluster {spec.name!r}: no answer within {OBSERVE_TIMEOUT_MS} ms"
    return UnreachableCluster(name=spec.name, problem=told)
