"""Topics of the destination that records of a route may go to beside those that they are copied to. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mirrormaker.topology.model import RecordErrorPolicy, RouteSpec, RouteTo
from mirrormaker.topology.naming import TopicNaming

PARKED_SUFFIX = ".dead-letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """A step that sends records elsewhere."""

    to: str
    topics: tuple[str, ...]
    """Patterns of the source's topics that it is for; none: all."""


def routings(route: RouteSpec) -> list[Routing]:
    """All of a route, in their order."""
    return [
        Routing(to=each.step.to, topics=each.topics)
        for each in route.transforms
        if isinstance(each.step, RouteTo)
    ]


def may_go_further(route: RouteSpec) -> bool:
    """Whether there may be such topics."""
    return _parks(route) or any(isinstance(each.step, RouteTo) for each in route.transforms)


def may_extend_names(route: RouteSpec) -> bool:
    """Whether such topics have names that are made of those of the source's topics."""
    return _parks(route) or any("{topic}" in each.to for each in routings(route))


def further_topics(route: RouteSpec, naming: TopicNaming, topic: str) -> tuple[str, ...]:
    """All of these for the source's `topic`."""
    parked = parked_topic(route, naming.destination_of(topic))
    own = naming.destination_of(topic)
    names = (*(() if parked is None else (parked,)), *topics_elsewhere(route, naming, topic))
    return tuple(name for name in names if name != own)


def written_topics(route: RouteSpec, naming: TopicNaming, topic: str) -> frozenset[str]:
    """All topics that records of the source's `topic` may go to."""
    return frozenset((naming.destination_of(topic), *further_topics(route, naming, topic)))


def may_write(route: RouteSpec, naming: TopicNaming, name: str) -> bool:
    """Whether there could be a topic of the source of which records go to the destination's topic `name`."""
    if may_copy(naming, name):
        return True
    main = name.removesuffix(PARKED_SUFFIX)
    if main != name and parked_topic(route, main) == name and may_copy(naming, main):
        return True
    return any(_may_make(naming, each.to, name, each.topics) for each in routings(route))


def may_copy(naming: TopicNaming, name: str) -> bool:
    """Whether there could be a topic of the source of which `name` is the copy."""
    return _may_make(naming, naming.template, name)


def _may_make(naming: TopicNaming, template: str, name: str, patterns: Sequence[str] = ()) -> bool:
    """Whether the template makes this name of a topic that is taken, and that `patterns` are for."""
    before, field, behind = template.replace("{cluster}", naming.cluster).partition("{topic}")
    if not field:
        return before == name
    size = len(name) - len(before) - len(behind)
    if size <= 0 or "{topic}" in behind:
        return size > 0
    topic = name[len(before) : len(before) + size]
    return before + topic + behind == name and naming.selects(topic) and is_for(patterns, topic)


def parked_topic(route: RouteSpec, main: str) -> str | None:
    """The topic for records of those that become `main` and that no step can process; None: they are not kept
    there. Dead letters have none of their own, which would have one, too, and so on: they stay among
    themselves.
    """
    if not _parks(route):
        return None
    return main if main.endswith(PARKED_SUFFIX) else f"{main}{PARKED_SUFFIX}"


def _parks(route: RouteSpec) -> bool:
    return route.on.record_error is RecordErrorPolicy.PARK and bool(route.filters or route.transforms)


def topics_elsewhere(route: RouteSpec, naming: TopicNaming, topic: str) -> tuple[str, ...]:
    """The topics that steps may send records of the source's `topic` to."""
    names = [
        each.to.format(cluster=naming.cluster, topic=topic)
        for each in routings(route)
        if is_for(each.topics, topic)
    ]
    return tuple(dict.fromkeys(names))


def is_for(patterns: Sequence[str], topic: str) -> bool:
    """Whether a filter or transform with these `topics` is for this one."""
    return not patterns or any(re.fullmatch(pattern, topic) for pattern in patterns)
