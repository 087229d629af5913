"""How every route of a topology stands: lag, asked of the clusters, and what the daemon tells of its work.

Positions and ends come from the clusters themselves, so the figures hold whether a daemon runs here,
elsewhere, or not at all. What only the daemon on this `data_dir` knows is read from its state: why a
partition does not move, how long records have been waiting, how large they are. Where it does not know, the
first batch that waits is looked at: then seconds are the age of that batch by its own timestamp.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker.clusters import OPEN_TIMEOUT_MS, open_cluster
from mirrormaker.control_access import read_control
from mirrormaker.flow.books import Written
from mirrormaker.flow.lag import NO_LAG, Lag
from mirrormaker.ledger.resting_places import find_resting_places
from mirrormaker.partition_status import PartitionStatus, is_hidden, observe_partitions
from mirrormaker.reconcile.active_sides import ActiveSide, attend, find_active_sides
from mirrormaker.reconcile.control import RouteWishes
from mirrormaker.reconcile.halts import describe_halts
from mirrormaker.reconcile.switch_board import describe_switch
from mirrormaker.route_groups import route_group
from mirrormaker.state import StateDirectory
from mirrormaker.timing_report import judge_objective, summarize_latency
from mirrormaker.topology.document import full_path, read_text
from mirrormaker.topology.loader import load_topology, parse_topology
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology
from mirrormaker.topology.readers.document import DEFAULT_DATA_DIR

QUERY_TIMEOUT_MS = 10_000
SILENCE_MS = 10_000
"""A daemon tells of itself every second: what is so much older is told to be so."""
STANDING_BY = "standing by"
"""A route whose failover group is at work in the other direction: nothing waits for it."""
RUNNING = "running"
PAUSING = "pausing"
"""A route that is to pause, and finishes what is under way."""
AT_WORK = frozenset({RUNNING, "starting", PAUSING})
LEDGER_TIMEOUT_MS = 5_000
_DATA_DIR = re.compile(r"""^data_dir:[ \t]*["']?([^"'#\n]+?)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStatus:
    """One route. `problem` says why there are no figures, or what is wrong with it as a whole."""

    name: str
    source: ClusterName
    destination: ClusterName
    state: str
    """The daemon's word for it; "pausing" while it finishes what is under way, "stopped" when no daemon runs
    here, "disabled" when the file says so.
    """
    problem: str | None
    lag: Lag | None
    partitions: tuple[PartitionStatus, ...] = ()
    obstacles: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    link: Mapping[str, Any] = field(default_factory=dict)
    """The way that it takes: round trips, depth, limit and its use; empty while the route is not at work."""
    events: tuple[Mapping[str, Any], ...] = ()
    begun_anew: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Topics that the daemon keeps, and that were deleted while it used them: `cluster`, `at_ms`."""
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
    audit: Mapping[str, Any] = field(default_factory=dict)
    """What the audits of the daemon found (`AuditWatch.describe`); empty when no daemon here runs it."""
    switch: Mapping[str, Any] | None = None
    """The last switch of the failover group that it is in, as `reconcile.switch_board` describes it."""
    halts: tuple[Mapping[str, Any], ...] = ()
    """Partitions that stand by a failure policy, as `reconcile.halts` keeps them."""
    latency: Mapping[str, Any] | None = None
    """Percentiles of the last minutes (`timing_report`); None where nothing was measured."""
    objective: Mapping[str, Any] | None = None
    """Whether it keeps its lag objective; None where it has none."""
    heartbeats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the id of the cluster where it was born, the heartbeat that the route brought last."""


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
    """None when no daemon runs here, or it has told nothing yet."""
    routes: tuple[RouteStatus, ...]
    daemon_problem: str | None = None
    """Why what is told of the daemon here may be true no more."""
    workers: tuple[Mapping[str, Any], ...] = ()
    """The processes of the daemon here that run routes with several workers (`workers/pool`)."""
    pipelines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The pipelines that the daemon here keeps to their schedules (`pipelines/keeper`)."""
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For clusters that the file asks for topics at: `problem`, why they were not compared, or None; `drift`,
    what differs and is left so.
    """
    heartbeats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For clusters where the daemon here writes heartbeats: how many, and the `problem` where it cannot."""
    failover_groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the daemon here found that only the idle side of a group has (`failover/tail_watch`)."""


def load_for_status(file: Path) -> Topology:
    """The topology to show the status of: `file`, or what a daemon that follows it has in force while that
    has errors, or is refused. Raises ConfigurationError with the errors when there is no such daemon.
    """
    try:
        topology = load_topology(file)
    except ConfigurationError:
        in_force = _topology_in_force(file, _data_dir_of_text(file))
        if in_force is None:
            raise
        return in_force
    return _topology_in_force(file, topology.data_dir, if_refused=True) or topology


def _data_dir_of_text(file: Path) -> Path:
    """That of a file with errors. Raises ConfigurationError where it leads nowhere."""
    said = _DATA_DIR.search(read_text(file))
    return full_path(file.resolve().parent, said[1] if said else DEFAULT_DATA_DIR)


def _topology_in_force(file: Path, data_dir: Path, *, if_refused: bool = False) -> Topology | None:
    """That of the daemon at work on `data_dir`; None where none is, or it follows another file, or, with
    `if_refused`, where it has not refused what this one holds.
    """
    directory = StateDirectory(data_dir)
    state = directory.read() if directory.is_locked() else None
    kept = directory.kept_topology()
    if state is None or kept is None or Path(state["topology"]["file"]).resolve() != file.resolve():
        return None
    if if_refused and state["topology"]["problem"] is None:
        return None
    try:
        return parse_topology(kept, file)
    except ConfigurationError:
        return None


async def read_status(
    topology: Topology,
    clock: Clock,
    state: Mapping[str, Any] | None = None,
    *,
    routes: Sequence[RouteSpec] | None = None,
    topics: Collection[str] = (),
) -> Status:
    """The status of every route, in the file's order, or of `routes` alone, and of these topics of theirs. A
    cluster that cannot be asked is told in `problem`. `state`: what the daemon tells, when it is it that
    asks; else its state directory says.
    """
    daemon_problem = None
    if state is None:
        directory = StateDirectory(topology.data_dir)
        state = {}
        if directory.is_locked():
            state = directory.read() or {}
            daemon_problem = _describe_silence(state.get("at_ms"), clock.now_ms())
    groups = {} if state.get("routes") else await attend(topology, await find_active_sides(topology))
    asked = topology.routes if routes is None else routes
    told = await asyncio.gather(*(_tell(topology, route, state, groups) for route in asked))
    by_source: dict[ClusterName, list[tuple[RouteSpec, Mapping[str, Any]]]] = defaultdict(list)
    for route, each in zip(asked, told, strict=True):
        by_source[route.source].append((route, each))
    at_ms = state.get("at_ms")
    parts = await asyncio.gather(
        *(_observe_from(topology, name, part, at_ms, clock) for name, part in by_source.items())
    )
    seen = {route.name: route for part in parts for route in part}
    return Status(
        topology=_topology_status(state.get("topology")),
        daemon_problem=daemon_problem,
        routes=tuple(
            replace(_of_topics(seen[route.name], topics), datacenters=_datacenters(topology, route))
            for route in asked
        ),
        workers=tuple(state.get("workers", ())),
        clusters=state.get("clusters", {}),
        heartbeats=state.get("heartbeats", {}),
        failover_groups=state.get("failover_groups", {}),
        pipelines=state.get("pipelines", {}),
    )


def _describe_silence(told_ms: int | None, now_ms: int) -> str | None:
    """Of the daemon that runs here, None where it is none. `told_ms`: when it told last."""
    if told_ms is None:
        return "it has told nothing yet"
    if now_ms - told_ms < SILENCE_MS:
        return None
    return f"it has told nothing for {(now_ms - told_ms) // 1000} s: what is told of it is older"


def _of_topics(route: RouteStatus, topics: Collection[str]) -> RouteStatus:
    """What the status says of these topics; of all where none is named."""
    if not topics:
        return route
    partitions = tuple(partition for partition in route.partitions if partition.source.topic in topics)
    return replace(
        route,
        partitions=partitions,
        lag=route.lag and Lag.total([partition.lag for partition in partitions]),
        obstacles={topic: why for topic, why in route.obstacles.items() if topic in topics},
        paused_topics={topic: pause for topic, pause in route.paused_topics.items() if topic in topics},
        halts=tuple(halt for halt in route.halts if halt["topic"] in topics),
    )


def _datacenters(topology: Topology, route: RouteSpec) -> tuple[str | None, str | None]:
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


async def _tell(
    topology: Topology, route: RouteSpec, state: Mapping[str, Any], groups: Mapping[str, ActiveSide]
) -> Mapping[str, Any]:
    """What is known of a route without its source. `groups`: where failover groups are, where no daemon
    tells.
    """
    told: Mapping[str, Any] = state.get("routes", {}).get(route.name) or await _tell_wishes(topology, route)
    if (where := groups.get(route.failover_group or "")) is not None:
        told = {**told, **_tell_switch(route, where)}
    return told


async def _observe_from(
    topology: Topology,
    name: ClusterName,
    routes: Sequence[tuple[RouteSpec, Mapping[str, Any]]],
    told_at_ms: int | None,
    clock: Clock,
) -> list[RouteStatus]:
    """Of all routes from one cluster, on the same connections; each with what is told of it."""
    awake = [(route, told) for route, told in routes if _state_of(route, told) != STANDING_BY]
    seen = [
        _route_status(route, told, None, NO_LAG, ())
        for route, told in routes
        if _state_of(route, told) == STANDING_BY
    ]
    if not awake:
        return seen
    try:
        async with open_cluster(topology.clusters[name]) as source:
            looks = (_observe(topology, route, source, told, told_at_ms, clock) for route, told in awake)
            return seen + await asyncio.gather(*looks)
    except BrokerError as error:
        return seen + [_route_status(route, told, str(error), None, ()) for route, told in awake]


async def _observe(
    topology: Topology,
    route: RouteSpec,
    source: Cluster,
    told: Mapping[str, Any],
    told_at_ms: int | None,
    clock: Clock,
) -> RouteStatus:
    """Where the source does not say how a route stands, that is told."""
    try:
        async with (
            asyncio.timeout(QUERY_TIMEOUT_MS / 1000),
            route_group(route, topology.clusters[route.source], source, timeout_ms=QUERY_TIMEOUT_MS) as group,
        ):
            at_work = _state_of(route, told) in AT_WORK
            look = None if at_work else partial(_find_written, topology, route, source)
            partitions = await observe_partitions(
                route, source, group, told, told_at_ms, clock, find_written=look
            )
            is_blind = not partitions and await is_hidden(route, source, told)
    except (BrokerError, TimeoutError) as error:
        problem = str(error) or f"cluster {route.source!r}: no answer within {QUERY_TIMEOUT_MS} ms"
        return _route_status(route, told, problem, None, ())
    lag = None if is_blind else Lag.total([partition.lag for partition in partitions])
    return _route_status(route, told, None, lag, partitions)


async def _find_written(
    topology: Topology, route: RouteSpec, source: Cluster, partitions: Mapping[TopicPartition, str]
) -> Written:
    """What the destination has written; nothing where it does not say so in time."""
    try:
        async with (
            asyncio.timeout(LEDGER_TIMEOUT_MS / 1000),
            open_cluster(topology.clusters[route.destination]) as destination,
        ):
            return await find_resting_places(route, source, destination, partitions)
    except (BrokerError, TimeoutError):
        return Written()


async def _tell_wishes(topology: Topology, route: RouteSpec) -> Mapping[str, Any]:
    """What the destination tells where no daemon does, or why it cannot be asked."""
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_MS / 1000):
            wishes = (await read_control(topology.clusters[route.destination])).get(route.name, RouteWishes())
    except (BrokerError, TimeoutError) as error:
        problem = str(error) or f"cluster {route.destination!r}: no answer within {OPEN_TIMEOUT_MS} ms"
        return {"control_problem": problem}
    told: dict[str, Any] = {
        "paused_topics": {topic: asdict(pause) for topic, pause in wishes.topics.items()},
        "halts": describe_halts(wishes.halts),
    }
    return told if wishes.pause is None else {**told, "pause": asdict(wishes.pause), "state": "paused"}


