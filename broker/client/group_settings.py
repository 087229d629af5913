"""Settings of a member of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a member behaves; times in milliseconds."""

    group_id: str
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    instance_id: str | None = None
    """A name that survives restarts: the member keeps its place in the group while it is away (KIP-345)."""
    rack_id: str | None = None
    metadata_max_age_ms: int = 60_000
    """How long new topics and partitions may stay unnoticed."""
    leave_on_close: bool = True
    """Static members stay in the group when closed, whatever this says."""
