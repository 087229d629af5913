"""What a consumer group knows of a member: how it subscribed, and how far it has come with its assignment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from broker.types import TopicId

LEAVE_EPOCH = -1
"""Heartbeat of a member that leaves for good."""
LEAVE_STATIC_EPOCH = -2
"""Heartbeat of a static member that leaves and means to come back; its epoch until then."""
JOIN_EPOCH = 0
"""Heartbeat of a member that joins, or begins anew."""


class TopicIdPartition(NamedTuple):
    """One partition, of a topic that may be gone or have been made anew under its name."""

    topic_id: TopicId
    partition: int


Partitions = frozenset[TopicIdPartition]
NOTHING: Partitions = frozenset()


class MemberState(IntEnum):
    """How far a member is, as the log numbers it."""

    STABLE = 0
    """It has what its epoch's target gives it, as far as the coordinator has told it."""
    UNREVOKED = 1
    """It was asked to give partitions up and has not yet said that it did."""
    UNRELEASED = 2
    """It waits for partitions that other members have not given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembership:
    """What a member told that joined with the classic protocol; protocols in order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Who a member is and what it wants; `classic` is None for members of the consumer protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    """A regular expression for more topics, None where there is none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMembership | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member holds: `assigned` is its own, `revoking` it has been asked to give up."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """A request with this epoch is accepted as well: the answer with the newer one may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def held(self) -> Partitions:
        """Partitions that nobody else may have."""
        return self.assigned | self.revoking

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has all that the target of `epoch` gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch


NEW_MEMBER = Assignment()
"""A member that has just joined."""
