"""Settings of a member of a consumer group: one type for each protocol by which members and coordinator talk
to each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a member of the classic protocol behaves; times in milliseconds."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """How a member of the consumer protocol (KIP-848) behaves; times in milliseconds.

    Sessions and heartbeats are as the coordinator's settings say, and it is the coordinator that assigns.
    """

    group_id: str
    rebalance_timeout_ms: int = 300_000
    """How long the member may take to give up partitions."""
    remote_assignor: str | None = None
    """The coordinator's assignor to use, `uniform` or `range`; None leaves it to the coordinator."""
    instance_id: str | None = None
    """A name that survives restarts: the member keeps its place in the group while it is away (KIP-345)."""
    rack_id: str | None = None
    metadata_max_age_ms: int = 60_000
    """How long new topics may stay unnoticed that this process has to find by itself."""
    leave_on_close: bool = True
    """Static members tell that they are away when closed, whatever this says."""


AnyGroupSettings = GroupSettings | ConsumerGroupSettings
