"""Keys that a file may hold whose effect does not exist yet: a value that would need it is refused, so that
no setting is accepted and ignored. Whoever builds an effect takes its line out of the table. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from operator import attrgetter
from typing import Any

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    RouteName,
    RouteSpec,
    TopicSelection,
    Topology,
)

_CLUSTER = ClusterSpec(name=ClusterName(""))
_ROUTE = RouteSpec(
    name=RouteName(""),
    source=ClusterName(""),
    destination=ClusterName(""),
    topics=TopicSelection(include=()),
)

CLUSTER_FIELDS: tuple[str, ...] = ()
ROUTE_FIELDS = ("failover_group",)
BUILT_VALUES: dict[str, tuple[object, ...]] = {}
"""Values beside the default that have their effect."""


def find_not_built(topology: Topology) -> Iterator[Finding]:
    """A finding for every value whose effect does not exist."""
    for cluster in topology.clusters.values():
        yield from _differing(f"clusters.{cluster.name}", cluster, _CLUSTER, CLUSTER_FIELDS)
    for number, route in enumerate(topology.routes):
        yield from _differing(f"routes[{number}]", route, _ROUTE, ROUTE_FIELDS)


def _differing(path: str, given: object, usual: object, fields: tuple[str, ...]) -> Iterator[Finding]:
    for field in fields:
        get = attrgetter(field)
        value = get(given)
        if value != get(usual) and value not in BUILT_VALUES.get(field, ()):
            yield _finding(f"{path}.{field}", value)


def _finding(path: str, value: Any) -> Finding:
    shown = value.value if isinstance(value, Enum) else value
    said = f"{shown!r} " if isinstance(shown, str | int) and not isinstance(shown, bool) else ""
    return Finding(path=path, message=f"{said}is not supported yet")
