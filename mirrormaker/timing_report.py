"""How a route keeps up, out of what its daemon tells, for `status`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from mirrormaker.flow.lag import Lag
from mirrormaker.flow.timing.histogram import percentile_ms
from mirrormaker.partition_status import PartitionStatus
from mirrormaker.topology.model import Objectives

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def describe_time(at_ms: int) -> str:
    """For people, in UTC. Whoever writes a record of a pause may say any time."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"  # in no year that has four digits


def summarize_latency(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Percentiles of the last minutes in seconds, over all that was measured; None where nothing was.
    `basis`: what the timestamps are, `mixed` where topics differ.
    """
    merged: dict[int, int] = {}
    bases: list[str] = []
    for basis, kind in told.get("latency", {}).items():
        if kind["recent"]:
            bases.append(basis)
        for bucket, count in kind["recent"].items():
            merged[int(bucket)] = merged.get(int(bucket), 0) + count
    if not merged:
        return None
    summary: dict[str, Any] = {
        "basis": bases[0] if len(bases) == 1 else "mixed",
        "records": sum(merged.values()),
    }
    for name, part in PERCENTILES.items():
        took_ms = percentile_ms(merged, part)
        assert took_ms is not None
        summary[f"{name}_seconds"] = round(took_ms / 1000, 6)
    return summary


def judge_objective(
    objectives: Objectives, told: Mapping[str, Any], lag: Lag | None
) -> dict[str, Any] | None:
    """Whether the route keeps its objective: by what its daemon here tells, and by the lag as it was found of
    partitions that it does not have. None where nothing is promised.
    """
    judged, seconds = told.get("objective"), None if lag is None else lag.seconds
    if judged is None or judged["lag_seconds"] is None:
        if objectives.lag_seconds is None:
            return None
        judged = {"lag_seconds": objectives.lag_seconds, "state": "unknown", "lag": None}
    if seconds is None or (judged["state"] == "breached" and seconds <= judged["lag_seconds"]):
        return dict(judged)
    state = "breached" if seconds > judged["lag_seconds"] else "kept"
    return {**judged, "state": state, "lag": max(judged["lag"] or 0.0, seconds)}


def describe_latency(summary: Mapping[str, Any] | None) -> str:
    """For a column of a table."""
    if summary is None:
        return "-"
    return " / ".join(_span(summary[f"{name}_seconds"]) for name in PERCENTILES)


def timing_lines(
    route: str, objective: Mapping[str, Any] | None, partitions: tuple[PartitionStatus, ...]
) -> Iterator[str]:
    """What is late, and what will be lost if that goes on."""
    if objective is not None and objective["state"] == "breached":
        lag = objective["lag"]
        said = "lags" if lag is None else f"lags {lag:,.1f} s"
        yield f"{route}: {said}, its objective is {objective['lag_seconds']:,} s"
    for partition in partitions:
        risk = partition.retention
        if risk is not None and risk["in_danger"]:
            left = _span(risk["seconds"])
            what = f"{partition.source} loses what is not copied in {left} at this rate"
            yield f"{route}: {what} ({risk['deleted_by']})"


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:,.0f} ms"
    if seconds < 120:
        return f"{seconds:,.1f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
