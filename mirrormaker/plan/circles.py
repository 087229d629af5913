"""What only shows once it is known which cluster is which: circles, as two names mean one cluster, and
clusters that have one id. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mirrormaker.plan.identities import ClusterIdentity, first_names, twins
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.topology.loops import find_circles
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology


def real_names(world: World) -> dict[ClusterName, ClusterName]:
    """For each cluster the first name in the file that stands for the same one."""
    return first_names(world.clusters, _identities_of(world))


def circle_notices(topology: Topology, world: World) -> Iterator[Notice]:
    """Routes that lead from a cluster to itself, and circles of routes, by what the clusters really are."""
    for name, first in real_names(world).items():
        if name != first:
            message = f"is the cluster {first!r} under another name"
            yield Notice(kind=NoticeKind.TWO_NAMES, about=name, message=message)
    yield from real_circles(topology, _identities_of(world))


def real_circles(topology: Topology, identities: Mapping[ClusterName, ClusterIdentity]) -> Iterator[Notice]:
    """Those alone, as far as it is known what clusters are, and routes whose provenance cannot tell clusters
    apart; each is about one of the routes.
    """
    names = first_names(topology.clusters, identities)
    yield from _confusions(topology, names, identities)
    if all(name == first for name, first in names.items()):
        return  # the file itself was checked by names
    real = []
    for route in topology.routes:
        if not route.enabled:
            continue
        if names[route.source] == names[route.destination]:
            message = f"{route.source!r} and {route.destination!r} are one cluster: it would copy into itself"
            yield Notice(kind=NoticeKind.ONE_CLUSTER, about=route.name, message=message)
        else:
            real.append(_really(route, names))
    for index, circle in find_circles(real):
        if circle.grows or not real[index].provenance:
            yield Notice(kind=NoticeKind.CIRCLE, about=real[index].name, message=circle.message)


def _confusions(
    topology: Topology,
    names: Mapping[ClusterName, ClusterName],
    identities: Mapping[ClusterName, ClusterIdentity],
) -> Iterator[Notice]:
    """Where records have been is known by the ids of clusters: two of one id are taken for each other."""
    alike = twins(names, identities)
    for route in topology.routes:
        ends = [name for name in (route.source, route.destination) if name in alike]
        if route.enabled and route.provenance and ends:
            one, other, cluster_id = ends[0], alike[ends[0]], identities[ends[0]].cluster_id
            message = (
                f"{one!r} and {other!r} are two clusters, and both have the id {cluster_id}: 'provenance'"
                " cannot tell where records have been"
            )
            yield Notice(kind=NoticeKind.SHARED_ID, about=route.name, message=message)


def _identities_of(world: World) -> dict[ClusterName, ClusterIdentity]:
    """Those that are known."""
    reached = {name: world.reached(name) for name in world.clusters}
    return {
        name: ClusterIdentity.of(cluster.cluster_id, cluster.topics.values())
        for name, cluster in reached.items()
        if cluster is not None and cluster.cluster_id is not None
    }


def _really(route: RouteSpec, names: Mapping[ClusterName, ClusterName]) -> RouteSpec:
    """The route between the first names; its topics are called as before."""
    template = route.topics.name.replace("{cluster}", route.source)
    return replace(
        route,
        source=names[route.source],
        destination=names[route.destination],
        topics=replace(route.topics, name=template),
    )
