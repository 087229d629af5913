"""Settings of a member of a group that meets in ZooKeeper."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from uuid import uuid4

from broker.client.zookeeper_assignment import PartitionNames


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperGroupSettings:
    """How a member behaves; times in milliseconds. `names` and `internal_topics` must be the same in the
    whole group.
    """

    consumer_id: str | None = None
    """What the member is known by in its group; `hostname:uuid` unless given."""
    rebalance_retries_max: int = 4
    """`rebalance.max.retries`: how often a rebalance is tried again while partitions are another's."""
    rebalance_backoff_ms: int = 2_000
    """`rebalance.backoff.ms`: the longest wait for them to be let go before the next try."""
    pause_max_ms: int = 2_000
    """A process that stood still for longer looks whether it still owns its partitions, before it goes on;
    less than the session timeout.
    """
    names: PartitionNames = PartitionNames.NUMBER
    internal_topics: bool = False
    """Whether patterns match internal topics, too."""


def new_consumer_id() -> str:
    """An id that nobody else has, by which people find the machine."""
    return f"{socket.gethostname()}:{uuid4()}"
