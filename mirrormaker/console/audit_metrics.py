"""What the routes of a daemon tell of the audits that they do of themselves, as metrics. Pure.

All are gauges: what audits found is that of the partitions at hand, and less when one goes to another
process, which judges it from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric


def audit_metrics(routes: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    """Of all routes at work."""
    failing = GaugeMetricFamily(
        "mirrormaker_audit_failing",
        "1 while the last audit could not judge all of the route.",
        labels=["route"],
    )
    at = GaugeMetricFamily(
        "mirrormaker_audit_timestamp_seconds", "When the route was audited last.", labels=["route"]
    )
    records = GaugeMetricFamily(
        "mirrormaker_audited_records",
        "Records that audits have judged, of partitions that are copied here now.",
        labels=["route"],
    )
    differences = GaugeMetricFamily(
        "mirrormaker_audit_differences",
        "Those of them in which they found destination and source to differ.",
        labels=["route", "kind"],
    )
    for name, route in routes.items():
        if (audit := route.get("audit")) is None:
            continue
        failing.add_metric([name], audit["problem"] is not None)
        records.add_metric([name], audit["records"])
        if audit["at_ms"] is not None:
            at.add_metric([name], audit["at_ms"] / 1000)
        for kind, count in audit["differences"].items():
            differences.add_metric([name, kind], count)
    yield from (failing, at, records, differences)
