"""Checks across the parts of a topology: names, references, patterns, steps for no topic, names that would
clash at a destination, circles, and settings that do not go together. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from broker.coordination.connect_string import ConnectString
from broker.errors import ConfigurationError
from broker.types import HostPort
from mirrormaker.topology.clashes import check_clashes
from mirrormaker.topology.combinations import check_carried_circles, check_combinations
from mirrormaker.topology.document import suggestion
from mirrormaker.topology.failover_groups import check_failover_groups
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loops import find_circles
from mirrormaker.topology.model import ClusterName, ClusterSpec, LinkSpec, RouteSpec, SimulatedLink, Topology
from mirrormaker.topology.naming import (
    is_internal,
    is_legal_topic,
    name_problem,
    pattern_problem,
    template_problem,
)
from mirrormaker.topology.pipeline_checks import check_pipelines
from mirrormaker.topology.step_topics import check_step_topics

CLUSTER_NAME_SIZE_MAX = 80
ROUTE_NAME_SIZE_MAX = 200
_LOOPBACKS = re.compile(r"localhost|127(\.\d+){3}|::1|0:0:0:0:0:0:0:1")


def validate(topology: Topology) -> None:
    """Check a topology that was built in code. Raises ConfigurationError with every problem."""
    found = [f"{finding.path}: {finding.message}" for finding in check(topology)]
    if found:
        raise ConfigurationError(found)


def check(topology: Topology) -> Iterator[Finding]:
    """Every problem of `topology`, in the order of its parts."""
    for cluster in topology.clusters.values():
        yield from _check_cluster(cluster)
    yield from _check_identities(topology.clusters.values())
    yield from _check_links(topology)
    for index, route in enumerate(topology.routes):
        yield from _check_route(f"routes[{index}]", route, topology)
    yield from _check_route_names(topology.routes)
    yield from check_pipelines(topology)
    yield from check_step_topics(topology.routes)
    yield from check_clashes(topology.routes)
    yield from _check_circles(topology.routes)
    yield from check_carried_circles(topology.routes)
    yield from check_failover_groups(topology.routes)


def _check_cluster(cluster: ClusterSpec) -> Iterator[Finding]:
    path = f"clusters.{cluster.name}"
    if problem := name_problem(cluster.name, CLUSTER_NAME_SIZE_MAX):
        yield Finding(path=path, message=problem)
    if cluster.zookeeper is not None and (problem := _connect_problem(cluster.zookeeper)):
        yield Finding(path=f"{path}.zookeeper", message=problem)
    for name, topic in cluster.topics.items():
        if problem := _topic_problem(name):
            yield Finding(path=f"{path}.topics.{name}", message=problem)
        if cluster.embedded is not None and (topic.replication or 1) > cluster.embedded.brokers:
            message = (
                f"{topic.replication} replicas need as many nodes, and there are {cluster.embedded.brokers}"
            )
            yield Finding(path=f"{path}.topics.{name}.replication", message=message)


def _check_identities(clusters: Iterable[ClusterSpec]) -> Iterator[Finding]:
    """Two names for what is surely one cluster."""
    owners: dict[HostPort | str, ClusterName] = {}
    for cluster in clusters:
        key = "embedded.port" if cluster.embedded else "bootstrap"
        for address in cluster.bootstrap:
            owner = owners.setdefault(_normal(address), cluster.name)
            if owner != cluster.name:
                message = f"{address} belongs to the cluster {owner!r} already"
                yield Finding(path=f"clusters.{cluster.name}.{key}", message=message)
                break
        if cluster.cluster_id is not None:
            owner = owners.setdefault(cluster.cluster_id, cluster.name)
            if owner != cluster.name:
                message = f"the cluster {owner!r} has this id: both names mean one cluster"
                yield Finding(path=f"clusters.{cluster.name}.cluster_id", message=message)
        if cluster.zookeeper is not None:
            owner = owners.setdefault(f"zookeeper {cluster.zookeeper}", cluster.name)
            if owner != cluster.name:
                message = f"belongs to the cluster {owner!r} already: each has a chroot of its own"
                yield Finding(path=f"clusters.{cluster.name}.zookeeper", message=message)


def _normal(address: HostPort) -> HostPort:
    """The address, written so that two ways of saying the same are alike where that is certain."""
    host = address.host.lower().removesuffix(".")
    return HostPort("127.0.0.1" if _LOOPBACKS.fullmatch(host) else host, address.port)


def _check_links(topology: Topology) -> Iterator[Finding]:
    first: dict[tuple[ClusterName, ClusterName], int] = {}
    used = {(route.source, route.destination) for route in topology.routes}
    for index, link in enumerate(topology.links):
        path = f"links[{index}]"
        yield from _check_ends(path, link, topology)
        if link.bytes_per_second is None and not link.windows and link.simulate == SimulatedLink():
            yield Finding(path=path, message="limits nothing: say 'bytes_per_second' or 'windows'")
        ends = (link.source, link.destination)
        known = first.setdefault(ends, index)
        if known != index:
            message = f"links[{known}] is from {link.source!r} to {link.destination!r} too"
            yield Finding(path=path, message=message)
        elif ends not in used and link.source != link.destination and topology.clusters.keys() >= set(ends):
            message = f"no route leads from {link.source!r} to {link.destination!r}"
            yield Finding(path=path, message=message)


def _check_route(path: str, route: RouteSpec, topology: Topology) -> Iterator[Finding]:
    named = route.source and route.destination
    if named and (problem := name_problem(route.name, ROUTE_NAME_SIZE_MAX)):
        yield Finding(path=f"{path}.name", message=problem)
    yield from _check_ends(path, route, topology)
    if not route.topics.include:
        yield Finding(path=f"{path}.topics.include", message="names no topics")
    yield from _check_patterns(f"{path}.topics", route)
    if problem := template_problem(route.topics.name):
        yield Finding(path=f"{path}.topics.name", message=problem)
    yield from check_combinations(path, route, topology)


def _check_ends(path: str, line: RouteSpec | LinkSpec, topology: Topology) -> Iterator[Finding]:
    for key, name in (("from", line.source), ("to", line.destination)):
        if name not in topology.clusters:
            hint = suggestion(name, topology.clusters)
            yield Finding(path=f"{path}.{key}", message=f"there is no cluster {name!r}{hint}")
    if line.source == line.destination:
        kind = "route" if isinstance(line, RouteSpec) else "link"
        message = f"a {kind} must lead to another cluster than it comes from"
        yield Finding(path=f"{path}.to", message=message)


def _check_patterns(path: str, route: RouteSpec) -> Iterator[Finding]:
    for key, patterns in (("include", route.topics.include), ("exclude", route.topics.exclude)):
        for index, pattern in enumerate(patterns):
            if problem := pattern_problem(pattern):
                yield Finding(path=f"{path}.{key}[{index}]", message=problem)


def _check_route_names(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    by_name: dict[str, list[int]] = defaultdict(list)
    for index, route in enumerate(routes):
        by_name[route.name].append(index)
    for name, (first, *others) in by_name.items():
        for index in others:
            message = f"routes[{first}] is called {name!r} too: give this one another name"
            yield Finding(path=f"routes[{index}].name", message=message)


def _check_circles(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    for index, circle in find_circles(routes):
        if circle.grows or not routes[index].provenance:
            yield Finding(path=f"routes[{index}].topics", message=circle.message)


def _topic_problem(name: str) -> str | None:
    if not is_legal_topic(name):
        return f"{name!r} is not a topic's name: up to 249 letters, digits, '.', '_' and '-'"
    return "clusters make topics with such names themselves" if is_internal(name) else None


def _connect_problem(connect: str) -> str | None:
    try:
        ConnectString.parse(connect)
    except ConfigurationError:
        return f"{connect!r} is not host:port[,host:port][/chroot]"
    return None
