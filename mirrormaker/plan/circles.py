"""Circles that only show once it is known which cluster is which: one cluster under two names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.topology.loops import find_circles
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology


def first_names(world: World) -> dict[ClusterName, ClusterName]:
    """For each cluster the first name in the file that stands for the same one, by its real id."""
    return _first_names(world.clusters, _ids_of(world))


def circle_notices(topology: Topology, world: World) -> Iterator[Notice]:
    """Routes that lead from a cluster to itself, and circles of routes, by what the clusters really are."""
    for name, first in first_names(world).items():
        if name != first:
            message = f"is the cluster {first!r} under another name"
            yield Notice(kind=NoticeKind.TWO_NAMES, about=name, message=message)
    yield from real_circles(topology, _ids_of(world))


def real_circles(topology: Topology, ids: Mapping[ClusterName, str]) -> Iterator[Notice]:
    """Those alone, as far as the ids of clusters are known; each is about one of the routes."""
    names = _first_names(topology.clusters, ids)
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


def _ids_of(world: World) -> dict[ClusterName, str]:
    """Those that are known."""
    reached = {name: world.reached(name) for name in world.clusters}
    return {
        name: cluster.cluster_id
        for name, cluster in reached.items()
        if cluster is not None and cluster.cluster_id is not None
    }


def _first_names(
    clusters: Iterable[ClusterName], ids: Mapping[ClusterName, str]
) -> dict[ClusterName, ClusterName]:
    first: dict[str, ClusterName] = {}
    return {name: first.setdefault(ids[name], name) if name in ids else name for name in clusters}


def _really(route: RouteSpec, names: Mapping[ClusterName, ClusterName]) -> RouteSpec:
    """The route between the first names; its topics are called as before."""
    template = route.topics.name.replace("{cluster}", route.source)
    return replace(
        route,
        source=names[route.source],
        destination=names[route.destination],
        topics=replace(route.topics, name=template),
    )
