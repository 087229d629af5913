"""How every route of a topology stands: lag, asked of the clusters, and what the daemon tells of its work.

Positions and ends come from the clusters themselves, so the figures hold whether a daemon runs here,
elsewhere, or not at all. What only the daemon on this `data_dir` knows is read from its state: why a
partition does not move, how long records have been waiting, how large they are. Where it does not know, the
first batch that waits is looked at: then seconds are the age of that batch by its own timestamp.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, read_fetch, version_limit
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.offsets import EARLIEST, LATEST, list_offsets
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError, CorruptRecordsError
from broker.records.batch import MAGIC_POSITION, read_header
from broker.types import Buffer, TopicPartition
from broker.wire.messages.fetch import FetchRequest
from mirrormaker.clusters import OPEN_TIMEOUT_MS, open_cluster
from mirrormaker.control_access import read_control
from mirrormaker.flow.lag import NO_LAG, Lag
from mirrormaker.flow.lane import LaneState
from mirrormaker.plan.topics import select_topics
from mirrormaker.reconcile.control import RouteWishes
from mirrormaker.reconcile.halts import describe_halts
from mirrormaker.route_groups import route_group
from mirrormaker.state import StateDirectory
from mirrormaker.topology.document import read_text
from mirrormaker.topology.loader import load_topology, parse_topology
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming
from mirrormaker.topology.readers.document import DEFAULT_DATA_DIR

QUERY_TIMEOUT_MS = 10_000
_DATA_DIR = re.compile(r"""^data_dir:[ \t]*["']?([^"'#\n]+?)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition of a route."""

    source: TopicPartition
    destination: TopicPartition
    state: str
    """What the daemon does with it; "unassigned" when no daemon here has it."""
    problem: str | None
    committed: int
    end: int
    lag: Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStatus:
    """One route. `problem` says why there are no figures, or what is wrong with it as a whole."""

    name: str
    source: ClusterName
    destination: ClusterName
    state: str
    """The daemon's word for it; "stopped" when no daemon runs here, "disabled" when the file says so."""
    problem: str | None
    lag: Lag | None
    partitions: tuple[PartitionStatus, ...] = ()
    obstacles: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    link: Mapping[str, Any] = field(default_factory=dict)
    """The way that it takes: round trips, depth, limit and its use; empty while the route is not at work."""
    events: tuple[Mapping[str, Any], ...] = ()
    owner: str | None = None
    """Whom to ask about it."""
    drift: tuple[Mapping[str, str], ...] = ()
    """What differs at the destination and is left so: kind, topic, and a line for people."""
    datacenters: tuple[str | None, str | None] = (None, None)
    """Where source and destination stand, as far as the file says."""
    pause: Mapping[str, Any] | None = None
    """Who wishes that the route pause, since when and why."""
    paused_topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same by topic of the source."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """How the route's ledger does; empty when no daemon here writes it."""
    groups: Mapping[str, Any] = field(default_factory=dict)
    """How the groups do that the route carries over; empty where it carries none."""
    halts: tuple[Mapping[str, Any], ...] = ()
    """Partitions that stand by a failure policy, as `reconcile.halts` keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyStatus:
    """The topology that the daemon here has in force."""

    generation: int
    digest: str
    applied_at_ms: int
    problem: str | None
    """Why the file as it is now is not in force; lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All of a topology file."""

    topology: TopologyStatus | None
    """None when no daemon runs here."""
    routes: tuple[RouteStatus, ...]
    workers: tuple[Mapping[str, Any], ...] = ()
    """The processes of the daemon here that run routes with several workers (`workers/pool`)."""
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For clusters that the file asks for topics at: `problem`, why they were not compared, or None; `drift`,
    what differs and is left so.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The first batch that waits in a partition."""

    timestamp_ms: int
    bytes_per_offset: float


def load_for_status(file: Path) -> Topology:
    """The topology to show the status of: `file`, or what a running daemon has in force while that has
    errors. Raises ConfigurationError with these when no daemon runs.
    """
    try:
        return load_topology(file)
    except ConfigurationError:
        in_force = _topology_in_force(file)
        if in_force is None:
            raise
        return in_force


def _topology_in_force(file: Path) -> Topology | None:
    """That of the daemon on the `data_dir` of a file with errors; None when it cannot be found."""
    try:
        said = _DATA_DIR.search(read_text(file))
        directory = StateDirectory(
            (file.resolve().parent / (said[1] if said else DEFAULT_DATA_DIR)).resolve()
        )
        kept = directory.kept_topology() if directory.is_locked() else None
        return None if kept is None else parse_topology(kept, file)
    except ConfigurationError:
        return None


async def read_status(topology: Topology, clock: Clock, state: Mapping[str, Any] | None = None) -> Status:
    """The status of every route, in the file's order. A cluster that cannot be asked is told in `problem`.
    `state`: what the daemon tells, when it is it that asks; else its state directory says.
    """
    if state is None:
        directory = StateDirectory(topology.data_dir)
        state = (directory.read() if directory.is_locked() else None) or {}
    routes = await asyncio.gather(
        *(_observe_or_tell(topology, route, state, clock) for route in topology.routes)
    )
    return Status(
        topology=_topology_status(state.get("topology")),
        routes=tuple(replace(route, datacenters=_datacenters(topology, route)) for route in routes),
        workers=tuple(state.get("workers", ())),
        clusters=state.get("clusters", {}),
    )


def _datacenters(topology: Topology, route: RouteStatus) -> tuple[str | None, str | None]:
    clusters = topology.clusters
    return clusters[route.source].datacenter, clusters[route.destination].datacenter


def _topology_status(told: Mapping[str, Any] | None) -> TopologyStatus | None:
    if told is None:
        return None
    return TopologyStatus(
        generation=told["generation"],
        digest=told["digest"],
        applied_at_ms=told["applied_at_ms"],
        problem=told["problem"],
    )


async def _observe_or_tell(
    topology: Topology, route: RouteSpec, state: Mapping[str, Any], clock: Clock
) -> RouteStatus:
    told: Mapping[str, Any] = state.get("routes", {}).get(route.name) or await _tell_wishes(topology, route)
    spec = topology.clusters[route.source]
    try:
        async with (
            asyncio.timeout(QUERY_TIMEOUT_MS / 1000),
            open_cluster(spec) as source,
            route_group(route, spec, source, timeout_ms=QUERY_TIMEOUT_MS) as group,
        ):
            partitions = await _observe(route, source, group, told, state.get("at_ms"), clock)
    except (BrokerError, TimeoutError) as error:
        problem = str(error) or f"cluster {route.source!r}: no answer within {QUERY_TIMEOUT_MS} ms"
        return _route_status(route, told, problem, None, ())
    return _route_status(
        route, told, None, Lag.total([partition.lag for partition in partitions]), partitions
    )


async def _tell_wishes(topology: Topology, route: RouteSpec) -> Mapping[str, Any]:
    """What the destination tells where no daemon does; nothing while it cannot be asked."""
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_MS / 1000):
            wishes = (await read_control(topology.clusters[route.destination])).get(route.name, RouteWishes())
    except (BrokerError, TimeoutError):
        return {}
    told: dict[str, Any] = {
        "paused_topics": {topic: asdict(pause) for topic, pause in wishes.topics.items()},
        "halts": describe_halts(wishes.halts),
    }
    return told if wishes.pause is None else {**told, "pause": asdict(wishes.pause), "state": "paused"}


