"""Settings of the group coordinator, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.groups.consumer_groups.config import ConsumerGroupConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Bounds and delays; each field names the setting of the node that fills it, where there is one."""

    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long an empty group waits for more members before its first
    generation.
    """
    group_max_size: int = 2**31 - 1
    """`group.max.size`: members of one group."""
    session_timeout_min_ms: int = 6_000
    """`group.min.session.timeout.ms`."""
    session_timeout_max_ms: int = 1_800_000
    """`group.max.session.timeout.ms`."""
    offset_metadata_size_max: int = 4_096
    """`offset.metadata.max.bytes`: length of the note that a client may keep beside an offset."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`offsets.retention.minutes`: how long offsets outlive their last member, or their commit where there
    are no members.
    """
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`."""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that never had an answer is kept waiting in a rebalance: clients give up sooner and
    come back.
    """
    pending_members_max: int = 10_000
    """Member ids of one group that were handed out and not used yet; each lives for one session timeout."""
    batch_bytes_max: int = 1_000_000
    """Records of several groups share one batch up to about this size; at most `max.message.bytes` of
    `__consumer_offsets`.
    """
    load_batch_bytes_max: int = 64 * 1024 * 1024
    """Uncompressed bytes of one batch that is read back; larger ones are skipped as damaged."""
    appends_pending_max: int = 10_000
    """Appends waiting on one partition; past it commits are answered COORDINATOR_NOT_AVAILABLE, which clients
    retry.
    """
    timer_lateness_max_ms: int = 1_000
    """A timer later than this fired after a stall of this process, and is put off once (see `deadlines`)."""
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    """Groups of the consumer protocol."""
