"""The topics that a cluster makes for itself on first need, and how they are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """One of them; `settings` are those of the topic, over the node's."""

    name: str
    partitions: int
    replication_factor: int
    replication_required: bool = True
    """Whether that was asked for. The default gives way to the number of brokers (ops/adr/0004)."""
    min_insync_replicas: int | None = None
    min_insync_required: bool = True
    """Whether that was asked for. The default gives way to the number of replicas."""
    settings: Mapping[str, str] = field(default_factory=dict)

    def replicas_among(self, brokers: int) -> int:
        """Replicas in a cluster of so many brokers."""
        return self.replication_factor if self.replication_required else min(self.replication_factor, brokers)

    def settings_with(self, replicas: int) -> dict[str, str]:
        """Its settings with so many replicas."""
        if self.min_insync_replicas is None:
            return dict(self.settings)
        needed = (
            self.min_insync_replicas if self.min_insync_required else min(self.min_insync_replicas, replicas)
        )
        return {**self.settings, "min.insync.replicas": str(needed)}


def offsets_topic(
    *,
    partitions: int = 50,
    replication_factor: int = 3,
    required: bool = True,
    segment_bytes: int = 104_857_600,
) -> InternalTopic:
    """`__consumer_offsets`."""
    return InternalTopic(
        name=CONSUMER_OFFSETS,
        partitions=partitions,
        replication_factor=replication_factor,
        replication_required=required,
        settings={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
        },
    )


def transactions_topic(
    *,
    partitions: int = 50,
    replication_factor: int = 3,
    required: bool = True,
    min_insync_replicas: int = 2,
    min_insync_required: bool = True,
    segment_bytes: int = 104_857_600,
) -> InternalTopic:
    """`__transaction_state`, whose leader must have everything: no unclean election, no lone replica."""
    return InternalTopic(
        name=TRANSACTION_STATE,
        partitions=partitions,
        replication_factor=replication_factor,
        replication_required=required,
        min_insync_replicas=min_insync_replicas,
        min_insync_required=min_insync_required,
        settings={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
