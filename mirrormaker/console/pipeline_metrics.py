"""Pipelines of a daemon as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def pipeline_metrics(pipelines: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of all pipelines that are kept to a schedule."""
    label = ["pipeline"]
    states = GaugeMetricFamily(
        "mirrormaker_pipeline_state", "1 for the state that the pipeline is in.", labels=[*label, "state"]
    )
    runs = CounterMetricFamily("mirrormaker_pipeline_runs", "Runs that ended well.", labels=label)
    failures = CounterMetricFamily("mirrormaker_pipeline_failures", "Runs that failed.", labels=label)
    rows = GaugeMetricFamily("mirrormaker_pipeline_last_rows", "Rows that the last run read.", labels=label)
    bad = GaugeMetricFamily(
        "mirrormaker_pipeline_last_quarantined_rows", "Rows that it put into quarantine.", labels=label
    )
    ended = GaugeMetricFamily(
        "mirrormaker_pipeline_last_end_seconds", "When it ended, since the epoch.", labels=label
    )
    incomplete = GaugeMetricFamily(
        "mirrormaker_pipeline_incomplete", "Things that it was marked to lack.", labels=label
    )
    for name, told in pipelines.items():
        states.add_metric([name, told["state"]], 1)
        runs.add_metric([name], told["runs"])
        failures.add_metric([name], told["failures"])
        incomplete.add_metric([name], told["incomplete"])
        last = told["last"]
        if "rows_read" in last:
            rows.add_metric([name], last["rows_read"])
            bad.add_metric([name], last["rows_quarantined"])
        if last.get("ended_ms") is not None:
            ended.add_metric([name], last["ended_ms"] / 1000)
    yield from (states, runs, failures, rows, bad, ended, incomplete)
