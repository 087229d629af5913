"""What the controller is told and what it answers: its events and effects. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.cluster.image import BrokerInfo
from broker.cluster.orders import BrokerOrders
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A partition's state as read: `version` is the partition epoch, `mzxid` its last transaction."""

    state: PartitionStateZnode
    version: int
    mzxid: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """`unclean.leader.election.enable` where a topic does not say, and the balancing of preferred leaders."""

    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 10


class ElectionKind(Enum):
    """PREFERRED: the first replica, when it is in sync. UNCLEAN: any live replica of a partition without
    leader.
    """

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRead:
    """Everything, as read right after the election. `unclean` has the topics that say whether they allow
    it.
    """

    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, TopicZnode]
    states: Mapping[TopicPartition, StoredState]
    deletions: frozenset[str] = frozenset()
    unclean: Mapping[str, bool] = field(default_factory=dict)
    unreadable: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersRead:
    """The live brokers. One that registered again meanwhile must be left out of one event first:
    `broker_steps`.
    """

    brokers: Mapping[BrokerId, BrokerInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRead:
    """Topics that are new or whose assignment changed, and `gone` ones, whose znodes are not there any
    more.
    """

    topics: Mapping[str, TopicZnode]
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesRead:
    """States that leaders changed (the in-sync set), that could not be read before, and that cannot now."""

    states: Mapping[TopicPartition, StoredState]
    unreadable: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionsRead:
    """Topics that somebody asked to delete."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasDeleted:
    """A broker deleted its replicas of these partitions."""

    broker_id: BrokerId
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoriesFailed:
    """Log directories of these brokers failed: each is told its roles again and answers which it lost."""

    brokers: frozenset[BrokerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasLost:
    """A broker answered KAFKA_STORAGE_ERROR for its replicas of these partitions: their disk failed."""

    broker_id: BrokerId
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanRead:
    """Whether unclean election is allowed, for all topics that say so."""

    unclean: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanDefaultSet:
    """Whether unclean election is allowed for topics that do not say."""

    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownAsked:
    """A broker wants to stop: its leaderships are to move."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionAsked:
    """Elect leaders of these partitions (None: of all)."""

    partitions: frozenset[TopicPartition] | None
    kind: ElectionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsAsked:
    """Move these partitions to other replicas; None: cancel the move under way."""

    targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceDue:
    """Time to give leaderships back to preferred replicas, on brokers that lack too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesDone:
    """Results of the writes of the last effects.

    `done` has the new versions of states; `refused` what was read instead, None where there is no znode any
    more or, `unreadable`, it could not be read. Likewise `topics_done` and `topics_refused` of assignments.
    """

    done: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[TopicPartition, StoredState | None] = field(default_factory=dict)
    unreadable: frozenset[TopicPartition] = frozenset()
    topics_done: frozenset[str] = frozenset()
    topics_refused: Mapping[str, TopicZnode | None] = field(default_factory=dict)


Event = (
    SnapshotRead
    | BrokersRead
    | TopicsRead
    | StatesRead
    | DeletionsRead
    | ReplicasDeleted
    | DirectoriesFailed
    | ReplicasLost
    | UncleanRead
    | UncleanDefaultSet
    | ShutdownAsked
    | ElectionAsked
    | ReassignmentsAsked
    | BalanceDue
    | WritesDone
)


# Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """Write a partition's state if its znode is still at `expected_version`; None: create it."""

    state: PartitionStateZnode
    expected_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWrite:
    """Write a topic's znode if it still says `expected`."""

    topic: TopicZnode
    expected: TopicZnode


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEffects:
    """Either `writes` or `topic_writes`, answered by WritesDone, or what follows once nothing is left to
    write.

    Then: tell the brokers `orders`, remove the znodes of the topics in `erased` and the requests to delete
    the topics in `dismissed`, which do not exist, answer an ElectionAsked by `elections` and a
    ReassignmentsAsked by `reassignments`, None for those that began.
    """

    writes: Mapping[TopicPartition, StateWrite] = field(default_factory=dict)
    topic_writes: Mapping[str, TopicWrite] = field(default_factory=dict)
    orders: Mapping[BrokerId, BrokerOrders] = field(default_factory=dict)
    erased: tuple[str, ...] = ()
    dismissed: tuple[str, ...] = ()
    elections: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, ProtocolError | None] = field(default_factory=dict)


def broker_steps(
    before: Mapping[BrokerId, BrokerInfo], after: Mapping[BrokerId, BrokerInfo]
) -> list[Mapping[BrokerId, BrokerInfo]]:
    """The levels to go through from one set of brokers to the next.

    A broker that registered again under a new epoch has been away: it is left out once, so that it loses
    what it led, and comes back then.
    """
    returned = {b for b in before.keys() & after.keys() if before[b].epoch != after[b].epoch}
    if not returned:
        return [after]
    return [{b: info for b, info in after.items() if b not in returned}, after]
