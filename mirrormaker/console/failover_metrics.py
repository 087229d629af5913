"""Failover groups as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric


def failover_metrics(
    routes: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Mapping[str, Any]]
) -> Iterable[Metric]:
    """Of the groups that these routes, as `Daemon.describe` tells them, are in; `groups`: what it tells of
    these itself.
    """
    side = GaugeMetricFamily(
        "mirrormaker_failover_side",
        "1 for the cluster where the group is at work, and the stage of its last switch.",
        labels=["group", "cluster", "stage"],
    )
    epoch = GaugeMetricFamily(
        "mirrormaker_failover_epoch", "How often the group has been switched.", labels=["group"]
    )
    fenced = GaugeMetricFamily(
        "mirrormaker_failover_fenced_topics",
        "Topics at the side that is left that refuse producers, while a switch is under way.",
        labels=["group", "cluster"],
    )
    left = GaugeMetricFamily(
        "mirrormaker_failover_left",
        "1 while a switch of the group is on its way and no command is at work on it.",
        labels=["group"],
    )
    switches = {told["group"]: told for route in routes.values() if (told := route.get("switch"))}
    for group, told in switches.items():
        side.add_metric([group, told["cluster"], told["stage"]], 1)
        epoch.add_metric([group], told["epoch"])
        left.add_metric([group], told["problem"] is not None)
        for cluster in (told["home"], told["standby"]):
            fenced.add_metric([group, cluster], len(told["fenced"]) if cluster == told["fenced_at"] else 0)
    tail = GaugeMetricFamily(
        "mirrormaker_failover_tail_records",
        "Records found at the idle side of the group that the other side lacks.",
        labels=["group", "cluster"],
    )
    for group, told in groups.items():
        if told["looked_at_ms"] is not None:
            tail.add_metric([group, told["idle"]], told["tail_records"])
    yield from (side, epoch, fenced, left, tail)
