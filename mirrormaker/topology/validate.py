"""Checks across the parts of a topology: names, references, patterns, and names that would clash at a
destination. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations

from broker.coordination.connect_string import ConnectString
from broker.errors import ConfigurationError
from broker.types import HostPort
from mirrormaker.topology.loops import example_of, find_echoes
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming, pattern_problem, template_problem

CLUSTER_NAME_SIZE_MAX = 80
ROUTE_NAME_SIZE_MAX = 200
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, by the path of where it is said."""

    path: str
    message: str


def validate(topology: Topology) -> None:
    """Check a topology that was built in code. Raises ConfigurationError with every problem."""
    found = [f"{finding.path}: {finding.message}" for finding in check(topology)]
    if found:
        raise ConfigurationError(found)


def check(topology: Topology) -> Iterator[Finding]:
    """Every problem of `topology`, in the order of its parts."""
    for cluster in topology.clusters.values():
        yield from _check_cluster(cluster)
    yield from _check_shared_addresses(topology.clusters.values())
    for index, route in enumerate(topology.routes):
        yield from _check_route(f"routes[{index}]", route, topology)
    yield from _check_route_names(topology.routes)
    if all(_compiles(route) and template_problem(route.topics.name) is None for route in topology.routes):
        yield from _check_clashes(topology.routes)
        for index, echo in find_echoes(topology.routes):
            yield Finding(path=f"routes[{index}].topics", message=echo)


def _check_cluster(cluster: ClusterSpec) -> Iterator[Finding]:
    path = f"clusters.{cluster.name}"
    if problem := _name_problem(cluster.name, CLUSTER_NAME_SIZE_MAX):
        yield Finding(path=path, message=problem)
    if cluster.zookeeper is not None and (problem := _connect_problem(cluster.zookeeper)):
        yield Finding(path=f"{path}.zookeeper", message=problem)


def _check_shared_addresses(clusters: Iterable[ClusterSpec]) -> Iterator[Finding]:
    owners: dict[HostPort, ClusterName] = {}
    for cluster in clusters:
        key = "embedded.port" if cluster.embedded else "bootstrap"
        for address in cluster.bootstrap:
            owner = owners.setdefault(address, cluster.name)
            if owner != cluster.name:
                message = f"{address} belongs to the cluster {owner!r} already"
                yield Finding(path=f"clusters.{cluster.name}.{key}", message=message)
                break


def _check_route(path: str, route: RouteSpec, topology: Topology) -> Iterator[Finding]:
    named = route.source and route.destination
    if named and (problem := _name_problem(route.name, ROUTE_NAME_SIZE_MAX)):
        yield Finding(path=f"{path}.name", message=problem)
    for key, name in (("from", route.source), ("to", route.destination)):
        if name not in topology.clusters:
            close = get_close_matches(name, topology.clusters.keys(), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            yield Finding(path=f"{path}.{key}", message=f"there is no cluster {name!r}{hint}")
    if route.source == route.destination:
        yield Finding(path=f"{path}.to", message="a route must lead to another cluster than it comes from")
    if not route.topics.include:
        yield Finding(path=f"{path}.topics.include", message="names no topics")
    yield from _check_patterns(f"{path}.topics", route)
    if problem := template_problem(route.topics.name):
        yield Finding(path=f"{path}.topics.name", message=problem)
    yield from _check_resources(f"{path}.resources", route)


def _check_patterns(path: str, route: RouteSpec) -> Iterator[Finding]:
    for key, patterns in (("include", route.topics.include), ("exclude", route.topics.exclude)):
        for index, pattern in enumerate(patterns):
            if problem := pattern_problem(pattern):
                yield Finding(path=f"{path}.{key}[{index}]", message=problem)


def _check_resources(path: str, route: RouteSpec) -> Iterator[Finding]:
    resources = route.resources
    if resources.partition_buffer_bytes > resources.buffer_bytes:
        message = f"exceeds buffer_bytes, which is {resources.buffer_bytes}"
        yield Finding(path=f"{path}.partition_buffer_bytes", message=message)
    if resources.fetch_partition_bytes > resources.fetch_bytes:
        message = f"exceeds fetch_bytes, which is {resources.fetch_bytes}"
        yield Finding(path=f"{path}.fetch_partition_bytes", message=message)


def _check_route_names(routes: tuple[RouteSpec, ...]) -> Iterator[Finding]:
    by_name: dict[str, list[int]] = defaultdict(list)
    for index, route in enumerate(routes):
        by_name[route.name].append(index)
    for name, (first, *others) in by_name.items():
        for index in others:
            message = f"routes[{first}] is called {name!r} too: give this one another name"
            yield Finding(path=f"routes[{index}].name", message=message)


def _check_clashes(routes: tuple[RouteSpec, ...]) -> Iterator[Finding]:
    """Routes that would surely write the same topic: both take a topic, same name there, same destination."""
    for (first, one), (second, other) in combinations(enumerate(routes), 2):
        same_names = one.destination == other.destination and _written_name(one) == _written_name(other)
        if same_names and _share_topics(one, other):
            message = (
                f"writes the same topics of {one.destination!r} as routes[{first}]: use {{cluster}} in 'name'"
            )
            yield Finding(path=f"routes[{second}].topics", message=message)


def _share_topics(one: RouteSpec, other: RouteSpec) -> bool:
    """Whether a pattern stands in both, or both take a topic made up from a pattern of either."""
    if set(one.topics.include) & set(other.topics.include):
        return True
    takers = [compile_naming(route.source, route.topics) for route in (one, other)]
    examples = map(example_of, (*one.topics.include, *other.topics.include))
    return any(all(taker.selects(example) for taker in takers) for example in examples)


def _written_name(route: RouteSpec) -> str:
    return route.topics.name.replace("{cluster}", route.source)


def _compiles(route: RouteSpec) -> bool:
    return not any(_check_patterns("", route))


def _name_problem(name: str, size_max: int) -> str | None:
    if _NAME.fullmatch(name) and len(name) <= size_max:
        return None
    return f"{name!r} is not a name: up to {size_max} letters, digits, '.', '_' and '-', no sign first"


def _connect_problem(connect: str) -> str | None:
    try:
        ConnectString.parse(connect)
    except ConfigurationError:
        return f"{connect!r} is not host:port[,host:port][/chroot]"
    return None
