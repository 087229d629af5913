"""Which way records take through routes that keep names, where there are several. Pure.

Where every cluster mirrors to every other, a record would come to a cluster from its origin, and once more
from each cluster that has it. So for every topic, and every cluster where records are born, the routes with
provenance make one tree: the shortest way to each cluster, among equally short ones the one whose clusters
come first by name. A route carries what comes down its tree, and leaves the rest to others. Everybody who
has the same file finds the same trees. Routes that are not enabled count: what they are to carry waits for
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirrormaker.topology.model import ClusterName, RouteSpec, TopicSelection
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


class Ways:
    """The trees, worked out topic by topic as they are asked for."""

    def __init__(self, ways: Iterable[Way] = ()) -> None:
        """Patterns must be legal."""
        self._ways = [(way, compile_naming(way.source, way.topics)) for way in ways]
        self._edges: dict[str, Mapping[ClusterName, list[ClusterName]]] = {}
        self._trees: dict[tuple[str, ClusterName], Mapping[ClusterName, tuple[ClusterName, ...]]] = {}

    @property
    def clusters(self) -> frozenset[ClusterName]:
        """All that lie on a way."""
        return frozenset(name for way, _ in self._ways for name in (way.source, way.destination))

    def path(self, topic: str, origin: ClusterName, to: ClusterName) -> tuple[ClusterName, ...] | None:
        """The clusters through which records of `topic` that were born at `origin` come to `to`, with both
        of them; None where no way leads there.
        """
        tree = self._trees.get((topic, origin))
        if tree is None:
            tree = self._trees[topic, origin] = _grow(self._edges_of(topic), origin)
        return tree.get(to)

    def _edges_of(self, topic: str) -> Mapping[ClusterName, list[ClusterName]]:
        edges = self._edges.get(topic)
        if edges is None:
            if len(self._edges) >= _TOPICS_KEPT:
                self._edges.clear()
                self._trees.clear()
            edges = self._edges[topic] = self._find_edges(topic)
        return edges

    def _find_edges(self, topic: str) -> Mapping[ClusterName, list[ClusterName]]:
        found: dict[ClusterName, set[ClusterName]] = {}
        for way, naming in self._ways:
            if naming.selects(topic):
                found.setdefault(way.source, set()).add(way.destination)
        return {source: sorted(destinations) for source, destinations in found.items()}


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
