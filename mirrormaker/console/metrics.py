"""The daemon's picture of itself (`Daemon.describe`) as metrics for Prometheus. Pure.

Totals begin anew when a route does, which Prometheus knows how to take; those of a route with several workers
go on when one of them does (`workers/totals`). Lag is what this process sees of the partitions that it copies
itself: `mirrormaker status` asks the clusters, this does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mirrormaker.console.audit_metrics import audit_metrics
from mirrormaker.console.failover_metrics import failover_metrics
from mirrormaker.console.ledger_metrics import group_metrics, ledger_metrics
from mirrormaker.console.pipeline_metrics import pipeline_metrics
from mirrormaker.console.timing_metrics import timing_metrics, writer_metrics

_ROUTE_COUNTERS: Mapping[str, tuple[str, str]] = {
    "batches": ("mirrormaker_batches", "Batches that the destination acknowledged."),
    "bytes": ("mirrormaker_bytes", "Bytes of those, as stored."),
    "records": ("mirrormaker_records", "Records in those."),
    "requests": ("mirrormaker_produce_requests", "Produce requests sent."),
    "repeated_chunks": ("mirrormaker_repeated_chunks", "Pieces of requests that had to be sent again."),
    "control_batches_dropped": ("mirrormaker_control_batches_dropped", "Transaction markers left out."),
    "aborted_batches_dropped": (
        "mirrormaker_aborted_batches_dropped",
        "Batches of aborted transactions left out.",
    ),
    "records_maybe_lost": (
        "mirrormaker_records_maybe_lost",
        "At most once: records given up without knowing whether they arrived.",
    ),
    "transactions": ("mirrormaker_transactions", "Exactly once: transactions committed."),
    "buckets_lost": ("mirrormaker_buckets_lost", "Exactly once: buckets given up or taken by others."),
    "returned_batches_dropped": (
        "mirrormaker_returned_batches_dropped",
        "Batches left out as they have been at the destination, or come there by another route.",
    ),
    "filtered_records": ("mirrormaker_filtered_records", "Records dropped by filters and functions here."),
    "bytes_left_at_source": (
        "mirrormaker_bytes_left_at_source",
        "Left out by the source's nodes for the route's filters: bytes that did not cross the link.",
    ),
    "offsets_lost_at_source": (
        "mirrormaker_offsets_lost_at_source",
        "Offsets that went away at the source before they were copied.",
    ),
}
_ROUTE_COUNTERS_BY_LABEL: Mapping[str, tuple[str, str, str]] = {
    "deep_batches": ("mirrormaker_deep_batches", "Batches decoded and built anew.", "reason"),
    "troubles": (
        "mirrormaker_troubles",
        "What partitions could not go on for, by the name of the failure policy.",
        "reason",
    ),
    "left_out": (
        "mirrormaker_records_left_out",
        "Records, or batches, noted or parked instead of copied.",
        "reason",
    ),
    "errors": ("mirrormaker_errors", "Refusals and failures at the destination.", "error"),
}


def metrics_text(picture: Mapping[str, Any]) -> bytes:
    """The metrics of a picture in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Pictured(picture))
    return generate_latest(registry)


class _Pictured(Collector):
    def __init__(self, picture: Mapping[str, Any]) -> None:
        self._picture = picture

    def collect(self) -> Iterable[Metric]:
        """Every family of metrics, with its samples."""
        yield from _topology_metrics(self._picture["topology"])
        yield from _process_metrics(self._picture)
        routes: Mapping[str, Mapping[str, Any]] = self._picture["routes"]
        yield from _route_metrics(routes)
        yield from _cluster_metrics(self._picture.get("clusters", {}))
        yield from _count_metrics(routes)
        yield from ledger_metrics(routes)
        yield from audit_metrics(routes)
        yield from group_metrics(routes)
        yield from timing_metrics(routes, self._picture["at_ms"])
        yield from writer_metrics(self._picture.get("heartbeats", {}))
        yield from failover_metrics(routes, self._picture.get("failover_groups", {}))
        yield from _way_metrics(routes)
        yield from _link_metrics(self._picture.get("links", ()))
        yield from pipeline_metrics(self._picture.get("pipelines", {}))
        yield from _partition_metrics(routes, self._picture["at_ms"])


