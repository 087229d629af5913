"""Moving a partition to other brokers (KIP-455): pure rules on one topic's znode.

A partition under way has all its replicas in `partitions`, the wanted ones first, and names in `adding` those
that it did not have before and in `removing` those that it is to lose. What it is to have is therefore
`partitions` without `removing`. It is done once every added replica is in sync: then a replica that stays
leads, the others leave the in-sync set, and only after that is in ZooKeeper does the topic's znode forget
them. A controller that takes over finds in the two znodes how far it went.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from broker.cluster.election import Electorate, elected_state
from broker.coordination.znodes import Assignment, PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import BrokerId, LeaderEpoch

Replicas = tuple[BrokerId, ...]


def is_moving(topic: TopicZnode, partition: int) -> bool:
    """Whether a reassignment of the partition is under way."""
    return bool(topic.adding.get(partition) or topic.removing.get(partition))


def target_of(topic: TopicZnode, partition: int) -> Replicas:
    """The replicas that the partition is to have, its preferred leader first."""
    removing = topic.removing.get(partition, ())
    return tuple(replica for replica in topic.partitions[partition] if replica not in removing)


def begun(topic: TopicZnode, partition: int, target: Replicas, alive: Set[BrokerId]) -> TopicZnode:
    """The znode with the partition on its way to `target`; a move under way takes another direction.

    Raises ProtocolError INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION.
    """
    if partition not in topic.partitions:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not target or len(set(target)) != len(target):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no replicas, or one twice: {list(target)}"
        )
    before = _settled_replicas(topic, partition)
    unknown = [replica for replica in target if replica not in alive and replica not in before]
    if unknown:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers that are not there would be added: {unknown}"
        )
    return _moving(topic, partition, target, before)


def cancelled(topic: TopicZnode, partition: int) -> TopicZnode:
    """The znode with the partition on its way back. Raises ProtocolError NO_REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    if partition not in topic.partitions:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not is_moving(topic, partition):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    before = _settled_replicas(topic, partition)
    return _moving(topic, partition, before, before)


def completed(topic: TopicZnode, partition: int) -> TopicZnode:
    """The znode of a partition that has arrived."""
    return replace(
        topic,
        partitions={**topic.partitions, partition: target_of(topic, partition)},
        adding=_without(topic.adding, partition),
        removing=_without(topic.removing, partition),
    )


def has_caught_up(
    topic: TopicZnode, partition: int, state: PartitionStateZnode, electorate: Electorate
) -> bool:
    """Whether every added replica is in sync and there, and a replica that stays can lead."""
    isr, adding = state.isr, topic.adding.get(partition, ())
    return all(replica in isr and replica in electorate.alive for replica in adding) and any(
        replica in isr and electorate.is_eligible(replica) for replica in target_of(topic, partition)
    )


def is_settled(topic: TopicZnode, partition: int, state: PartitionStateZnode) -> bool:
    """Whether only replicas that stay lead and are in sync."""
    target = target_of(topic, partition)
    return state.leader in target and all(replica in target for replica in state.isr)


def settled_state(
    topic: TopicZnode,
    partition: int,
    state: PartitionStateZnode,
    electorate: Electorate,
    *,
    controller_epoch: int,
) -> PartitionStateZnode | None:
    """The state of a partition that has caught up: only replicas that stay lead and are in sync, in a new
    epoch in any case, so that no change of the ISR that was begun before can take one of the others in.
    None when none of them can lead.
    """
    target = target_of(topic, partition)
    staying = replace(state, isr=tuple(replica for replica in state.isr if replica in target))
    if state.leader in target and electorate.is_eligible(state.leader):
        epoch = LeaderEpoch(state.leader_epoch + 1)
        return replace(staying, leader_epoch=epoch, controller_epoch=controller_epoch)
    return elected_state(staying, target, electorate, controller_epoch=controller_epoch)


def _settled_replicas(topic: TopicZnode, partition: int) -> Replicas:
    """Those that the partition had before the move under way, or has."""
    adding = topic.adding.get(partition, ())
    return tuple(replica for replica in topic.partitions[partition] if replica not in adding)


def _moving(topic: TopicZnode, partition: int, target: Replicas, before: Replicas) -> TopicZnode:
    leaving = tuple(replica for replica in topic.partitions[partition] if replica not in target)
    adding = tuple(replica for replica in target if replica not in before)
    return replace(
        topic,
        partitions={**topic.partitions, partition: (*target, *leaving)},
        adding=_with(topic.adding, partition, adding),
        removing=_with(topic.removing, partition, leaving),
    )


def _with(assignment: Assignment, partition: int, replicas: Replicas) -> Assignment:
    if not replicas:
        return _without(assignment, partition)
    return dict(sorted({**assignment, partition: replicas}.items()))


def _without(assignment: Assignment, partition: int) -> Assignment:
    return {number: replicas for number, replicas in assignment.items() if number != partition}
