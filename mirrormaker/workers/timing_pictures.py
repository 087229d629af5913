"""How a route keeps up, out of what its workers tell, each of its own partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrormaker.workers.problems import told_once
from mirrormaker.workers.totals import added_up

_STATES = ("breached", "unknown", "kept", "none")
"""The first of them that a worker tells is that of the route."""


def merge_timings(pictures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One picture of several; at least one."""
    objectives = [picture["objective"] for picture in pictures if picture["objective"] is not None]
    return {
        "lag_seconds": _largest([picture["lag_seconds"] for picture in pictures]),
        "objective": _merge_objectives(objectives) if objectives else None,
        "in_danger": sum(picture["in_danger"] for picture in pictures),
        "problem": told_once(picture["problem"] for picture in pictures),
        "latency": added_up([picture["latency"] for picture in pictures]),
        "heartbeats": _newest([picture["heartbeats"] for picture in pictures]),
    }


def _merge_objectives(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worst is the route's; breaches of several at a time count as often, and as long."""
    since = [one["since_ms"] for one in told if one["since_ms"] is not None]
    return {
        "lag_seconds": next((one["lag_seconds"] for one in told if one["lag_seconds"] is not None), None),
        "state": min((one["state"] for one in told), key=_STATES.index),
        "since_ms": min(since, default=None),
        "lag": _largest([one["lag"] for one in told]),
        "worst": max(one["worst"] for one in told),
        "breaches": sum(one["breaches"] for one in told),
        "breached_ms": sum(one["breached_ms"] for one in told),
    }


def _newest(told: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """By cluster, what was born last: a worker that carries them no more tells of an old one."""
    found: dict[str, Any] = {}
    for cluster, heard in (item for one in told for item in one.items()):
        if cluster not in found or heard["born_ms"] > found[cluster]["born_ms"]:
            found[cluster] = heard
    return found


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
