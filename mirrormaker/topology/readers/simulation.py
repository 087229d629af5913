"""`simulate` of clusters, links and routes."""

from __future__ import annotations

from mirrormaker.topology.kinds.collections import ListOf
from mirrormaker.topology.kinds.kind import Checked, UnreadableError
from mirrormaker.topology.kinds.numbers import Integer, Size
from mirrormaker.topology.kinds.records import Key, Record
from mirrormaker.topology.kinds.times import Duration
from mirrormaker.topology.model import Outage, SimulatedCluster, SimulatedLink, SimulatedRoute
from mirrormaker.topology.readers.windows import SPEED

HOURS = 24
PARTITIONS_MAX = 10_000_000
_KIB, _GIB = 1 << 10, 1 << 30
_YEAR_MS = 366 * 86_400_000


def _check_hours(hours: tuple[int, ...]) -> tuple[int, ...]:
    if len(hours) != HOURS:
        raise UnreadableError(f"has {len(hours)} numbers, a day has {HOURS} hours")
    return hours


OUTAGES = ListOf(
    Record(
        Outage,
        {
            "after": Key(Duration(0, _YEAR_MS, bare=False), "after_ms"),
            "lasts": Key(Duration(1, _YEAR_MS, bare=False), "lasts_ms"),
        },
    )
)
SIMULATED_CLUSTER = Record(
    SimulatedCluster,
    {"in_bytes_per_second": SPEED, "out_bytes_per_second": SPEED, "outages": OUTAGES},
)
SIMULATED_LINK = Record(
    SimulatedLink,
    {
        "bytes_per_second": SPEED,
        "round_trip_ms": Duration(0, 60_000, bare=True),
        "outages": OUTAGES,
    },
)
SIMULATED_ROUTE = Record(
    SimulatedRoute,
    {
        "bytes_per_second": Size(0, 1 << 40),
        "by_hour": Checked(ListOf(Integer(0, 10_000)), _check_hours, minItems=HOURS, maxItems=HOURS),
        "partitions": Integer(1, PARTITIONS_MAX),
        "hottest_percent": Integer(1, 100),
        "batch_bytes": Size(1, _GIB),
        "behind_bytes": Size(0, 1 << 60),
        "retention": Key(Duration(1000, 100 * _YEAR_MS, bare=False), "retention_ms"),
    },
)
