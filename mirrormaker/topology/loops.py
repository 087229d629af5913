"""Routes that would carry a topic back to where it came from, found by sending example topics along them.
Pure.

For every include pattern a topic name that it matches is made up and followed from route to route. A name
that comes back to a cluster where it has been, and is taken there again, would circle for ever. One that
keeps its name meets itself: provenance cuts that circle, if every route on it has it. One that is renamed on
its way grows (`b.a.b.a.topic`), and would make new topics without end: nothing allows that. Examples cannot
prove the absence of a loop between exotic patterns, but they find the usual ones: names kept both ways, and
patterns that match everything.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from mirrormaker.topology.model import ClusterName, RouteSpec
from mirrormaker.topology.naming import (
    TOPIC_NAME_SIZE_MAX,
    compile_naming,
    pattern_problem,
    template_problem,
)

_SAMPLE_CHARACTER = "x"
_OTHER_CHARACTER = "o"
_PLACES_MAX = 2000
"""Places that one example is followed to; only meshes without any circle have so many."""


@dataclass(frozen=True, slots=True)
class Circle:
    """How an example topic comes back to the cluster where it started, and is taken again."""

    way: tuple[str, ...]
    topic: str
    renamed: str

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
    for start, index in enumerate(numbers):
        circles = [circle for example in mesh.examples if (circle := mesh.follow(start, example))]
        if circles:
            yield index, next((circle for circle in circles if circle.grows), circles[0])


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
    """Whether its patterns and its template are legal."""
    patterns = (*route.topics.include, *route.topics.exclude)
    return template_problem(route.topics.name) is None and not any(map(pattern_problem, patterns))


def example_of(pattern: str) -> str:
    """A short text that `pattern` is likely to match in full; look-arounds and back references are not
    followed. What needs more than a topic name has room for is cut off, and matched no more.
    """
    return "".join(islice(_characters(_parser.parse(pattern)), TOPIC_NAME_SIZE_MAX + 1))


class _Mesh:
    """The routes by where they start, and the example topics that are sent along them."""

    def __init__(self, routes: Sequence[RouteSpec]) -> None:
        self._routes = routes
        self._namings = [compile_naming(route.source, route.topics) for route in routes]
        self._leaving: dict[str, list[int]] = {}
        for index, route in enumerate(routes):
            self._leaving.setdefault(route.source, []).append(index)
        patterns = dict.fromkeys(pattern for route in routes for pattern in route.topics.include)
        self.examples = list(dict.fromkeys(map(example_of, patterns)))

    def follow(self, start: int, topic: str) -> Circle | None:
        """Send `topic` along every way from the route `start`; how it comes round first, if it does."""
        if not self._namings[start].selects(topic):
            return None
        origin = self._routes[start].source
        places: deque[tuple[int, str, tuple[ClusterName, ...]]] = deque([(start, topic, (origin,))])
        met: set[tuple[ClusterName, str]] = set()
        while places and len(met) < _PLACES_MAX:
            index, name, way = places.popleft()
            arrived, renamed = self._routes[index].destination, self._namings[index].destination_of(name)
            if arrived == origin:
                if self._namings[start].selects(renamed):
                    return Circle(way=(*way, arrived), topic=topic, renamed=renamed)
                continue
            if arrived in way or (arrived, renamed) in met:
                continue
            met.add((arrived, renamed))
            for following in self._leaving.get(arrived, ()):
                if self._namings[following].selects(renamed):
                    leads_back = self._routes[following].destination == origin
                    put = places.appendleft if leads_back else places.append
                    put((following, renamed, (*way, arrived)))
        return None


def _characters(parsed: Any) -> Iterator[str]:
    for operation, argument in parsed:
        yield from _example(operation, argument)


def _example(operation: Any, argument: Any) -> Iterator[str]:
    match operation:
        case _constants.LITERAL:
            yield chr(argument)
        case _constants.ANY:
            yield _SAMPLE_CHARACTER
        case _constants.NOT_LITERAL:
            yield _OTHER_CHARACTER if argument == ord(_SAMPLE_CHARACTER) else _SAMPLE_CHARACTER
        case _constants.IN:
            yield _member(argument)
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            low, high, repeated = argument
            once = list(islice(_characters(repeated), TOPIC_NAME_SIZE_MAX + 1))
            for _ in range(max(low, min(1, high)) if once else 0):
                yield from once
        case _constants.SUBPATTERN:
            yield from _characters(argument[-1])
        case _constants.ATOMIC_GROUP:
            yield from _characters(argument)
        case _constants.BRANCH:
            yield from _characters(argument[1][0])
        case _:
            return


def _member(choices: Any) -> str:
    """A character of a set like `[a-z0-9]`."""
    candidates = (_SAMPLE_CHARACTER, "0", "_", *(chr(code) for code in range(33, 127)))
    negated = bool(choices) and choices[0][0] is _constants.NEGATE
    for candidate in candidates:
        if any(_contains(choice, ord(candidate)) for choice in choices) != negated:
            return candidate
    return _SAMPLE_CHARACTER


def _contains(choice: Any, code: int) -> bool:
    operation, argument = choice
    match operation:
        case _constants.LITERAL:
            return bool(argument == code)
        case _constants.RANGE:
            return bool(argument[0] <= code <= argument[1])
        case _constants.CATEGORY:
            category = {
                _constants.CATEGORY_DIGIT: r"\d",
                _constants.CATEGORY_NOT_DIGIT: r"\D",
                _constants.CATEGORY_SPACE: r"\s",
                _constants.CATEGORY_NOT_SPACE: r"\S",
                _constants.CATEGORY_WORD: r"\w",
                _constants.CATEGORY_NOT_WORD: r"\W",
            }[argument]
            return re.fullmatch(category, chr(code)) is not None
        case _:
            return False