def _route_status(
    route: RouteSpec,
    told: Mapping[str, Any],
    problem: str | None,
    lag: Lag | None,
    partitions: tuple[PartitionStatus, ...],
) -> RouteStatus:
    return RouteStatus(
        name=route.name,
        source=route.source,
        destination=route.destination,
        state=told.get("state", "stopped") if route.enabled else "disabled",
        problem=told.get("error") or told.get("reconcile_problem") or problem,
        lag=lag,
        partitions=partitions,
        obstacles=told.get("obstacles", {}),
        counts=told.get("counts", {}),
        link=told.get("link", {}),
        events=tuple(told.get("events", ())),
        owner=route.owner,
        pause=told.get("pause"),
        paused_topics=told.get("paused_topics", {}),
        drift=tuple(told.get("drift", ())),
        ledger=told.get("ledger", {}),
        groups=told.get("groups", {}),
        halts=tuple(told.get("halts", ())),
    )


async def _observe(
    route: RouteSpec,
    source: Cluster,
    group: GroupOffsetAdmin,
    told: Mapping[str, Any],
    told_at_ms: int | None,
    clock: Clock,
) -> tuple[PartitionStatus, ...]:
    metadata = await source.refresh()
    destinations = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
    sources = metadata.topic_partitions(sorted(destinations))
    committed = await group.group_offsets(route.group, sources)
    ends = await list_offsets(source, dict.fromkeys(sources, LATEST), read_committed=True)
    fresh = [partition for partition in sources if partition not in committed]
    starts = await list_offsets(source, dict.fromkeys(fresh, EARLIEST)) if fresh else {}
    positions = {
        partition: committed[partition].offset if partition in committed else starts[partition].offset
        for partition in sources
    }
    partitions_told: Mapping[str, Mapping[str, Any]] = told.get("partitions", {})
    unknown = [
        partition
        for partition in sources
        if positions[partition] < ends[partition].offset
        and not _knows_all(partitions_told.get(str(partition), {}))
    ]
    samples = await _sample(source, unknown, positions)
    now_ms = clock.now_ms()
    return tuple(
        _partition_status(
            partition,
            TopicPartition(destinations[partition.topic], partition.partition),
            positions[partition],
            ends[partition].offset,
            partitions_told.get(str(partition), {}),
            samples.get(partition),
            told_at_ms,
            now_ms,
        )
        for partition in sources
    )


