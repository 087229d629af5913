"""Topics of the destination that records of a route may go to beside those that they are copied to. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mirrormaker.topology.model import RecordErrorPolicy, RouteSpec, RouteTo
from mirrormaker.topology.naming import TopicNaming

PARKED_SUFFIX = ".dead-letters"


def further_topics(route: RouteSpec, naming: TopicNaming, topic: str) -> tuple[str, ...]:
    """All of these for the source's `topic`."""
    parked = parked_topic(route, naming.destination_of(topic))
    own = naming.destination_of(topic)
    names = (*(() if parked is None else (parked,)), *topics_elsewhere(route, naming, topic))
    return tuple(name for name in names if name != own)


def parked_topic(route: RouteSpec, main: str) -> str | None:
    """The topic for records of those that become `main` and that no step can process; None: they are not kept
    there.
    """
    has_steps = bool(route.filters or route.transforms)
    return f"{main}{PARKED_SUFFIX}" if has_steps and route.on.record_error is RecordErrorPolicy.PARK else None


def topics_elsewhere(route: RouteSpec, naming: TopicNaming, topic: str) -> tuple[str, ...]:
    """The topics that steps may send records of the source's `topic` to."""
    names = [
        each.step.to.format(cluster=naming.cluster, topic=topic)
        for each in route.transforms
        if isinstance(each.step, RouteTo) and is_for(each.topics, topic)
    ]
    return tuple(dict.fromkeys(names))


def is_for(patterns: Sequence[str], topic: str) -> bool:
    """Whether a filter or transform with these `topics` is for this one."""
    return not patterns or any(re.fullmatch(pattern, topic) for pattern in patterns)
