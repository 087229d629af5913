"""What classic consumer group members tell each other through the coordinator, which only passes it on.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from broker.client.assignors import Assignment, Assignor, Subscription
from broker.errors import ErrorCode, ProtocolError, WireError
from broker.types import TopicPartition
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from broker.wire.messages.consumer_protocol import TopicPartition as TopicPartitions
from broker.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from broker.wire.messages.sync_group import SyncGroupRequestAssignment

PROTOCOL_TYPE = "consumer"

_ASSIGNMENT_VERSION = 0
_EAGER_VERSION = 0
_COOPERATIVE_VERSION = 2
_RACK_VERSION = 3


def describe_subscription(
    assignor: Assignor,
    topics: Collection[str],
    *,
    owned: Collection[TopicPartition],
    generation: int,
    rack_id: str | None,
) -> JoinGroupRequestProtocol:
    """What a member offers to the group for one assignor, in the oldest version that says it all."""
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=assignor.user_data(topics, owned),
        owned_partitions=_grouped(owned) if assignor.cooperative else [],
        generation_id=generation if assignor.cooperative else -1,
        rack_id=rack_id,
    )
    version = _COOPERATIVE_VERSION if assignor.cooperative else _EAGER_VERSION
    if rack_id is not None:
        version = _RACK_VERSION
    return JoinGroupRequestProtocol(name=assignor.name, metadata=subscription.encode_with_version(version))


def read_subscription(metadata: bytes, instance_id: str | None) -> Subscription:
    """What a member offered. Raises WireError."""
    _version, told = ConsumerProtocolSubscription.decode_with_version(metadata, newer_as_latest=True)
    return Subscription(
        topics=frozenset(told.topics),
        user_data=told.user_data,
        owned=frozenset(_flattened(told.owned_partitions)),
        generation=told.generation_id,
        rack_id=told.rack_id,
        instance_id=instance_id,
    )


def read_members(members: Iterable[JoinGroupResponseMember]) -> dict[str, Subscription]:
    """The members that the leader is told of.

    Raises ProtocolError naming a member whose subscription is garbled.
    """
    subscriptions: dict[str, Subscription] = {}
    for member in members:
        try:
            subscriptions[member.member_id] = read_subscription(member.metadata, member.group_instance_id)
        except WireError as error:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"subscription of member {member.member_id}: {error}"
            ) from error
    return subscriptions


def describe_assignments(assignments: Mapping[str, Assignment]) -> list[SyncGroupRequestAssignment]:
    """What the leader hands in."""
    return [
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=ConsumerProtocolAssignment(
                assigned_partitions=_grouped(assignment.partitions), user_data=assignment.user_data
            ).encode_with_version(_ASSIGNMENT_VERSION),
        )
        for member, assignment in assignments.items()
    ]


def read_assignment(data: bytes) -> Assignment:
    """A member's own share; no bytes at all mean none. Raises WireError."""
    if not data:
        return Assignment()
    _version, told = ConsumerProtocolAssignment.decode_with_version(data, newer_as_latest=True)
    return Assignment(partitions=tuple(_flattened(told.assigned_partitions)), user_data=told.user_data)


def _grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def _flattened(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(listed.topic, number) for listed in topics for number in listed.partitions]
