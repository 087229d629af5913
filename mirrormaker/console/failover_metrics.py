"""Failover groups as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric


def failover_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of the groups that these routes, as `Daemon.describe` tells them, are in."""
    side = GaugeMetricFamily(
        "mirrormaker_failover_side",
        "1 for the cluster where the group is at work, and the stage of its last switch.",
        labels=["group", "cluster", "stage"],
    )
    epoch = GaugeMetricFamily(
        "mirrormaker_failover_epoch", "How often the group has been switched.", labels=["group"]
    )
    switches = {told["group"]: told for route in routes.values() if (told := route.get("switch"))}
    for group, told in switches.items():
        side.add_metric([group, told["cluster"], told["stage"]], 1)
        epoch.add_metric([group], told["epoch"])
    yield from (side, epoch)
