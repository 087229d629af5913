"""Settings of consumer groups (KIP-848), with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class MigrationPolicy(Enum):
    """Whether a group with members may change its protocol; the value is what the setting says."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """From classic to consumer, when the first member of the new protocol joins."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """From consumer to classic, when the last member of the new protocol leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Each field names the setting of the node that fills it."""

    is_enabled: bool = True
    """`group.coordinator.rebalance.protocols`: whether new members may speak the protocol."""
    session_timeout_ms: int = 45_000
    """`group.consumer.session.timeout.ms`: silence after which a member is removed."""
    heartbeat_interval_ms: int = 5_000
    """`group.consumer.heartbeat.interval.ms`: what members are told."""
    size_max: int = 2**31 - 1
    """`group.consumer.max.size`."""
    regex_refresh_interval_ms: int = 600_000
    """`group.consumer.regex.refresh.interval.ms`: after how long expressions are matched anew though the
    topics are what they were.
    """
    assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`, by name; the first one is for groups whose members ask for none."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """`group.consumer.migration.policy`."""
    classic_session_timeout_min_ms: int = 6_000
    """`group.min.session.timeout.ms`, for members that join with the classic protocol."""
    classic_session_timeout_max_ms: int = 1_800_000
    """`group.max.session.timeout.ms`."""
    classic_size_max: int = 2**31 - 1
    """`group.max.size`: a larger group is not turned into a classic one."""


ConsumerConfigOf = Callable[[str], ConsumerGroupConfig]
"""What holds for a group, by its id; a group may have settings of its own."""
