"""Circles that only show once it is known which cluster is which: one cluster under two names. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.topology.loops import find_circles
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology


def first_names(world: World) -> dict[ClusterName, ClusterName]:
    """For each cluster the first name in the file that stands for the same one, by its real id."""
    first: dict[str, ClusterName] = {}
    names: dict[ClusterName, ClusterName] = {}
    for name in world.clusters:
        observed = world.reached(name)
        cluster_id = observed.cluster_id if observed is not None else None
        names[name] = name if cluster_id is None else first.setdefault(cluster_id, name)
    return names


def circle_notices(topology: Topology, world: World) -> Iterator[Notice]:
    """Routes that lead from a cluster to itself, and circles of routes, by what the clusters really are."""
    names = first_names(world)
    renamed = {name: first for name, first in names.items() if name != first}
    for name, first in renamed.items():
        message = f"is the cluster {first!r} under another name"
        yield Notice(kind=NoticeKind.TWO_NAMES, about=name, message=message)
    enabled = [route for route in topology.routes if route.enabled]
    if not renamed:
        return  # the file itself was checked by names
    real = []
    for route in enabled:
        if names[route.source] == names[route.destination]:
            message = f"{route.source!r} and {route.destination!r} are one cluster: it would copy into itself"
            yield Notice(kind=NoticeKind.ONE_CLUSTER, about=route.name, message=message)
        else:
            real.append(_really(route, names))
    for index, circle in find_circles(real):
        if circle.grows or not real[index].provenance:
            yield Notice(kind=NoticeKind.CIRCLE, about=real[index].name, message=circle.message)


def _really(route: RouteSpec, names: Mapping[ClusterName, ClusterName]) -> RouteSpec:
    """The route between the first names; its topics are called as before."""
    template = route.topics.name.replace("{cluster}", route.source)
    return replace(
        route,
        source=names[route.source],
        destination=names[route.destination],
        topics=replace(route.topics, name=template),
    )
