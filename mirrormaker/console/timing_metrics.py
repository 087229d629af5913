"""How routes keep up, as metrics: latency, objectives, dangers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mirrormaker.flow.timing.histogram import BUCKETS, STEPS_PER_DOUBLING, upper_ms

_SHOWN = range(0, BUCKETS, STEPS_PER_DOUBLING)
"""A bucket for each doubling, 1 ms to twelve days, is what Prometheus is given."""


def timing_metrics(routes: Mapping[str, Mapping[str, Any]], at_ms: int) -> Iterable[Metric]:
    """Of all routes, as they are pictured at `at_ms`."""
    timings = {name: route["timing"] for name, route in routes.items() if "timing" in route}
    yield _latency(timings)
    yield from _objectives(timings)
    yield from _dangers(routes, timings)
    yield from _heard(timings, at_ms)


def writer_metrics(clusters: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of heartbeats as they are written."""
    written = CounterMetricFamily(
        "mirrormaker_heartbeats_written", "Heartbeats written at a source.", labels=["cluster"]
    )
    failing = GaugeMetricFamily(
        "mirrormaker_heartbeats_failing", "1 while none can be written there.", labels=["cluster"]
    )
    for name, told in clusters.items():
        written.add_metric([name], told["written"])
        failing.add_metric([name], told["problem"] is not None)
    yield from (written, failing)


def _latency(timings: Mapping[str, Mapping[str, Any]]) -> Metric:
    family = HistogramMetricFamily(
        "mirrormaker_latency_seconds",
        "From when records came to the source, as their timestamps (basis) and its end tell, until readers "
        "of the destination see them.",
        labels=["route", "basis"],
    )
    for name, timing in timings.items():
        for basis, kind in timing["latency"].items():
            counts = {int(bucket): count for bucket, count in kind["buckets"].items()}
            family.add_metric([name, basis], _cumulated(counts), kind["seconds"])
    return family


def _cumulated(counts: Mapping[int, int]) -> Sequence[tuple[str, float]]:
    shown = [
        (
            str(upper_ms(bucket) / 1000),
            float(sum(count for each, count in counts.items() if each <= bucket)),
        )
        for bucket in _SHOWN
    ]
    return [*shown, ("+Inf", float(sum(counts.values())))]


def _objectives(timings: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    lag = GaugeMetricFamily(
        "mirrormaker_route_lag_seconds",
        "How long the oldest record that is not copied yet has been at the source.",
        labels=["route"],
    )
    objective = GaugeMetricFamily(
        "mirrormaker_lag_objective_seconds", "What the file promises of that.", labels=["route"]
    )
    breached = GaugeMetricFamily(
        "mirrormaker_lag_objective_breached", "1 while the promise is not kept.", labels=["route"]
    )
    breaches = CounterMetricFamily(
        "mirrormaker_lag_objective_breaches", "How often that began.", labels=["route"]
    )
    breach_seconds = CounterMetricFamily(
        "mirrormaker_lag_objective_breach_seconds", "How long those lasted, all together.", labels=["route"]
    )
    for name, timing in timings.items():
        if timing["lag_seconds"] is not None:
            lag.add_metric([name], timing["lag_seconds"])
        if (told := timing["objective"]) is not None:
            if told["lag_seconds"] is not None:
                objective.add_metric([name], told["lag_seconds"])
                breached.add_metric([name], told["state"] == "breached")
            breaches.add_metric([name], told["breaches"])
            breach_seconds.add_metric([name], told["breached_ms"] / 1000)
    yield from (lag, objective, breached, breaches, breach_seconds)


def _heard(timings: Mapping[str, Mapping[str, Any]], at_ms: int) -> Iterable[Metric]:
    labels = ["route", "origin", "cluster"]
    age = GaugeMetricFamily(
        "mirrormaker_heartbeat_age_seconds",
        "Since the last heartbeat that the route brought was born, at the origin that its writer calls so.",
        labels=labels,
    )
    took = GaugeMetricFamily(
        "mirrormaker_heartbeat_latency_seconds",
        "From when that was born until readers of the destination saw it.",
        labels=labels,
    )
    for name, timing in timings.items():
        for cluster, heard in timing["heartbeats"].items():
            key = [name, heard["name"], cluster]
            age.add_metric(key, max(at_ms - heard["born_ms"], 0) / 1000)
            took.add_metric(key, max(heard["arrived_ms"] - heard["born_ms"], 0) / 1000)
    yield from (age, took)


def _dangers(
    routes: Mapping[str, Mapping[str, Any]], timings: Mapping[str, Mapping[str, Any]]
) -> Iterable[Metric]:
    in_danger = GaugeMetricFamily(
        "mirrormaker_partitions_in_danger",
        "Partitions of which the source will soon delete what is not copied.",
        labels=["route"],
    )
    left = GaugeMetricFamily(
        "mirrormaker_partition_retention_seconds",
        "Until the source deletes what is not copied, if all goes on as it does; no sample: it will not.",
        labels=["route", "topic", "partition"],
    )
    for name, timing in timings.items():
        in_danger.add_metric([name], timing["in_danger"])
        for source, partition in routes[name]["partitions"].items():
            if (risk := partition["retention"]) is not None:
                topic, _, number = source.rpartition("-")
                left.add_metric([name, topic, number], risk["seconds"])
    yield from (in_danger, left)