def _knows_all(told: Mapping[str, Any]) -> bool:
    """Whether a look at the source tells nothing new. What a paused one has copied is unlike what waits."""
    measured = told.get("bytes_per_offset") is not None and told.get("state") != LaneState.PAUSED.value
    return measured and _waiting_since(told, 0) is not None


def _waiting_since(told: Mapping[str, Any], told_at_ms: int) -> int | None:
    """When the daemon first saw what waits. What it saw nothing of came after it looked. None: unknown."""
    since_ms: int | None = told.get("waiting_since_ms")
    if since_ms is None and 0 <= told.get("source_end", -1) <= told["acknowledged"]:
        return told_at_ms
    return since_ms


def _partition_status(
    source: TopicPartition,
    destination: TopicPartition,
    committed: int,
    end: int,
    told: Mapping[str, Any],
    sample: _Sample | None,
    told_at_ms: int | None,
    now_ms: int,
) -> PartitionStatus:
    return PartitionStatus(
        source=source,
        destination=destination,
        state=told.get("state", "unassigned"),
        problem=told.get("trouble") or told.get("source_problem") or told.get("error"),
        committed=committed,
        end=end,
        lag=_lag(end - committed, told, sample, told_at_ms, now_ms),
    )


def _lag(
    messages: int, told: Mapping[str, Any], sample: _Sample | None, told_at_ms: int | None, now_ms: int
) -> Lag:
    if messages <= 0:
        return NO_LAG
    bytes_per_offset = sample.bytes_per_offset if sample else told.get("bytes_per_offset")
    since_ms = _waiting_since(told, told_at_ms) if told and told_at_ms is not None else None
    if since_ms is None and sample is not None:
        since_ms = sample.timestamp_ms
    return Lag(
        messages=messages,
        bytes=None if bytes_per_offset is None else round(messages * bytes_per_offset),
        seconds=None if since_ms is None or since_ms < 0 else max(now_ms - since_ms, 0) / 1000,
    )


async def _sample(
    cluster: Cluster, partitions: Collection[TopicPartition], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, _Sample]:
    """The first batch that waits in each partition; those whose leader does not tell are left out."""
    samples = await asyncio.gather(
        *(_sample_one(cluster, partition, positions[partition]) for partition in partitions)
    )
    return {
        partition: sample for partition, sample in zip(partitions, samples, strict=True) if sample is not None
    }


async def _sample_one(
    cluster: Cluster, partition: TopicPartition, offset: int, replica: int | None = None
) -> _Sample | None:
    """One partition a request: only the first of a request is sure to be answered with a whole batch. Asked
    of its leader, or of the replica that the leader names.
    """
    node_id = cluster.leader(partition) if replica is None else replica
    if node_id is None:
        return None
    asked = [PartitionPosition(topic_partition=partition, offset=offset, max_bytes=1)]
    terms = FetchTerms(max_wait_ms=0, min_bytes=0, max_bytes=1, read_committed=True)
    request = build_fetch(asked, terms, cluster.metadata)
    connection = await cluster.connection(node_id)
    version = connection.version_of(FetchRequest, at_most=version_limit(asked, cluster.metadata))
    for _, data in read_fetch(await connection.request(request, version), request):
        if replica is None and data.preferred_read_replica >= 0:
            return await _sample_one(cluster, partition, offset, data.preferred_read_replica)
        if not data.error_code:
            return _read_sample(data.records or b"")
    return None


def _read_sample(records: Buffer) -> _Sample | None:
    if len(records) <= MAGIC_POSITION or records[MAGIC_POSITION] < 2:
        return None
    try:
        header = read_header(records)
    except CorruptRecordsError:
        return None
    size_per_offset = header.size / (header.last_offset_delta + 1)
    return _Sample(timestamp_ms=header.base_timestamp, bytes_per_offset=size_per_offset)
