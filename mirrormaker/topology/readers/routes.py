"""`routes` of a topology file, and `defaults` of all of them."""

from __future__ import annotations

from mirrormaker.topology.kinds.collections import ListOf, MapOf, NumberedOf
from mirrormaker.topology.kinds.numbers import Integer, Size
from mirrormaker.topology.kinds.records import Derived, Given, Key, Record
from mirrormaker.topology.kinds.scalars import Choice, Flag, Text
from mirrormaker.topology.kinds.times import Duration, Timestamp
from mirrormaker.topology.kinds.unions import Alternative, Either, OneKey
from mirrormaker.topology.model import (
    BatchSpec,
    Compression,
    CopyMode,
    Delivery,
    ExistingTopics,
    FailurePolicies,
    FailurePolicy,
    GroupSync,
    Isolation,
    Membership,
    Objectives,
    PartitionPolicy,
    RecordErrorPolicy,
    RepairKind,
    Resources,
    RouteName,
    RouteSpec,
    Start,
    StartAtOffsets,
    StartAtTime,
    SyncSpec,
    TopicSelection,
)
from mirrormaker.topology.readers.simulation import SIMULATED_ROUTE
from mirrormaker.topology.readers.steps import FILTERS, PATTERNS, SOME_PATTERNS, TRANSFORMS
from mirrormaker.topology.readers.windows import SPEED, WINDOWS

NOT_IN_DEFAULTS = ("name", "from", "to", "topics")
_KIB, _GIB = 1 << 10, 1 << 30
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_OFFSET_MAX = (1 << 63) - 1


def _name_of(given: Given) -> RouteName:
    return RouteName(f"{given.values.get('source', '')}-to-{given.values.get('destination', '')}")


_PATTERNS = ListOf(Text("regular expressions"), keeps_numbers=True)
TOPICS = Record(
    TopicSelection,
    {
        "include": _PATTERNS,
        "exclude": _PATTERNS,
        "name": Text("template"),
        "partitions": Choice(PartitionPolicy),
        "merge": Flag(),
        "existing": Choice(ExistingTopics),
    },
)
_OFFSETS = MapOf("topic", NumberedOf("partition", Integer(0, _OFFSET_MAX)))
START = Either(
    Choice(Start),
    OneKey(
        {
            "timestamp": Alternative(
                Timestamp(), lambda moment_ms: StartAtTime(timestamp_ms=moment_ms), StartAtTime
            ),
            "offsets": Alternative(_OFFSETS, lambda offsets: StartAtOffsets(offsets=offsets), StartAtOffsets),
        },
        stand_in=Start.EARLIEST,
    ),
)
BATCH = Record(BatchSpec, {"bytes": Size(_KIB, _GIB), "linger_ms": Duration(0, 60_000, bare=True)})
GROUPS = Record(
    GroupSync,
    {
        "include": SOME_PATTERNS,
        "exclude": PATTERNS,
        "interval_ms": Duration(100, _HOUR_MS, bare=True),
        "rewinds": Flag(),
    },
)
SYNC = Record(
    SyncSpec,
    {
        "topics": Flag(),
        "partitions": Flag(),
        "config": PATTERNS,
        "acls": Flag(),
        "write_acls": Flag(),
        "groups": GROUPS,
        "repair": ListOf(Choice(RepairKind)),
    },
)
_POLICY = Choice(FailurePolicy)
_PASSING_POLICY = Choice((FailurePolicy.FAIL, FailurePolicy.PAUSE_PARTITION))
"""What passes by itself loses nothing by waiting: to leave records out for it would."""
ON = Record(
    FailurePolicies,
    {
        "source_gap": _POLICY,
        "topic_recreated": _POLICY,
        "topic_deleted": _POLICY,
        "source_truncated": _POLICY,
        "partition_mismatch": _POLICY,
        "oversize": _POLICY,
        "unauthorized": _PASSING_POLICY,
        "destination_full": _PASSING_POLICY,
        "not_shallow": _POLICY,
        "record_error": Choice(RecordErrorPolicy),
    },
)
RESOURCES = Record(
    Resources,
    {
        "buffer_bytes": Size(_KIB, 64 * _GIB),
        "partition_buffer_bytes": Size(_KIB, 64 * _GIB),
        "fetch_bytes": Size(_KIB, _GIB),
        "fetch_partition_bytes": Size(_KIB, _GIB),
        "produce_bytes": Size(_KIB, _GIB),
        "requests_in_flight": Integer(1, 1000),
        "bytes_per_second": SPEED,
        "windows": WINDOWS,
        "priority": Integer(1, 10),
        "catch_up_bytes_per_second": SPEED,
        "workers": Integer(1, 1024),
    },
)
OBJECTIVES = Record(
    Objectives,
    {
        "lag_seconds": Integer(1, 30 * 86_400),
        "retention_margin": Key(Duration(1000, 30 * _DAY_MS, bare=False), "retention_margin_ms"),
        "audit_window": Key(Duration(1000, _DAY_MS, bare=False), "audit_window_ms"),
    },
)
ROUTE = Record(
    RouteSpec,
    {
        "from": Key(Text("name of a cluster"), "source"),
        "to": Key(Text("name of a cluster"), "destination"),
        "name": Text("name"),
        "owner": Text(empty=False),
        "enabled": Flag(),
        "start": START,
        "topics": TOPICS,
        "membership": Choice(Membership),
        "delivery": Choice(Delivery),
        "copy": Choice(CopyMode),
        "compression": Choice(Compression),
        "batch": BATCH,
        "isolation": Choice(Isolation),
        "filters": FILTERS,
        "transforms": TRANSFORMS,
        "sync": SYNC,
        "on": ON,
        "buckets": Integer(1, 1024),
        "commit_interval_ms": Duration(10, _HOUR_MS, bare=True),
        "refresh_interval_ms": Duration(100, _HOUR_MS, bare=True),
        "resources": RESOURCES,
        "objectives": OBJECTIVES,
        "heartbeats": Flag(),
        "provenance": Flag(),
        "failover_group": Text(empty=False),
        "simulate": SIMULATED_ROUTE,
    },
    derived={"name": Derived("`FROM-to-TO`", _name_of)},
)