def _tell_switch(route: RouteSpec, where: ActiveSide) -> Mapping[str, Any]:
    """As a daemon would."""
    command = next(iter(where.commands.values()), None)
    switch = describe_switch(where.group, where.switch, command, is_attended=where.is_attended)
    told: dict[str, Any] = {"switch": switch}
    if not where.runs(route):
        told["state"] = STANDING_BY
    elif not route.enabled:
        told["state"] = "stopped"
    return told


def _state_of(route: RouteSpec, told: Mapping[str, Any]) -> str:
    """Which routes of a failover group run is not the file's to say."""
    if told.get("pause") is not None and told.get("state") in AT_WORK:
        return PAUSING
    if route.enabled or "state" in told:
        return str(told.get("state", "stopped"))
    return "disabled" if route.failover_group is None else STANDING_BY


def _lag_elsewhere(partitions: Sequence[PartitionStatus], told: Mapping[str, Any]) -> Lag:
    """Of those that no daemon here has: none runs the route now, one on another host has them, or their
    topic stands.
    """
    here = told.get("partitions", {})
    return Lag.total([partition.lag for partition in partitions if str(partition.source) not in here])


def _control_problem(told: Mapping[str, Any]) -> str | None:
    """Why nobody knows what is wished of the route; one at work goes on without."""
    problem: str | None = told.get("control_problem")
    if problem is None or told.get("state") != RUNNING:
        return problem
    return f"what is wished of it is not known: {problem}"


