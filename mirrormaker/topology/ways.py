"""Which way records take through routes that keep names, where there are several. Pure.

Where every cluster mirrors to every other, a record would come to a cluster from its origin, and once more
from each cluster that has it. So for every topic, and every cluster where records are born, the routes with
provenance make one tree: the shortest way to each cluster, among equally short ones the one whose clusters
come first by name. A route carries what comes down its tree, and leaves the rest to others. Everybody who
has the same file finds the same trees. Routes that are not enabled count: what they are to carry waits for
them.

Settings of topics take the same ways, where no route merges. Of the clusters that bring a topic to each other
the one that comes first by name decides: its settings go down the tree of its records, and those of the
others only make topics that are not there yet. Routes that are not enabled do not count for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirrormaker.topology.failover_groups import return_route
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, TopicSelection
from mirrormaker.topology.naming import compile_naming

_TOPICS_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From one cluster to another, for the topics that are selected: they keep their names."""

    source: ClusterName
    destination: ClusterName
    topics: TopicSelection


def ways_of(routes: Iterable[RouteSpec]) -> tuple[Way, ...]:
    """The ways of all routes that have provenance and keep names."""
    return tuple(
        Way(source=route.source, destination=route.destination, topics=route.topics)
        for route in routes
        if route.provenance and route.topics.name.replace("{cluster}", route.source) == "{topic}"
    )


def ways_back(route: RouteSpec, routes: Sequence[RouteSpec]) -> tuple[Way, ...]:
    """By which records of `route` could come back to its source under their names: the route that its
    failover group switches it with, or else those that run beside it.
    """
    if not ways_of([route]):
        return ()
    back = return_route(route, routes)
    if back is not None:
        return ways_of([back])
    ends = route.destination, route.source
    return ways_of(each for each in routes if each.enabled and (each.source, each.destination) == ends)


def settings_ways(routes: Sequence[RouteSpec]) -> dict[RouteName, tuple[Way, ...]]:
    """For each route with provenance that keeps names, the ways that are at work while it is: not that of the
    route that its failover group switches it with.
    """
    at_work = [route for route in routes if route.may_run]
    common = ways_of(at_work)
    found: dict[RouteName, tuple[Way, ...]] = {}
    for route in at_work:
        if ways_of([route]):
            back = return_route(route, at_work)
            others = common if back is None else ways_of(each for each in at_work if each is not back)
            found[route.name] = others
    return found


@dataclass(slots=True)
class _Edges:
    """Where some ways lead from each cluster, and the trees of that, by their origins."""

    following: Mapping[ClusterName, list[ClusterName]]
    trees: dict[ClusterName, Mapping[ClusterName, tuple[ClusterName, ...]]] = field(default_factory=dict)


class Ways:
    """The trees, worked out topic by topic as they are asked for."""

    def __init__(self, ways: Iterable[Way] = ()) -> None:
        """Patterns must be legal."""
        self._ways = [(way, compile_naming(way.source, way.topics)) for way in ways]
        self._edges: dict[str, _Edges] = {}
        self._alike: dict[tuple[int, ...], _Edges] = {}
        """Topics that the same ways take have the same edges and trees; by the numbers of the ways."""

    @property
    def clusters(self) -> frozenset[ClusterName]:
        """All that lie on a way."""
        return frozenset(name for way, _ in self._ways for name in (way.source, way.destination))

    def path(self, topic: str, origin: ClusterName, to: ClusterName) -> tuple[ClusterName, ...] | None:
        """The clusters through which records of `topic` that were born at `origin` come to `to`, with both
        of them; None where no way leads there.
        """
        edges = self._edges_of(topic)
        tree = edges.trees.get(origin)
        if tree is None:
            tree = edges.trees[origin] = _grow(edges.following, origin)
        return tree.get(to)

    def first_cluster(self, topic: str, source: ClusterName, destination: ClusterName) -> ClusterName | None:
        """Of the clusters that bring `topic` to each other, both of these among them, the first by name; None
        where the destination does not bring it back to the source.
        """
        if self.path(topic, destination, source) is None:
            return None
        return min(
            name
            for name in self.clusters
            if self.path(topic, destination, name) and self.path(topic, name, destination)
        )

    def decides(self, topic: str, source: ClusterName, destination: ClusterName) -> bool:
        """Whether settings of `topic` go from one cluster straight to the other."""
        first = self.first_cluster(topic, source, destination)
        return first is None or (self.path(topic, first, destination) or ())[-2:] == (source, destination)

    def _edges_of(self, topic: str) -> _Edges:
        edges = self._edges.get(topic)
        if edges is None:
            if len(self._edges) >= _TOPICS_KEPT:
                self._edges.clear()
                self._alike.clear()
            taking = tuple(number for number, (_, naming) in enumerate(self._ways) if naming.selects(topic))
            edges = self._alike.get(taking)
            if edges is None:
                edges = self._alike[taking] = self._make_edges(taking)
            self._edges[topic] = edges
        return edges

    def _make_edges(self, taking: Iterable[int]) -> _Edges:
        found: dict[ClusterName, set[ClusterName]] = {}
        for number in taking:
            way, _ = self._ways[number]
            found.setdefault(way.source, set()).add(way.destination)
        return _Edges({source: sorted(destinations) for source, destinations in found.items()})


def _grow(
    edges: Mapping[ClusterName, list[ClusterName]], origin: ClusterName
) -> Mapping[ClusterName, tuple[ClusterName, ...]]:
    """The path to every cluster that can be reached from `origin`."""
    paths: dict[ClusterName, tuple[ClusterName, ...]] = {origin: (origin,)}
    ring = [origin]
    while ring:
        reached: dict[ClusterName, tuple[ClusterName, ...]] = {}
        for cluster in sorted(ring, key=paths.__getitem__):
            for following in edges.get(cluster, ()):
                if following not in paths:
                    reached.setdefault(following, (*paths[cluster], following))
        paths |= reached
        ring = list(reached)
    return paths
