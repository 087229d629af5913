"""Which topics of a route's source feed a topic of its destination. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter

from mirrormaker.plan.topics import TellsOfTopic, select_topics
from mirrormaker.topology.further_topics import topics_elsewhere
from mirrormaker.topology.model import RouteSpec, RouteTo
from mirrormaker.topology.naming import TopicNaming, compile_naming
from mirrormaker.topology.openings import UNKNOWN, Opening, openings_of


def feeding_topics(route: RouteSpec, to: str, topics: Iterable[TellsOfTopic]) -> list[str]:
    """Of the topics that the source has, those whose records go `to` there, be it by a step of the route."""
    naming = compile_naming(route.source, route.topics)
    return [
        name
        for name, main in select_topics(naming, topics).items()
        if to in (main, *topics_elsewhere(route, naming, name))
    ]


def fed_topics(route: RouteSpec, topics: Iterable[TellsOfTopic]) -> set[str]:
    """The topics of the destination that records of these source topics go to, be it by a step."""
    naming = compile_naming(route.source, route.topics)
    return {
        to
        for name, main in select_topics(naming, topics).items()
        for to in (main, *topics_elsewhere(route, naming, name))
    }


def feeding_topic_by_name(route: RouteSpec, to: str) -> str | None:
    """What the topic must be called at the source, going by names alone; None where the route cannot feed it
    so.
    """
    naming = compile_naming(route.source, route.topics)
    found = _template_pattern(naming).fullmatch(to)
    if found is None or not naming.selects(found["topic"]):
        return None
    return found["topic"]


def may_feed_some(route: RouteSpec, wanted: TopicNaming) -> bool:
    """Whether records could go to topics that `wanted` selects, whatever topics the source has. Of names that
    are patterns only the beginnings are looked at.
    """
    naming = compile_naming(route.source, route.topics)
    templates = [
        naming.template,
        *(each.step.to for each in route.transforms if isinstance(each.step, RouteTo)),
    ]
    fed = [each for template in templates for each in _openings_of(naming, template)]
    asked = [each for pattern in wanted.include for each in openings_of(pattern.pattern)]
    return any(
        one.may_be(other)
        and not any(each.is_whole and not wanted.selects(each.text) for each in (one, other))
        for one in fed
        for other in asked
    )


def _openings_of(naming: TopicNaming, template: str) -> list[Opening]:
    """Of the names that a template makes of the topics that are taken."""
    before, field, behind = template.replace("{cluster}", naming.cluster).partition("{topic}")
    first = Opening(text=before, is_whole=True)
    if not field:
        return [first]
    last = UNKNOWN if "{topic}" in behind else Opening(text=behind, is_whole=True)
    topics = [each for pattern in naming.include for each in openings_of(pattern.pattern)]
    return [first.followed_by(each).followed_by(last) for each in topics]


def _template_pattern(naming: TopicNaming) -> re.Pattern[str]:
    parts: list[str] = []
    is_named = False
    for literal, field, _, _ in Formatter().parse(naming.template):
        parts.append(re.escape(literal))
        if field == "cluster":
            parts.append(re.escape(naming.cluster))
        elif field == "topic":
            parts.append("(?P=topic)" if is_named else "(?P<topic>.+)")
            is_named = True
    return re.compile("".join(parts))
