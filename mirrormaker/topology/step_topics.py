"""Topics that steps of a route are for, of which the route takes none. Pure.

A filter or transform that is for no topic is never done, and what it was to mask crosses as it is. Where
patterns cannot have a name in common, which is told by how names begin that they match (`openings`), that is
wrong; where no topic that there is matches, it is most probably not meant.

What `defaults` say of steps is for many routes: of routes with the same list it is enough that one takes such
a topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loops import is_compilable
from mirrormaker.topology.model import (
    ClusterName,
    FilterSpec,
    RouteSpec,
    StartAtOffsets,
    TransformSpec,
)
from mirrormaker.topology.naming import TopicNaming, compile_naming, pattern_problem
from mirrormaker.topology.openings import openings_of

TopicsAt = Callable[[ClusterName], Collection[str] | None]
"""The topics that a cluster lets see; None where it is not known."""
_MEANT = "topics are meant by their names at the source"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A pattern of a step, and what the routes take that say it."""

    path: str
    pattern: re.Pattern[str]
    namings: Sequence[TopicNaming]

    @property
    def may_match(self) -> bool:
        """Whether one of the routes could take a topic that it is for."""
        return any(_may_share(naming, self.pattern) for naming in self.namings)


def check_step_topics(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """Patterns of steps that surely match no topic of their route."""
    for said in _said(routes):
        if not said.may_match:
            message = f"{said.pattern.pattern!r} matches no topic that the route takes: {_MEANT}"
            yield Finding(path=said.path, message=message)


def unmatched_topics(routes: Sequence[RouteSpec], topics_at: TopicsAt) -> Iterator[Finding]:
    """Patterns of steps that match no topic of those that are there and taken, if there are any, and topics
    that a route is to start at and its source does not have. All patterns are legal.
    """
    for said in _said(routes):
        there = [(naming, topics_at(ClusterName(naming.cluster))) for naming in said.namings]
        if any(topics is None for _, topics in there):
            continue
        taken = [topic for naming, topics in there for topic in topics or () if naming.selects(topic)]
        if taken and not any(map(said.pattern.fullmatch, taken)):
            message = f"{said.pattern.pattern!r} matches no topic that the route takes so far: {_MEANT}"
            yield Finding(path=said.path, message=message)
    for index, route in enumerate(routes):
        seen = topics_at(route.source)
        if isinstance(route.start, StartAtOffsets) and seen is not None:
            for topic in sorted(route.start.offsets.keys() - set(seen)):
                message = f"there is no such topic at {route.source!r}"
                yield Finding(path=f"routes[{index}].start.offsets.{topic}", message=message)


def _said(routes: Sequence[RouteSpec]) -> Iterator[_Said]:
    """All that are legal, those of one list once, where it stands first."""
    for key, lists in (
        ("filters", [route.filters for route in routes]),
        ("transforms", [route.transforms for route in routes]),
    ):
        yield from _said_in(key, lists, routes)


def _said_in(
    key: str, lists: Sequence[Sequence[FilterSpec | TransformSpec]], routes: Sequence[RouteSpec]
) -> Iterator[_Said]:
    for index, steps in enumerate(lists):
        if not any(step.topics for step in steps) or steps in lists[:index]:
            continue
        alike = [route for route, others in zip(routes, lists, strict=True) if others == steps]
        if not all(map(is_compilable, alike)):
            continue
        namings = [compile_naming(route.source, route.topics) for route in alike]
        for number, step in enumerate(steps):
            for place, pattern in enumerate(step.topics):
                if pattern_problem(pattern) is None:
                    path = f"routes[{index}].{key}[{number}].topics[{place}]"
                    yield _Said(path=path, pattern=re.compile(pattern), namings=namings)


def _may_share(naming: TopicNaming, pattern: re.Pattern[str]) -> bool:
    """Whether a name could match both: names that either says one by one are tried."""
    taken = [opening for each in naming.include for opening in openings_of(each.pattern)]
    asked = openings_of(pattern.pattern)
    names = {opening.text for opening in (*taken, *asked) if opening.is_whole}
    if any(naming.selects(name) and pattern.fullmatch(name) for name in names):
        return True
    open_ends = [opening for opening in asked if not opening.is_whole]
    return any(one.may_be(other) for one in taken if not one.is_whole for other in open_ends)