def _topology_metrics(topology: Mapping[str, Any]) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "mirrormaker_topology_generation", "Generation of the file in force.", topology["generation"]
    )
    yield GaugeMetricFamily(
        "mirrormaker_topology_refused",
        "1: the file as it is now is not in force.",
        int(topology["problem"] is not None),
    )
    yield CounterMetricFamily(
        "mirrormaker_topology_reloads", "Changed topologies put in force.", topology["reloads"]
    )
    yield CounterMetricFamily(
        "mirrormaker_topology_reload_failures", "Changed topologies refused.", topology["reload_failures"]
    )


def _process_metrics(picture: Mapping[str, Any]) -> Iterable[Metric]:
    """The daemon is 0, its workers are counted from 1."""
    memory = GaugeMetricFamily(
        "mirrormaker_process_resident_bytes", "Memory of the daemon, 0, and its workers.", labels=["worker"]
    )
    cpu = CounterMetricFamily(
        "mirrormaker_process_cpu_seconds", "Processor time since the process began.", labels=["worker"]
    )
    up = GaugeMetricFamily("mirrormaker_worker_up", "1: the worker has told of itself.", labels=["worker"])
    restarts = CounterMetricFamily(
        "mirrormaker_worker_restarts", "Processes of the worker that had to be replaced.", labels=["worker"]
    )
    memory.add_metric(["0"], picture["resident_bytes"])
    cpu.add_metric(["0"], picture["cpu_seconds"])
    for worker in picture["workers"]:
        label = [str(worker["number"])]
        up.add_metric(label, int(worker["state"] == "running"))
        restarts.add_metric(label, worker["restarts"])
        if worker["resident_bytes"] is not None:
            memory.add_metric(label, worker["resident_bytes"])
            cpu.add_metric(label, worker["cpu_seconds"])
    yield from (memory, cpu, up, restarts)


def _route_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    states = GaugeMetricFamily(
        "mirrormaker_route_state", "1 for the state that the route is in.", labels=["route", "state"]
    )
    halted = GaugeMetricFamily(
        "mirrormaker_route_halted",
        "1 while it cannot go on as a whole, by the name of the failure policy that is about that.",
        labels=["route", "reason"],
    )
    failures = GaugeMetricFamily(
        "mirrormaker_route_failures", "How often in a row the route failed as a whole.", labels=["route"]
    )
    buffered = GaugeMetricFamily(
        "mirrormaker_buffered_bytes", "Memory for what is fetched and not yet acknowledged.", labels=["route"]
    )
    obstacles = GaugeMetricFamily(
        "mirrormaker_obstructed_topics", "Topics that are selected and cannot be copied.", labels=["route"]
    )
    drift = GaugeMetricFamily(
        "mirrormaker_drift",
        "Differences at the destination that the daemon does not repair.",
        labels=["route", "kind"],
    )
    unread = GaugeMetricFamily(
        "mirrormaker_control_unread",
        "1 while what is wished of the route (pauses, halts, switches) cannot be read at its destination.",
        labels=["route"],
    )
    for name, route in routes.items():
        unread.add_metric([name], route["control_problem"] is not None)
        for kind, count in Counter(one["kind"] for one in route.get("drift", ())).items():
            drift.add_metric([name, kind], count)
        states.add_metric([name, route["state"]], 1)
        if route["reason"] is not None:
            halted.add_metric([name, route["reason"]], 1)
        failures.add_metric([name], route["failures"])
        buffered.add_metric([name], route.get("buffered_bytes", 0))
        obstacles.add_metric([name], len(route.get("obstacles", ())))
    yield from (states, halted, failures, buffered, obstacles, drift, unread)


