"""Settings of one route that do not go together, or not with the routes around it. Pure.

What is not refused here is meant to work together: every delivery with every copy mode, codec, filter,
transform and partition policy; provenance with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loops import detours, is_compilable
from mirrormaker.topology.model import (
    UNCARRIED_SETTINGS,
    ClusterSpec,
    Compression,
    CopyMode,
    Delivery,
    Membership,
    PartitionPolicy,
    RouteSpec,
    StartAtOffsets,
    Topology,
)
from mirrormaker.topology.naming import compile_naming, pattern_problem
from mirrormaker.topology.ways import ways_back, ways_of


def check_combinations(path: str, route: RouteSpec, topology: Topology) -> Iterator[Finding]:
    """What does not fit together in a route; `path` is where it stands."""
    yield from _check_resources(f"{path}.resources", route)
    yield from _check_shallow(path, route)
    yield from _check_groups(path, route)
    yield from _check_rules(path, route)
    yield from _check_membership(path, route, topology.clusters.get(route.source))
    yield from _check_start(path, route)
    yield from _check_settings(path, route)


def check_carried_circles(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """What a group has not read at the source of what was born at the destination tells the ledger of a route
    straight back; that of a ring has none.
    """
    numbers = [
        number
        for number, route in enumerate(routes)
        if route.may_run and is_compilable(route) and ways_of([route])
    ]
    at_work = [routes[number] for number in numbers]
    straight = {
        start: [way.topics for way in ways_back(route, at_work)]
        for start, route in enumerate(at_work)
        if route.sync.groups is not None
    }
    for start, circle in detours(at_work, straight):
        route = at_work[start]
        message = (
            f"positions of topic {circle.topic!r} cannot be carried over: what is written at"
            f" {route.destination!r} comes back by {' -> '.join(circle.way[1:])} alone, and no ledger tells"
            f" what of it a group has read: a route from {route.destination!r} to {route.source!r} would"
        )
        yield Finding(path=f"routes[{numbers[start]}].sync.groups", message=message)


def decoding_keys(route: RouteSpec) -> list[str]:
    """The keys of the route because of which batches must be decoded."""
    asked = {
        "compression": route.compression is not Compression.PRESERVE,
        "batch.bytes": route.batch.bytes is not None,
        "batch.linger_ms": route.batch.linger_ms is not None,
        "filters": bool(route.filters),
        "transforms": bool(route.transforms),
        "topics.partitions": route.topics.partitions is not PartitionPolicy.SAME,
    }
    return [key for key, holds in asked.items() if holds]


def _check_resources(path: str, route: RouteSpec) -> Iterator[Finding]:
    resources = route.resources
    fastest = resources.bytes_per_second
    if fastest is not None:
        fastest = max(fastest, *(window.bytes_per_second for window in resources.windows), 0)
    parts = (
        ("partition_buffer_bytes", "buffer_bytes", resources.buffer_bytes),
        ("fetch_partition_bytes", "fetch_bytes", resources.fetch_bytes),
        ("catch_up_bytes_per_second", "bytes_per_second", fastest),
    )
    for part, whole, of in parts:
        limit = getattr(resources, part)
        if limit is not None and of is not None and limit > of:
            yield Finding(path=f"{path}.{part}", message=f"exceeds {whole}, which is {of}")
    if resources.workers > route.buckets:
        message = f"exceeds 'buckets', which is {route.buckets}: the others would have nothing to do"
        yield Finding(path=f"{path}.workers", message=message)


def _check_shallow(path: str, route: RouteSpec) -> Iterator[Finding]:
    if route.copy is CopyMode.SHALLOW:
        for key in decoding_keys(route):
            yield Finding(path=f"{path}.{key}", message="decodes batches, and the route says 'copy: shallow'")


def _check_groups(path: str, route: RouteSpec) -> Iterator[Finding]:
    """A group's position is carried over by what became of the records of its partition: they must be
    together.
    """
    if route.sync.groups is None:
        return
    if route.topics.partitions is not PartitionPolicy.SAME:
        message = "positions cannot be carried over where 'topics.partitions' is not 'same'"
        yield Finding(path=f"{path}.sync.groups", message=message)
    if route.topics.merge:
        message = "positions cannot be carried over into topics that several routes write"
        yield Finding(path=f"{path}.sync.groups", message=message)


def _check_membership(path: str, route: RouteSpec, source: ClusterSpec | None) -> Iterator[Finding]:
    """Members that meet in ZooKeeper divide buckets between them, and each may have one transaction."""
    if route.membership is not Membership.ZOOKEEPER:
        return
    if route.delivery is Delivery.EXACTLY_ONCE:
        message = "'exactly_once' needs a group at the source's coordinator: see 'membership'"
        yield Finding(path=f"{path}.delivery", message=message)
    elif source is not None and source.zookeeper is None and source.embedded is None:
        message = f"the cluster {source.name!r} does not say where its 'zookeeper' is"
        yield Finding(path=f"{path}.membership", message=message)


def _check_start(path: str, route: RouteSpec) -> Iterator[Finding]:
    patterns = (*route.topics.include, *route.topics.exclude)
    if not isinstance(route.start, StartAtOffsets) or any(map(pattern_problem, patterns)):
        return
    naming = compile_naming(route.source, route.topics)
    for topic in route.start.offsets:
        if not naming.selects(topic):
            message = "the route does not take this topic"
            yield Finding(path=f"{path}.start.offsets.{topic}", message=message)


def _check_rules(path: str, route: RouteSpec) -> Iterator[Finding]:
    if route.sync.write_acls and not route.sync.acls:
        yield Finding(path=f"{path}.sync.write_acls", message="needs 'acls: true'")


def _check_settings(path: str, route: RouteSpec) -> Iterator[Finding]:
    for index, name in enumerate(route.sync.config):
        if name in UNCARRIED_SETTINGS:
            message = f"{name!r} means something else at the destination: it is never carried over"
            yield Finding(path=f"{path}.sync.config[{index}]", message=message)