def _route_status(
    route: RouteSpec,
    told: Mapping[str, Any],
    problem: str | None,
    lag: Lag | None,
    partitions: tuple[PartitionStatus, ...],
) -> RouteStatus:
    """`problem`: why the source could not be asked."""
    problems = (told.get("error"), told.get("delivery_problem"), told.get("reconcile_problem"), problem)
    return RouteStatus(
        name=route.name,
        source=route.source,
        destination=route.destination,
        state=_state_of(route, told),
        problem=next(filter(None, problems), _control_problem(told)),
        lag=lag,
        partitions=partitions,
        obstacles=told.get("obstacles", {}),
        counts=told.get("counts", {}),
        link=told.get("link", {}),
        events=tuple(told.get("events", ())),
        begun_anew=told.get("begun_anew", {}),
        owner=route.owner,
        pause=told.get("pause"),
        paused_topics=told.get("paused_topics", {}),
        drift=tuple(told.get("drift", ())),
        ledger=told.get("ledger", {}),
        groups=told.get("groups", {}),
        audit=told.get("audit", {}),
        halts=tuple(told.get("halts", ())),
        latency=summarize_latency(told.get("timing", {})),
        heartbeats=told.get("timing", {}).get("heartbeats", {}),
        objective=judge_objective(
            route.objectives, told.get("timing", {}), lag and _lag_elsewhere(partitions, told)
        ),
        switch=told.get("switch"),
    )
