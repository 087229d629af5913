"""What a seed decides before anything runs: the cluster, its settings, and how rough the world is."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One cluster and its troubles; times in seconds unless they say otherwise."""

    nodes: int
    topics: int
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    flush_messages: int
    """`flush.messages` of the topics; 1: acknowledged records survive the crash of any machine."""
    session_timeout_ms: int
    replica_lag_time_max_ms: int
    request_timeout_ms: int
    num_replica_fetchers: int
    segment_bytes: int
    reads_from_followers: bool
    """Whether consumers read from the replica in their rack; every node is a rack."""
    producers: int
    consumers: int
    faults: int
    pause_max: float
    """How long the world lets things be after each fault, at most."""
    desks: int = 0
    """Clients with transactions."""

    @property
    def flushes(self) -> bool:
        return self.flush_messages == 1

    @classmethod
    def drawn(cls, random: Random) -> Scenario:
        """One scenario out of those that are worth running."""
        nodes = random.choice((2, 3, 3, 3))
        replication_factor = random.choice([factor for factor in (1, 2, 2, 3, 3, 3) if factor <= nodes])
        return cls(
            nodes=nodes,
            topics=1,
            partitions=random.choice((1, 2, 2, 3)),
            replication_factor=replication_factor,
            min_insync_replicas=random.choice((1, min(2, replication_factor))),
            flush_messages=random.choice((1, 2**63 - 1)),
            session_timeout_ms=random.choice((1_000, 2_000)),
            replica_lag_time_max_ms=random.choice((500, 1_000, 2_000)),
            request_timeout_ms=random.choice((1_000, 3_000)),
            num_replica_fetchers=random.choice((1, 1, 2)),
            segment_bytes=random.choice((1_000, 1 << 20)),
            reads_from_followers=random.random() < 0.3,
            producers=random.choice((1, 1, 2)),
            consumers=1,
            faults=random.randint(4, 12),
            pause_max=random.choice((0.1, 0.5, 2.0)),
        )
