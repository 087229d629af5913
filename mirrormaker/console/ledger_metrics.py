"""What the routes of a daemon tell of their ledgers and of the groups they carry, as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def ledger_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of all routes that have one."""
    failing = GaugeMetricFamily(
        "mirrormaker_ledger_failing", "1 while the ledger cannot be written or read.", labels=["route"]
    )
    pages = GaugeMetricFamily(
        "mirrormaker_ledger_pages", "Pages of the ledger of all partitions of the source.", labels=["route"]
    )
    pending = GaugeMetricFamily(
        "mirrormaker_ledger_pending_pages", "Pages that are to be written.", labels=["route"]
    )
    given_up = CounterMetricFamily(
        "mirrormaker_ledger_pages_given_up",
        "Pages that could not be written for too long: the ledger lacks them.",
        labels=["route"],
    )
    for name, route in routes.items():
        if (ledger := route.get("ledger")) is not None:
            failing.add_metric([name], ledger["problem"] is not None)
            pages.add_metric([name], ledger["pages"])
            pending.add_metric([name], ledger["pending_pages"])
            given_up.add_metric([name], ledger["pages_given_up"])
    yield from (failing, pages, pending, given_up)


def group_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of all routes that carry groups over."""
    failing = GaugeMetricFamily(
        "mirrormaker_groups_failing", "1 while groups cannot be carried over.", labels=["route"]
    )
    moved = CounterMetricFamily(
        "mirrormaker_group_positions_moved", "Positions committed at the destination.", labels=["route"]
    )
    standings = GaugeMetricFamily(
        "mirrormaker_group_partitions",
        "Partitions of groups, by how the groups stand in them.",
        labels=["route", "group", "standing"],
    )
    behind = GaugeMetricFamily(
        "mirrormaker_group_behind_offsets",
        "Source offsets that the group has read and that are not copied yet.",
        labels=["route", "group"],
    )
    for name, route in routes.items():
        if (carried := route.get("groups")) is None:
            continue
        failing.add_metric([name], carried["problem"] is not None)
        moved.add_metric([name], carried["moved"])
        for group, told in carried["groups"].items():
            behind.add_metric([name, group], told["behind"])
            for standing, count in told["partitions"].items():
                standings.add_metric([name, group, standing], count)
    yield from (failing, moved, standings, behind)
