"""Keys that a file may hold whose effect does not exist yet: a value that would need it is refused, so that
no setting is accepted and ignored. Whoever builds an effect takes its line out of the table. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import product
from operator import attrgetter
from typing import Any

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loops import example_of, is_compilable
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    Delivery,
    RouteName,
    RouteSpec,
    TopicSelection,
    Topology,
)
from mirrormaker.topology.ways import Ways, ways_of

_CLUSTER = ClusterSpec(name=ClusterName(""))
_ROUTE = RouteSpec(
    name=RouteName(""),
    source=ClusterName(""),
    destination=ClusterName(""),
    topics=TopicSelection(include=()),
)

CLUSTER_FIELDS: tuple[str, ...] = ()
ROUTE_FIELDS = (
    "sync.acls",
    "objectives.lag_seconds",
    "objectives.audit_window_ms",
    "failover_group",
)
BUILT_VALUES: dict[str, tuple[object, ...]] = {}
"""Values beside the default that have their effect."""
_KEYS = {"objectives.audit_window_ms": "objectives.audit_window"}


def find_not_built(topology: Topology) -> Iterator[Finding]:
    """A finding for every value whose effect does not exist."""
    for cluster in topology.clusters.values():
        yield from _differing(f"clusters.{cluster.name}", cluster, _CLUSTER, CLUSTER_FIELDS)
    for number, route in enumerate(topology.routes):
        yield from _differing(f"routes[{number}]", route, _ROUTE, ROUTE_FIELDS)
        if route.sync.groups is not None and route.delivery is Delivery.EXACTLY_ONCE:
            message = "is not supported yet with 'delivery: exactly_once'"
            yield Finding(path=f"routes[{number}].sync.groups", message=message)
    if is_compilable(topology.routes):
        yield from _in_transit(topology)


def _in_transit(topology: Topology) -> Iterator[Finding]:
    """Routes that would carry what was born elsewhere, exactly once: transactions are for one origin."""
    ways = Ways(ways_of(topology.routes))
    for number, route in enumerate(topology.routes):
        if route.delivery is not Delivery.EXACTLY_ONCE or not ways_of([route]):
            continue
        for topic, origin in product(map(example_of, route.topics.include), sorted(ways.clusters)):
            path = ways.path(topic, origin, route.destination) or ()
            if len(path) > 2 and path[-2] == route.source:
                message = f"'exactly_once' is not supported yet for what comes from {origin!r}"
                yield Finding(path=f"routes[{number}].delivery", message=message)
                break


def _differing(path: str, given: object, usual: object, fields: tuple[str, ...]) -> Iterator[Finding]:
    for field in fields:
        get = attrgetter(field)
        value = get(given)
        if value != get(usual) and value not in BUILT_VALUES.get(field, ()):
            yield _finding(f"{path}.{_KEYS.get(field, field)}", value)


def _finding(path: str, value: Any) -> Finding:
    shown = value.value if isinstance(value, Enum) else value
    said = f"{shown!r} " if isinstance(shown, str | int) and not isinstance(shown, bool) else ""
    return Finding(path=path, message=f"{said}is not supported yet")
