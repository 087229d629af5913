"""Routes that would carry a topic back to where it came from, found by sending example topics along them.
Pure.

For every include pattern topic names that it matches are made up (`examples`), and names that two patterns
share (`overlaps`), and followed from route to route, under each name that a route gives them: that of the
copy, and those of topics that its steps name. So are topics that there are. A name that comes back to a
cluster where it has been, and is taken there again, would circle for ever. One that keeps its name meets
itself: provenance cuts that circle, if every route on it has it. One that is renamed on its way grows
(`b.a.b.a.topic`), and would make new topics without end: nothing allows that. A name that a step has given
tells less when it comes back as another one, as the step may be for some topics alone: it is followed on,
and grows where it is another one however often it comes round. Examples cannot prove the absence of a loop
between exotic patterns, but they find the usual ones, and topics that there are show the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from mirrormaker.topology.examples import examples_of
from mirrormaker.topology.further_topics import further_topics, may_extend_names, may_go_further, routings
from mirrormaker.topology.model import ClusterName, RouteSpec, TopicSelection
from mirrormaker.topology.naming import (
    TopicNaming,
    compile_naming,
    is_legal_topic,
    pattern_problem,
    target_problem,
    template_problem,
)
from mirrormaker.topology.overlaps import shared_names

_PLACES_MAX = 2000
"""Places that one example is followed to; only meshes without any circle have so many."""
_COPIES_MAX = 100_000
"""Copies that topics that exist are followed to, of all routes together."""
_ROUNDS_MAX = 4
"""How often a name that steps give may come round as another one before it is taken to grow."""


@dataclass(frozen=True, slots=True)
class Circle:
    """How an example topic comes back to the cluster where it started, and is taken again."""

    way: tuple[str, ...]
    topic: str
    renamed: str
    routes: tuple[int, ...]
    """The numbers of the routes on it."""

    @property
    def grows(self) -> bool:
        """Whether it comes back under another name, so that names grow without end."""
        return self.topic != self.renamed

    @property
    def message(self) -> str:
        """One line for people."""
        taken = "and taken again" if self.grows else "and taken again: 'provenance' would cut it"
        way = " -> ".join(self.way)
        return f"topic {self.topic!r} would go in circles: {way}, where it is {self.renamed!r} {taken}"


def find_circles(routes: Sequence[RouteSpec]) -> Iterator[tuple[int, Circle]]:
    """For each route on a circle: its number and the circle; one on which names grow comes before others.
    Routes whose patterns or template are not legal are on none.
    """
    numbers = [number for number, route in enumerate(routes) if is_compilable(route)]
    mesh = _Mesh([routes[number] for number in numbers])
    examples = mesh.examples()
    for start, circle in mesh.circles(dict.fromkeys((route.source for route in routes), examples)):
        yield numbers[start], circle


def detours(
    routes: Sequence[RouteSpec], straight: Mapping[int, Collection[TopicSelection]]
) -> Iterator[tuple[int, Circle]]:
    """For each route whose number `straight` has, with what the routes take that lead straight back: its
    number, and a circle of a topic that none of those takes, if there is one. All patterns and templates are
    legal.
    """
    mesh = _Mesh(routes)
    examples = mesh.examples() if straight else []
    for start, selections in straight.items():
        back = [compile_naming(routes[start].destination, selection) for selection in selections]
        topics = [topic for topic in mesh.selected(start, examples) if not _any_selects(back, topic)]
        circle = mesh.circle_of(start, topics)
        if circle is not None:
            yield start, circle


def _any_selects(namings: Iterable[TopicNaming], topic: str) -> bool:
    return any(naming.selects(topic) for naming in namings)


def topic_circles(
    routes: Sequence[RouteSpec], topics: Mapping[ClusterName, Collection[str]]
) -> Iterator[tuple[int, Circle]]:
    """The same for topics that clusters have, and for their copies; all patterns and templates are legal."""
    mesh = _Mesh(routes)
    yield from mesh.circles(mesh.with_copies(topics))


def circling_topics(
    routes: Sequence[RouteSpec], start: int, topics: Collection[str]
) -> Iterator[tuple[str, Circle]]:
    """Those topics of its source that the route number `start` would carry in a circle."""
    mesh = _Mesh(routes)
    for topic in mesh.selected(start, topics):
        if circle := mesh.circle_of(start, [topic]):
            yield topic, circle


def with_provenance(routes: tuple[RouteSpec, ...]) -> tuple[RouteSpec, ...]:
    """The routes, with `provenance` decided where it was left open: on where a route is on a circle that it
    cuts.
    """
    circling = {index for index, circle in find_circles(routes) if not circle.grows}
    return tuple(
        route if route.provenance is not None else replace(route, provenance=index in circling)
        for index, route in enumerate(routes)
    )


def is_compilable(route: RouteSpec) -> bool:
    """Whether its patterns and its templates are legal, those of its steps too."""
    steps = routings(route)
    patterns = chain(route.topics.include, route.topics.exclude, *(step.topics for step in steps))
    return (
        template_problem(route.topics.name) is None
        and not any(target_problem(step.to) for step in steps)
        and not any(map(pattern_problem, patterns))
    )


class _Arrival(NamedTuple):
    """A topic at the end of a way."""

    name: str
    way: tuple[ClusterName, ...]
    routes: tuple[int, ...]
    by_step: bool
    """Whether a step has given it a name on the way."""


class _Mesh:
    """The routes by where they start, along which topics are sent. Patterns are compiled as they are used."""

    def __init__(self, routes: Sequence[RouteSpec]) -> None:
        self._routes = routes
        self._namings: dict[int, TopicNaming] = {}
        self._leaving: dict[ClusterName, dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]]] = {}
        self._arriving: dict[ClusterName, set[ClusterName]] = {}
        self._may_grow = any(route.topics.name != "{topic}" or may_extend_names(route) for route in routes)
        self._ways_back: dict[ClusterName, set[ClusterName]] = {}
        for index, route in enumerate(routes):
            alike = self._leaving.setdefault(route.source, {})
            alike.setdefault((route.topics.include, route.topics.exclude), []).append(index)
            self._arriving.setdefault(route.destination, set()).add(route.source)

    def examples(self) -> list[str]:
        """Legal names that are made up of the patterns of routes from which a way leads back, and those that
        their steps give to these.
        """
        circling = {
            index: route
            for index, route in enumerate(self._routes)
            if route.destination in self._leading_to(route.source)
        }
        taken = [route.topics.include for route in circling.values()]
        stepped = [step.topics for route in circling.values() for step in routings(route)]
        patterns = list(dict.fromkeys(chain(*taken, *stepped)))
        made_up = dict.fromkeys(example for pattern in patterns for example in examples_of(pattern))
        made_up |= dict.fromkeys(shared_names(patterns))
        legal = dict.fromkeys(filter(is_legal_topic, made_up))
        further = [
            name
            for index, route in circling.items()
            if may_go_further(route)
            for topic in self.selected(index, legal)
            for name in self._names(index, topic)[1:]
        ]
        return list(legal | dict.fromkeys(further))

    def with_copies(
        self, topics: Mapping[ClusterName, Collection[str]]
    ) -> dict[ClusterName, dict[str, None]]:
        """The topics of each cluster, and what routes make of them and of that."""
        known = {cluster: dict.fromkeys(names) for cluster, names in topics.items()}
        places = deque((cluster, name) for cluster, names in topics.items() for name in names)
        copies = 0
        while places and copies < _COPIES_MAX:
            cluster, name = places.popleft()
            for index in self._takers(cluster, name):
                arrived = self._routes[index].destination
                there = known.setdefault(arrived, {})
                for renamed in self._names(index, name):
                    if renamed not in there and is_legal_topic(renamed):
                        there[renamed] = None
                        places.append((arrived, renamed))
                        copies += 1
        return known

    def circles(self, topics: Mapping[ClusterName, Collection[str]]) -> Iterator[tuple[int, Circle]]:
        """For each route that leads in a circle with the topics of its source, or is on one of others: its
        number and that.
        """
        found: dict[int, Circle] = {}
        for cluster, leaving in self._leaving.items():
            for alike in leaving.values():
                selected = self.selected(alike[0], topics.get(cluster, ()))
                circles = ((start, self.circle_of(start, selected)) for start in alike)
                found |= {start: circle for start, circle in circles if circle is not None}
        for circle in [each for each in found.values() if not each.grows]:
            found = dict.fromkeys(circle.routes, circle) | found
        yield from sorted(found.items(), key=itemgetter(0))

    def circle_of(self, start: int, topics: Collection[str]) -> Circle | None:
        """The first circle of the route `start` on which names grow, or else the first one; it takes all of
        the topics.
        """
        route, first = self._routes[start], None
        if route.destination not in self._leading_to(route.source):
            return None
        for topic in topics:
            here = _Arrival(topic, (route.source,), (), by_step=False)
            for arrival in self._arrivals(start, here):
                circle = self._follow(topic, arrival)
                if circle is not None and (circle.grows or not self._may_grow):
                    return circle
                first = first or circle
        return first

    def selected(self, start: int, topics: Collection[str]) -> list[str]:
        """Those of many topics that a route takes, in their order."""
        naming = self._naming(start)
        matched = {topic for pattern in naming.include for topic in filter(pattern.fullmatch, topics)}
        return [topic for topic in topics if topic in matched and naming.selects(topic)]

    def _follow(self, topic: str, first: _Arrival) -> Circle | None:
        """Send a topic along every way from where a route has brought it; how it comes round first, if it
        does.
        """
        origin, start = first.way[0], self._naming(first.routes[0])
        leading_back = self._leading_to(origin)
        places = deque([first])
        met: set[tuple[ClusterName, str]] = set()
        while places and len(met) < _PLACES_MAX:
            place = places.popleft()
            name, way, by_step = place.name, place.way, place.by_step
            arrived, been = way[-1], way.count(way[-1]) - 1
            is_round = name == topic or not by_step or been == _ROUNDS_MAX
            if arrived == origin and is_round and start.selects(name):
                return Circle(way=way, topic=topic, renamed=name, routes=place.routes)
            is_far = been >= (_ROUNDS_MAX if by_step else 1)
            if is_far or arrived not in leading_back or (arrived, name) in met:
                continue
            met.add((arrived, name))
            for following in self._takers(arrived, name):
                leads_back = self._routes[following].destination == origin
                put = places.appendleft if leads_back else places.append
                for arrival in self._arrivals(following, place):
                    put(arrival)
        return None

    def _arrivals(self, index: int, place: _Arrival) -> Iterator[_Arrival]:
        """What becomes of a topic that a route takes from there."""
        way, routes = (*place.way, self._routes[index].destination), (*place.routes, index)
        copy, *further = self._names(index, place.name)
        yield _Arrival(copy, way, routes, place.by_step)
        for name in further:
            yield _Arrival(name, way, routes, by_step=True)

    def _names(self, index: int, topic: str) -> tuple[str, ...]:
        """What a route calls a topic: its copy, and those that steps may send its records to, as far as that
        is legal.
        """
        route, naming = self._routes[index], self._naming(index)
        further = further_topics(route, naming, topic) if may_go_further(route) else ()
        return (naming.destination_of(topic), *filter(is_legal_topic, further))

    def _takers(self, cluster: ClusterName, topic: str) -> Iterator[int]:
        """The routes that take a topic of a cluster; those that take the same topics are asked once."""
        for alike in self._leaving.get(cluster, {}).values():
            if self._naming(alike[0]).selects(topic):
                yield from alike

    def _naming(self, index: int) -> TopicNaming:
        if index not in self._namings:
            route = self._routes[index]
            self._namings[index] = compile_naming(route.source, route.topics)
        return self._namings[index]

    def _leading_to(self, cluster: ClusterName) -> set[ClusterName]:
        """The clusters from which ways lead to this one, and itself."""
        if cluster not in self._ways_back:
            met, waiting = {cluster}, [cluster]
            while waiting:
                further = self._arriving.get(waiting.pop(), set()) - met
                met |= further
                waiting += further
            self._ways_back[cluster] = met
        return self._ways_back[cluster]
