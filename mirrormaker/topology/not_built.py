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
    JdbcSink,
    LakeSink,
    RouteName,
    RouteSpec,
    TopicSelection,
    TopicSink,
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
ROUTE_FIELDS: tuple[str, ...] = ()
BUILT_VALUES: dict[str, tuple[object, ...]] = {}
"""Values beside the default that have their effect."""


def find_not_built(topology: Topology) -> Iterator[Finding]:
    """A finding for every value whose effect does not exist."""
    yield from _of_pipelines(topology)
    for cluster in topology.clusters.values():
        yield from _differing(f"clusters.{cluster.name}", cluster, _CLUSTER, CLUSTER_FIELDS)
    for number, route in enumerate(topology.routes):
        yield from _differing(f"routes[{number}]", route, _ROUTE, ROUTE_FIELDS)


def _of_pipelines(topology: Topology) -> Iterator[Finding]:
    for number, pipeline in enumerate(topology.pipelines):
        path = f"pipelines[{number}]"
        names = {pipeline.cluster}
        for index, sink in enumerate(pipeline.sinks):
            match sink.target:
                case JdbcSink():
                    yield Finding(path=f"{path}.sinks[{index}].jdbc", message="is not supported yet")
                case LakeSink(format=kind):
                    yield Finding(path=f"{path}.sinks[{index}].{kind.value}", message="is not supported yet")
                case TopicSink(cluster=name):
                    names.add(name)
        for name in names:
            spec = topology.clusters.get(name) if name is not None else None
            if spec is not None and spec.security != _CLUSTER.security:
                message = f"{name!r} is secured, which pipelines do not support yet"
                yield Finding(path=f"{path}.cluster", message=message)


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
