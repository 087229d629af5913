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
    CopyMode,
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
    provenance=False,
)

CLUSTER_FIELDS = ("datacenter", "round_trip_ms")
ROUTE_FIELDS = (
    "topics.partitions",
    "topics.merge",
    "membership",
    "copy",
    "compression",
    "batch.bytes",
    "batch.linger_ms",
    "isolation",
    "filters",
    "transforms",
    "sync.acls",
    "sync.groups",
    "on.source_gap",
    "on.topic_recreated",
    "on.topic_deleted",
    "on.source_truncated",
    "on.partition_mismatch",
    "on.oversize",
    "on.unauthorized",
    "on.destination_full",
    "on.not_shallow",
    "on.record_error",
    "resources.bytes_per_second",
    "resources.windows",
    "resources.priority",
    "resources.catch_up_bytes_per_second",
    "objectives.lag_seconds",
    "objectives.audit_window_ms",
    "provenance",
    "failover_group",
)
BUILT_VALUES: dict[str, tuple[object, ...]] = {"copy": (CopyMode.DEEP,)}
"""Values beside the default that have their effect."""
_KEYS = {"objectives.audit_window_ms": "objectives.audit_window"}


def find_not_built(topology: Topology) -> Iterator[Finding]:
    """A finding for every value whose effect does not exist."""
    for index, _ in enumerate(topology.links):
        yield Finding(path=f"links[{index}]", message="links are not supported yet")
    for cluster in topology.clusters.values():
        yield from _differing(f"clusters.{cluster.name}", cluster, _CLUSTER, CLUSTER_FIELDS)
    for number, route in enumerate(topology.routes):
        yield from _differing(f"routes[{number}]", route, _ROUTE, ROUTE_FIELDS)


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
