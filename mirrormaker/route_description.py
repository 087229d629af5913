"""A route at work as plain data, for `status` and for metrics; times in milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mirrormaker.flow.arbiter import Arbiter
from mirrormaker.flow.copier import RouteCopier
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.standing import standing_of
from mirrormaker.flow.timing.route_timing import RouteTiming
from mirrormaker.reconcile.rule_keeper import RuleKeeper
from mirrormaker.reconcile.topics import TopicReconciler


def starting_route() -> dict[str, Any]:
    """A route that is to run, and has not begun or not told yet."""
    return {
        "state": "starting",
        "error": None,
        "reason": None,
        "failures": 0,
        "started_ms": None,
        "pause": None,
        "paused_topics": {},
        "halts": [],
        "control_problem": None,
        "partitions": {},
        "events": [],
    }


def describe_work(
    copier: RouteCopier, reconciler: TopicReconciler, rules: RuleKeeper, timing: RouteTiming
) -> dict[str, Any]:
    """What copier, reconciler and keeper of access rules of a route have to tell."""
    description: dict[str, Any] = {
        "group_generation": copier.generation,
        "link": copier.link.describe(),
        "obstacles": dict(reconciler.obstacles),
        "standing_topics": {topic: kind.value for topic, kind in reconciler.standing.items()},
        "reconcile_problem": reconciler.problem or reconciler.settings_problem or rules.problem,
        "delivery_problem": copier.problem,
        "drift": [one.describe() for one in (*reconciler.drift, *rules.drift)],
    }
    if copier.machine is not None:
        description["buffered_bytes"] = copier.machine.buffered_bytes
        description["partitions"] = {
            str(source): _describe_partition(partition, timing, copier.arbiter)
            for source, partition in copier.machine.partitions.items()
            if source.topic != HEARTBEATS_TOPIC
        }
        description["not_begun"] = {
            str(source): asdict(standing)
            for source, standing in copier.not_begun.items()
            if source.topic != HEARTBEATS_TOPIC
        }
    return description


def describe_counts(copier: RouteCopier) -> dict[str, Any]:
    """What it has counted since it began."""
    counts = copier.counts
    return {
        "batches": counts.batches,
        "bytes": counts.bytes,
        "records": counts.records,
        "requests": counts.requests,
        "repeated_chunks": counts.repeated_chunks,
        "deep_batches": {reason.value: count for reason, count in counts.deep_batches.items()},
        "control_batches_dropped": counts.control_batches_dropped,
        "aborted_batches_dropped": counts.aborted_batches_dropped,
        "records_maybe_lost": counts.records_maybe_lost,
        "transactions": counts.transactions,
        "buckets_lost": counts.buckets_lost,
        "returned_batches_dropped": counts.returned_batches_dropped,
        "filtered_records": counts.filtered_records,
        "bytes_left_at_source": counts.bytes_left_at_source,
        "left_out": {kind.value: count for kind, count in counts.left_out.items()},
        "offsets_lost_at_source": counts.offsets_lost_at_source,
        "troubles": {kind.value: count for kind, count in counts.troubles.items()},
        "errors": {code.name: count for code, count in counts.errors.items()},
    }


def _describe_partition(partition: Partition, timing: RouteTiming, arbiter: Arbiter) -> dict[str, Any]:
    copied, source = partition.copied_offsets, partition.source
    standing = standing_of(
        partition,
        refusal=arbiter.refusal(source),
        is_misshapen=arbiter.is_misshapen(source.topic),
    )
    return {
        "destination": ", ".join(str(lane.destination) for lane in partition.lanes),
        "state": standing.state,
        "reason": standing.reason,
        "problem": standing.problem,
        "error": partition.error.name if partition.error is not None else None,
        "source_problem": partition.source_problem,
        "failures": partition.attempts + partition.source_failures,
        "acknowledged": partition.acknowledged,
        "committed": partition.committed,
        "waits_from": partition.waits_from,
        "source_end": partition.source_end,
        "bytes_per_offset": partition.copied_bytes / copied if copied else None,
        "last_timestamp_ms": partition.last_timestamp,
        **timing.describe_partition(partition),
    }
