"""Routes that would carry a topic back to where it came from, found by sending example topics along them.
Pure.

For every include pattern a topic name that it matches is made up and followed from route to route. A name
that comes back to a cluster where it has been, and is taken there again, would circle for ever: with names
kept it meets itself, with prefixes it grows (`b.a.b.a.topic`). Examples cannot prove the absence of a loop
between exotic patterns, but they find the usual ones: names kept both ways, and patterns that match
everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from mirrormaker.topology.model import ClusterName, RouteSpec
from mirrormaker.topology.naming import TOPIC_NAME_SIZE_MAX, TopicNaming, compile_naming

_SAMPLE_CHARACTER = "x"
_OTHER_CHARACTER = "o"


def find_echoes(routes: Sequence[RouteSpec]) -> Iterator[tuple[int, str]]:
    """For each route that starts a circle: its number, and how an example topic goes round."""
    namings = [compile_naming(route.source, route.topics) for route in routes]
    for index, route in enumerate(routes):
        for pattern in route.topics.include:
            example = example_of(pattern)
            if namings[index].selects(example):
                circle = _follow(routes, namings, index, example)
                if circle is not None:
                    yield index, circle
                    break


def example_of(pattern: str) -> str:
    """A short text that `pattern` is likely to match in full; look-arounds and back references are not
    followed. What needs more than a topic name has room for is cut off, and matched no more.
    """
    return "".join(islice(_characters(_parser.parse(pattern)), TOPIC_NAME_SIZE_MAX + 1))


def _follow(
    routes: Sequence[RouteSpec], namings: Sequence[TopicNaming], start: int, topic: str
) -> str | None:
    """Send `topic` along every chain of routes from `start`; how it comes round, or None when it never
    does.
    """
    origin = routes[start].source
    paths: list[tuple[int, str, tuple[ClusterName, ...]]] = [(start, topic, (origin,))]
    while paths:
        index, name, visited = paths.pop()
        arrived, renamed = routes[index].destination, namings[index].destination_of(name)
        if arrived == origin:
            if namings[start].selects(renamed):
                way = " -> ".join((*visited, arrived))
                return f"topic {topic!r} would go in circles: {way}, where it is {renamed!r} and taken again"
            continue
        if arrived in visited:
            continue
        paths += [
            (following, renamed, (*visited, arrived))
            for following, route in enumerate(routes)
            if route.source == arrived and namings[following].selects(renamed)
        ]
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
            for _ in range(max(low, min(1, high))):
                yield from _characters(repeated)
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
