"""Audits of the routes of a topology, one after the other: each is a hop of whatever ways lead through it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker.audit.deep import DeepAudit
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.outcome import RouteAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView, view_route
from mirrormaker.audit.time_bounds import time_bounds
from mirrormaker.audit.time_offsets import TimeOffsets
from mirrormaker.audit.window_tally import WindowTally
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.clusters import open_cluster
from mirrormaker.reconcile.pauses import find_route
from mirrormaker.topology.model import RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

WHENEVER = TimeWindow()
NAMES_SHOWN = 5
"""Of topics, in one problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOrder:
    """What is to be audited."""

    routes: tuple[str, ...] = ()
    """By name; all of the file when there are none."""
    topics: tuple[str, ...] = ()
    """Of sources; all when there are none."""
    window: TimeWindow = WHENEVER
    span_ms: int | None = None
    """Spans that are counted one by one; None: all as one."""
    is_deep: bool = False


async def audit_routes(topology: Topology, order: AuditOrder) -> list[RouteAudit]:
    """The audits, in the order of the file. Clusters that cannot be asked are told in `problem`, and so are
    topics of the order that none of the sources has.

    Raises ConfigurationError for routes and topics that the file does not have.
    """
    audits = [(route, await _audit_route(topology, route, order)) for route in chosen_routes(topology, order)]
    found = {partition.source.topic for _, audit in audits for partition in audit.partitions}
    missing = [topic for topic in order.topics if topic not in found]
    for route, audit in audits:
        if audit.problem is None:
            audit.problem = _lack(route, missing)
    return [audit for _, audit in audits]


def _lack(route: RouteSpec, missing: Iterable[str]) -> str | None:
    """What to say of topics that the route would take from its source."""
    naming = compile_naming(route.source, route.topics)
    told = [f"cluster {route.source!r} has no topic {topic!r}" for topic in missing if naming.selects(topic)]
    return "; ".join(told) or None


def chosen_routes(topology: Topology, order: AuditOrder) -> list[RouteSpec]:
    """The routes that the order means. Raises ConfigurationError."""
    routes = [find_route(topology, name) for name in order.routes] or list(topology.routes)
    if not order.topics:
        return routes
    found = [
        route
        for route in routes
        if any(compile_naming(route.source, route.topics).selects(topic) for topic in order.topics)
    ]
    if not found:
        raise ConfigurationError([f"no route takes {', '.join(order.topics)}"])
    return found


async def _audit_route(topology: Topology, route: RouteSpec, order: AuditOrder) -> RouteAudit:
    audit = RouteAudit(
        route=route.name, source=route.source, destination=route.destination, is_deep=order.is_deep
    )
    spec = topology.clusters[route.source]
    try:
        async with (
            open_cluster(spec) as source,
            open_cluster(topology.clusters[route.destination]) as destination,
        ):
            view = await view_route(route, spec, source, destination, order.window, order.topics)
            await _audit_partitions(view, source, order, audit)
    except BrokerError as error:
        audit.problem = str(error)
    return audit


async def _audit_partitions(view: RouteView, source: Cluster, order: AuditOrder, audit: RouteAudit) -> None:
    """Raises BrokerError."""
    by_ledger = LedgerAudit(view)
    by_window = order.span_ms is not None
    deep = DeepAudit(view, (lambda: WindowTally(order.window, order.span_ms)) if by_window else None)
    windows = await _windows(view, source, order)
    _add_sums(view, audit)
    untold = set[str]()
    for partition in view.partitions:
        spans = [(window, found[partition]) for window, found in windows]
        judged = await by_ledger.partition(partition, spans)
        if order.is_deep and not view.is_to_begin(partition):
            counts = judged.windows
            judged = await deep.partition(partition)
            judged.windows = counts
            if judged.findings.has_differences and (topics := view.untold_topics(partition)):
                judged.findings.drop_differences()  # compaction, or times of the log, may be all of it
                untold |= topics
        audit.partitions.append(judged)
        audit.bytes_read = by_ledger.bytes + deep.bytes
    if untold:
        audit.problem = f"settings of {len(untold)} topics that differ are not told: {_some(untold)}"


def _some(names: Collection[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(sorted(names)[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _add_sums(view: RouteView, audit: RouteAudit) -> None:
    """Take in what the ledger has added up of partitions."""
    judged = frozenset(view.partitions)
    for (source, to), passes in view.passes.items():
        if source not in judged:
            continue
        sums = [page for each in passes for page in each.sums]
        if to.topic not in view.rewritten_destinations:
            audit.written.setdefault(to, []).extend(sums)
        if len(view.own_lanes(source)) == 1:
            audit.read[source] = sums


Windows = Sequence[tuple[TimeWindow, dict[TopicPartition, Range]]]


async def _windows(view: RouteView, source: Cluster, order: AuditOrder) -> Windows:
    """The spans to count by, with the source offsets of each. Raises BrokerError."""
    if order.span_ms is None:
        return [(order.window, dict(view.windows))]
    if order.is_deep:
        return []  # they are counted as they are read
    bounds = await time_bounds(source, view.partitions)
    if bounds is None:
        return []
    try:
        windows = list(order.window.cut(order.span_ms, *bounds))
    except ValueError as error:
        raise ConfigurationError([str(error)]) from error
    times = TimeOffsets(source, view.partitions, slack_ms=order.span_ms)
    counted: list[tuple[TimeWindow, dict[TopicPartition, Range]]] = []
    for index, window in enumerate(windows):
        if index == len(windows) - 1 and order.window.to_ms is None:
            window = replace(window, to_ms=None)
        found = await times.of(window)
        counted.append(
            (window, {each: offsets.within(view.windows[each]) for each, offsets in found.items()})
        )
    return counted
