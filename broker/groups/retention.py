"""When the offsets of a group expire, by what the group is (KIP-211).

- Its members have all left: everything expires a retention time after the last one did.
- Consumers are at work: offsets of topics that none of them subscribes to expire a retention time after their
  commit.
- Nobody ever joined (offsets are kept by clients that assign partitions themselves): each a retention time
  after its commit.
- Anything else (a rebalance, members that are no consumers): nothing expires.
An offset whose commit asked for a retention of its own expires then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker.groups.standing import Standing
from broker.groups.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How to expire a group's offsets at the moment: counted from `base_timestamp_ms`, or from each commit
    where that is None.
    """

    retention_ms: int
    base_timestamp_ms: int | None = None
    kept_topics: Collection[str] = ()


def retention_of(standing: Standing, retention_ms: int) -> Retention | None:
    """The rule that applies to a group now; None where nothing expires."""
    if not standing.protocol_type and standing.state is State.EMPTY:
        return Retention(retention_ms=retention_ms)
    if standing.state is State.EMPTY:
        emptied_ms = standing.state_timestamp_ms
        return Retention(retention_ms=retention_ms, base_timestamp_ms=emptied_ms if emptied_ms >= 0 else None)
    if standing.state is State.STABLE and standing.is_consumer_group and standing.topics is not None:
        return Retention(retention_ms=retention_ms, kept_topics=standing.topics)
    return None
