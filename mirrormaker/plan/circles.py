"""What only shows once it is known which cluster is which, and what topics there are: circles, as two names
mean one cluster or a topic is there that goes round, and clusters that have one id. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from broker.errors import ErrorCode
from mirrormaker.plan.identities import ClusterIdentity, first_names, twins
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.topology.loops import Circle, circling_topics, find_circles, topic_circles
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, RouteTo, Topology, TransformSpec


def real_names(world: World) -> dict[ClusterName, ClusterName]:
    """For each cluster the first name in the file that stands for the same one."""
    return first_names(world.clusters, _identities_of(world))


def circle_notices(topology: Topology, world: World) -> Iterator[Notice]:
    """Routes that lead from a cluster to itself, and circles of routes, by what the clusters really are."""
    for name, first in real_names(world).items():
        if name != first:
            message = f"is the cluster {first!r} under another name"
            yield Notice(kind=NoticeKind.TWO_NAMES, about=name, message=message)
    found = list(real_circles(topology, _identities_of(world)))
    yield from found
    told = {notice.about for notice in found if notice.kind is NoticeKind.CIRCLE}
    yield from (notice for notice in _topic_circles(topology, world) if notice.about not in told)


def real_circles(topology: Topology, identities: Mapping[ClusterName, ClusterIdentity]) -> Iterator[Notice]:
    """Those alone, as far as it is known what clusters are and whatever topics they have, and routes whose
    provenance cannot tell clusters apart; each is about one of the routes.
    """
    names = first_names(topology.clusters, identities)
    yield from _confusions(topology, names, identities)
    if all(name == first for name, first in names.items()):
        return  # the file itself was checked by names
    for route in topology.routes:
        if route.enabled and names[route.source] == names[route.destination]:
            message = f"{route.source!r} and {route.destination!r} are one cluster: it would copy into itself"
            yield Notice(kind=NoticeKind.ONE_CLUSTER, about=route.name, message=message)
    routes = _real_routes(topology, names)
    for index, circle in find_circles(routes):
        yield from _circle_notice(routes[index], circle)


def circles_of_topics(
    topology: Topology,
    identities: Mapping[ClusterName, ClusterIdentity],
    name: RouteName,
    topics: Collection[str],
) -> dict[str, str]:
    """Those topics of its source that one route would carry in a circle, each with the way."""
    routes = _real_routes(topology, first_names(topology.clusters, identities))
    return {
        topic: notice.message
        for index, route in enumerate(routes)
        if route.name == name
        for topic, circle in circling_topics(routes, index, topics)
        for notice in _circle_notice(route, circle)
    }


def _topic_circles(topology: Topology, world: World) -> Iterator[Notice]:
    """The circles that topics show, which clusters have or get by routes."""
    names = real_names(world)
    topics: dict[ClusterName, dict[str, None]] = {}
    for name, first in names.items():
        if (cluster := world.reached(name)) is not None:
            copied = [
                each.name
                for each in cluster.topics.values()
                if each.error is ErrorCode.NONE and not each.internal
            ]
            topics.setdefault(first, {}).update(dict.fromkeys(copied))
    routes = _real_routes(topology, names)
    for index, circle in topic_circles(routes, topics):
        yield from _circle_notice(routes[index], circle)


def _circle_notice(route: RouteSpec, circle: Circle) -> Iterator[Notice]:
    """Nothing about a circle that provenance cuts."""
    if circle.grows or not route.provenance:
        yield Notice(kind=NoticeKind.CIRCLE, about=route.name, message=circle.message)


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


def _real_routes(topology: Topology, names: Mapping[ClusterName, ClusterName]) -> list[RouteSpec]:
    """Those that are enabled, between the first names; their topics are called as before. Without those that
    lead into the cluster where they begin.
    """
    return [
        replace(
            route,
            source=names[route.source],
            destination=names[route.destination],
            topics=replace(route.topics, name=route.topics.name.replace("{cluster}", route.source)),
            transforms=tuple(_said_of(route.source, each) for each in route.transforms),
        )
        for route in topology.routes
        if route.enabled and names[route.source] != names[route.destination]
    ]


def _said_of(source: ClusterName, transform: TransformSpec) -> TransformSpec:
    """With the name of the source where it stands for it."""
    step = transform.step
    if not isinstance(step, RouteTo):
        return transform
    return replace(transform, step=replace(step, to=step.to.replace("{cluster}", source)))
