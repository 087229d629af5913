"""Routes that would surely write the same topic of a destination. Pure.

Names are compared as templates: those of copies, and those of topics that steps send records to. What can
only be told from the topics that there are, the daemons find (`reconcile/claims`).

Routes may share a topic on purpose. Two that are exactly once may not if they copy it from one and the same
topic (`shared_positions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from mirrormaker.topology.examples import examples_of
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.further_topics import is_for
from mirrormaker.topology.loops import is_compilable
from mirrormaker.topology.model import ClusterName, RouteSpec, RouteTo
from mirrormaker.topology.naming import TopicNaming, compile_naming
from mirrormaker.topology.shared_positions import share_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """A route makes names of a destination by one template, of topics that it takes."""

    index: int
    path: str
    naming: TopicNaming
    template: str
    patterns: tuple[str, ...] = ()
    """Those of a step; none: it is for all topics of the route."""
    is_copy: bool = False
    """Of topics as a whole, not of what a step sends elsewhere."""

    def makes(self, topic: str) -> bool:
        """Whether a source topic of this name gives one."""
        return self.naming.selects(topic) and is_for(self.patterns, topic)


def check_clashes(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """Both take a topic, same name there, same destination. Routes that are not to run, and those whose
    patterns or template are not legal, take none.
    """
    alike: dict[tuple[ClusterName, str], list[_Writing]] = defaultdict(list)
    for index, route in enumerate(routes):
        for writing in _writings(index, route) if route.may_run and is_compilable(route) else ():
            alike[route.destination, writing.template].append(writing)
    for writings in alike.values():
        for one, other in combinations(writings, 2):
            if one.index == other.index or not _share_names(one, other):
                continue
            if not (routes[one.index].topics.merge and routes[other.index].topics.merge):
                yield Finding(path=other.path, message=_clash(routes, one, other))
            elif one.is_copy and other.is_copy and share_positions(routes[one.index], routes[other.index]):
                yield Finding(path=other.path, message=_one_position(routes, one, other))


def _writings(index: int, route: RouteSpec) -> Iterator[_Writing]:
    path, naming = f"routes[{index}]", compile_naming(route.source, route.topics)
    name = route.topics.name.replace("{cluster}", route.source)
    yield _Writing(index=index, path=f"{path}.topics", naming=naming, template=name, is_copy=True)
    for number, each in enumerate(route.transforms):
        if isinstance(each.step, RouteTo):
            yield _Writing(
                index=index,
                path=f"{path}.transforms[{number}].route",
                naming=naming,
                template=each.step.to.replace("{cluster}", route.source),
                patterns=each.topics,
            )


def _clash(routes: Sequence[RouteSpec], one: _Writing, other: _Writing) -> str:
    destination = routes[other.index].destination
    if "{topic}" not in other.template:
        wanted = "give each its own, or say 'merge: true' in the topics of both"
        return f"writes {other.template!r} of {destination!r} as routes[{one.index}] does: {wanted}"
    wanted = "use {cluster} in 'name', or say 'merge: true' in both"
    return f"writes the same topics of {destination!r} as routes[{one.index}]: {wanted}"


def _one_position(routes: Sequence[RouteSpec], one: _Writing, other: _Writing) -> str:
    destination = routes[other.index].destination
    return (
        f"writes the same topics of {destination!r} as routes[{one.index}], from the same topics, both "
        "'exactly_once': they would have one position there; make them one route, "
        "or use another 'name' or 'delivery'"
    )


def _share_names(one: _Writing, other: _Writing) -> bool:
    """Whether a pattern stands in both, or both take a topic made up from a pattern of either."""
    if "{topic}" not in one.template:
        return True
    patterns = [{pattern.pattern for pattern in writing.naming.include} for writing in (one, other)]
    if patterns[0] & patterns[1] and not one.patterns and not other.patterns:
        return True
    sources = patterns[0] | patterns[1] | {*one.patterns, *other.patterns}
    examples = (example for pattern in sources for example in examples_of(pattern))
    return any(one.makes(example) and other.makes(example) for example in examples)
