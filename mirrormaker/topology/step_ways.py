"""Topics of `route` steps in meshes, of which some clusters get less than others. Pure.

Which way records take is planned by topic and by the cluster where they are born, and does not know of steps
(`ways`). A record that a step sends to another topic of a cluster does not go on from there to one that has
what is born at its origin by a shorter way: there it is what the routes of that way make of it. Where these
have the same step it is in the same topic; else the topic lacks it, though nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrormaker.topology.examples import examples_of
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.further_topics import is_for
from mirrormaker.topology.loops import is_compilable
from mirrormaker.topology.model import ClusterName, RouteSpec, RouteTo, TransformSpec
from mirrormaker.topology.naming import compile_naming, is_legal_topic
from mirrormaker.topology.overlaps import shared_names
from mirrormaker.topology.ways import Ways, ways_of


def diverging_steps(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """Steps whose topic comes on without some of the records, each with an example."""
    meshed = {index: route for index, route in enumerate(routes) if ways_of([route]) and is_compilable(route)}
    mesh = _Mesh(list(meshed.values()))
    for index, route in meshed.items():
        for place, transform in enumerate(route.transforms):
            if isinstance(transform.step, RouteTo) and (message := mesh.find_divergence(route, transform)):
                yield Finding(path=f"routes[{index}].transforms[{place}].route", message=message)


class _Mesh:
    """Routes with provenance that keep names."""

    def __init__(self, routes: Sequence[RouteSpec]) -> None:
        self._between: defaultdict[tuple[ClusterName, ClusterName], list[RouteSpec]] = defaultdict(list)
        for route in routes:
            self._between[route.source, route.destination].append(route)
        self._ways = Ways(ways_of(routes))

    def find_divergence(self, route: RouteSpec, transform: TransformSpec) -> str | None:
        """The first one that an example shows."""
        for topic in _examples(route, transform):
            name = _target(route, transform, topic)
            if name is None or name == topic:
                continue
            for origin in sorted(self._ways.clusters):
                travelled = self._ways.path(topic, origin, route.destination)
                if travelled is None or travelled[-2:] != (route.source, route.destination):
                    continue
                for cluster in sorted(self._ways.clusters.difference(travelled)):
                    if self._misses(topic, name, transform, travelled, cluster):
                        return (
                            f"{name!r} goes on from {route.destination!r} to {cluster!r} without what the "
                            f"step sends there of {topic!r} of {origin!r}: {cluster!r} has that by another "
                            "way, where no route has the same step"
                        )
        return None

    def _misses(
        self,
        topic: str,
        name: str,
        transform: TransformSpec,
        travelled: tuple[ClusterName, ...],
        cluster: ClusterName,
    ) -> bool:
        """Whether `name` comes to `cluster` from where the way ends that records of `topic` have travelled,
        and they do not, nor are they sent there by the routes that bring them.
        """
        origin, here = travelled[0], travelled[-1]
        if self._ways.path(name, here, cluster) is None or self._ways.path(name, origin, here) != travelled:
            return False
        onwards = self._ways.path(name, origin, cluster)
        if onwards is None or onwards[: len(travelled)] == travelled:
            return False
        other_way = self._ways.path(topic, origin, cluster) or ()
        return not any(self._sends(hop, topic, name, transform) for hop in pairwise(other_way))

    def _sends(
        self, hop: tuple[ClusterName, ClusterName], topic: str, name: str, transform: TransformSpec
    ) -> bool:
        """Whether a route between these clusters has the same step for the topic."""
        return any(
            isinstance(each.step, RouteTo)
            and isinstance(transform.step, RouteTo)
            and each.step.when == transform.step.when
            and _target(route, each, topic) == name
            for route in self._between[hop]
            for each in route.transforms
        )


def _examples(route: RouteSpec, transform: TransformSpec) -> Iterator[str]:
    """Topics that the step is for."""
    naming = compile_naming(route.source, route.topics)
    patterns = list(dict.fromkeys((*transform.topics, *route.topics.include)))
    made_up = dict.fromkeys(each for pattern in patterns for each in examples_of(pattern))
    made_up |= dict.fromkeys(shared_names(patterns))
    return (
        each
        for each in made_up
        if is_legal_topic(each) and naming.selects(each) and is_for(transform.topics, each)
    )


def _target(route: RouteSpec, transform: TransformSpec, topic: str) -> str | None:
    """The topic that a step sends records of `topic` to; None where it is for others."""
    naming = compile_naming(route.source, route.topics)
    step = transform.step
    if not isinstance(step, RouteTo) or not naming.selects(topic) or not is_for(transform.topics, topic):
        return None
    return step.to.format(cluster=route.source, topic=topic)