def _cluster_metrics(clusters: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    drift = GaugeMetricFamily(
        "mirrormaker_cluster_drift",
        "Differences of topics that the file asks for, and that the daemon does not repair.",
        labels=["cluster", "kind"],
    )
    for name, told in clusters.items():
        for kind, count in Counter(one["kind"] for one in told["drift"]).items():
            drift.add_metric([name, kind], count)
    yield drift


def _count_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    counting = {name: route["counts"] for name, route in routes.items() if "counts" in route}
    for key, (metric, meaning) in _ROUTE_COUNTERS.items():
        family = CounterMetricFamily(metric, meaning, labels=["route"])
        for name, counts in counting.items():
            family.add_metric([name], counts[key])
        yield family
    for key, (metric, meaning, label) in _ROUTE_COUNTERS_BY_LABEL.items():
        family = CounterMetricFamily(metric, meaning, labels=["route", label])
        for name, counts in counting.items():
            for value, count in counts[key].items():
                family.add_metric([name, value], count)
        yield family


def _way_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    trips = GaugeMetricFamily(
        "mirrormaker_round_trip_seconds",
        "Shortest round trip of the last minutes.",
        labels=["route", "side", "node"],
    )
    depth = GaugeMetricFamily(
        "mirrormaker_in_flight_bytes_max", "What may be under way to one destination node.", labels=["route"]
    )
    limit = GaugeMetricFamily(
        "mirrormaker_route_limit_bytes_per_second",
        "The least limit of route and link that holds now, of this process.",
        labels=["route"],
    )
    bound = GaugeMetricFamily(
        "mirrormaker_window_bound_partitions",
        "Partitions of which batches are gathered, since five under way did not fill the way.",
        labels=["route"],
    )
    throttled = CounterMetricFamily(
        "mirrormaker_route_throttled_seconds", "Time in which a limit kept pieces waiting.", labels=["route"]
    )
    for name, route in routes.items():
        way = route.get("link")
        if way is None:
            continue
        for side, nodes in way["round_trip_ms"].items():
            for node, took_ms in nodes.items():
                trips.add_metric([name, side, node], took_ms / 1000)
        if way["in_flight_bytes"] is not None:
            depth.add_metric([name], way["in_flight_bytes"])
        if way["limit"] is not None:
            limit.add_metric([name], way["limit"])
        throttled.add_metric([name], way["throttled_ms"] / 1000)
        bound.add_metric([name], way["window_bound"])
    yield from (trips, depth, limit, throttled, bound)


def _link_metrics(links: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    labels = ["source", "destination"]
    sent = CounterMetricFamily(
        "mirrormaker_link_bytes", "Sent by all routes between two clusters.", labels=labels
    )
    limit = GaugeMetricFamily(
        "mirrormaker_link_limit_bytes_per_second",
        "The limit that holds now, of this process; no sample: there is none.",
        labels=labels,
    )
    for link in links:
        key = [link["from"], link["to"]]
        sent.add_metric(key, link["bytes"])
        if link["limit"] is not None:
            limit.add_metric(key, link["limit"])
    yield from (sent, limit)


def _partition_metrics(routes: Mapping[str, Mapping[str, Any]], at_ms: int) -> Iterable[Metric]:
    labels = ["route", "topic", "partition"]
    states = GaugeMetricFamily(
        "mirrormaker_partition_state", "1 for the state that it is in.", labels=[*labels, "state"]
    )
    acknowledged = GaugeMetricFamily(
        "mirrormaker_partition_acknowledged_offset",
        "Source offset up to which the destination has everything.",
        labels=labels,
    )
    messages = GaugeMetricFamily(
        "mirrormaker_partition_lag_messages", "Source offsets still to be acknowledged.", labels=labels
    )
    lag_bytes = GaugeMetricFamily(
        "mirrormaker_partition_lag_bytes", "The same in bytes, estimated.", labels=labels
    )
    seconds = GaugeMetricFamily(
        "mirrormaker_partition_lag_seconds",
        "How long the oldest record still to be acknowledged has been at the source.",
        labels=labels,
    )
    halted = GaugeMetricFamily(
        "mirrormaker_partition_halted",
        "1 while it stands, by the name of the failure policy that is about that.",
        labels=[*labels, "reason"],
    )
    for name, route in routes.items():
        for source, standing in (route.get("not_begun", {}) | route["partitions"]).items():
            key = [name, *_place(source)]
            if standing["reason"] is not None:
                halted.add_metric([*key, standing["reason"]], 1)
            states.add_metric([*key, standing["state"]], 1)
        for source, partition in route["partitions"].items():
            key = [name, *_place(source)]
            acknowledged.add_metric(key, partition["acknowledged"])
            if partition["source_end"] < 0:
                continue  # not heard of yet
            lag = max(partition["source_end"] - partition["waits_from"], 0)
            messages.add_metric(key, lag)
            if not lag or partition["bytes_per_offset"] is not None:
                lag_bytes.add_metric(key, lag * (partition["bytes_per_offset"] or 0))
            since_ms = partition["waiting_since_ms"]
            if not lag or since_ms is not None:
                seconds.add_metric(key, max(at_ms - since_ms, 0) / 1000 if lag else 0)
    yield from (states, halted, acknowledged, messages, lag_bytes, seconds)


def _place(source: str) -> tuple[str, str]:
    """Topic and number of a partition."""
    topic, _, number = source.rpartition("-")
    return topic, number
