"""The records of consumer groups in `__consumer_offsets`, byte for byte as Kafka 4.0 writes them.

Key `version int16 | group | …`: 3 is the group's epoch, 4 the subscribed topics, 5 a member's subscription,
6 the epoch of the target assignment, 7 a member's target, 8 a member's assignment, 16 a resolved regular
expression. Values are of version 0; no value is a tombstone. Partitions are grouped by topic id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, assert_never
from uuid import UUID

from broker.errors import WireError
from broker.groups.consumer_groups.members import (
    Assignment,
    ClassicMembership,
    MemberState,
    Partitions,
    Subscription,
    TopicIdPartition,
)
from broker.groups.consumer_groups.records import (
    Change,
    GroupEpoch,
    MemberAssignment,
    MemberSubscription,
    MemberTarget,
    PatternResolution,
    ResolvedPattern,
    SubscribedTopics,
    TargetEpoch,
)
from broker.groups.consumer_groups.topics import Topic
from broker.types import TopicId
from broker.wire.message import VersionedData
from broker.wire.messages import consumer_group_records as wire
from broker.wire.schema import Struct

VALUE_VERSION = 0

_EPOCH, _TOPICS, _SUBSCRIPTION, _TARGET_EPOCH, _TARGET, _ASSIGNMENT, _PATTERN = 3, 4, 5, 6, 7, 8, 16
KEY_VERSIONS = frozenset({_EPOCH, _TOPICS, _SUBSCRIPTION, _TARGET_EPOCH, _TARGET, _ASSIGNMENT, _PATTERN})
"""The versions of keys that are of consumer groups."""


class _TopicPartitions(Protocol):
    topic_id: UUID
    partitions: Sequence[int]


AnyTopicPartitions = TypeVar("AnyTopicPartitions", bound=Struct)
"""Any message's way to say so: fields `topic_id` and `partitions`."""


def encode(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Key and value. Raises WireError for a string that is too long."""
    version, key, value = _messages(group_id, change)
    return (
        key.encode_with_version(version),
        value.encode_with_version(VALUE_VERSION) if value is not None else None,
    )


def _messages(group_id: str, change: Change) -> tuple[int, VersionedData, VersionedData | None]:
    match change:
        case GroupEpoch():
            epoch = change.epoch
            return (
                _EPOCH,
                wire.ConsumerGroupMetadataKey(group_id=group_id),
                wire.ConsumerGroupMetadataValue(epoch=epoch) if epoch is not None else None,
            )
        case SubscribedTopics():
            topics = change.topics
            return (
                _TOPICS,
                wire.ConsumerGroupPartitionMetadataKey(group_id=group_id),
                _write_topics(topics) if topics is not None else None,
            )
        case MemberSubscription():
            subscription = change.subscription
            return (
                _SUBSCRIPTION,
                wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=change.member_id),
                _write_subscription(subscription) if subscription is not None else None,
            )
        case TargetEpoch():
            epoch = change.epoch
            return (
                _TARGET_EPOCH,
                wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
                wire.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
                if epoch is not None
                else None,
            )
        case MemberTarget():
            partitions = change.partitions
            return (
                _TARGET,
                wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=change.member_id),
                wire.ConsumerGroupTargetAssignmentMemberValue(
                    topic_partitions=by_topic(partitions, wire.TopicPartition)
                )
                if partitions is not None
                else None,
            )
        case MemberAssignment():
            assignment = change.assignment
            return (
                _ASSIGNMENT,
                wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=change.member_id),
                _write_assignment(assignment) if assignment is not None else None,
            )
        case PatternResolution():
            resolved = change.resolved
            return (
                _PATTERN,
                wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=change.pattern),
                wire.ConsumerGroupRegularExpressionValue(
                    topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
                )
                if resolved is not None
                else None,
            )
        case _:
            assert_never(change)


def decode(version: int, key: bytes, value: bytes | None) -> tuple[str, Change]:
    """The group and the change of a record whose key has this version, one of KEY_VERSIONS. Raises
    WireError for a garbled one.
    """
    match version:
        case 3:
            _, epoch_key = wire.ConsumerGroupMetadataKey.decode_with_version(key)
            return epoch_key.group_id, GroupEpoch(epoch=_read_epoch(value))
        case 4:
            _, topics_key = wire.ConsumerGroupPartitionMetadataKey.decode_with_version(key)
            return topics_key.group_id, SubscribedTopics(topics=_read_topics(value))
        case 5:
            _, member = wire.ConsumerGroupMemberMetadataKey.decode_with_version(key)
            return member.group_id, MemberSubscription(
                member_id=member.member_id, subscription=_read_subscription(value)
            )
        case 6:
            _, target_key = wire.ConsumerGroupTargetAssignmentMetadataKey.decode_with_version(key)
            return target_key.group_id, TargetEpoch(epoch=_read_target_epoch(value))
        case 7:
            _, target = wire.ConsumerGroupTargetAssignmentMemberKey.decode_with_version(key)
            return target.group_id, MemberTarget(member_id=target.member_id, partitions=_read_target(value))
        case 8:
            _, current = wire.ConsumerGroupCurrentMemberAssignmentKey.decode_with_version(key)
            return current.group_id, MemberAssignment(
                member_id=current.member_id, assignment=_read_assignment(value)
            )
        case 16:
            _, pattern = wire.ConsumerGroupRegularExpressionKey.decode_with_version(key)
            return pattern.group_id, PatternResolution(
                pattern=pattern.regular_expression, resolved=_read_resolved(value)
            )
        case _:
            raise WireError(f"key version {version} is not of consumer groups")


def by_topic(
    partitions: Iterable[TopicIdPartition], kind: type[AnyTopicPartitions]
) -> list[AnyTopicPartitions]:
    """Partitions grouped by topic, all in order, as messages say it."""
    topics: dict[TopicId, list[int]] = defaultdict(list)
    for topic_id, partition in partitions:
        topics[topic_id].append(partition)
    return [
        kind(topic_id=topic_id, partitions=sorted(topics[topic_id]))
        for topic_id in sorted(topics, key=lambda each: each.int)
    ]


def partitions_of(topics: Iterable[_TopicPartitions]) -> Partitions:
    """The inverse of `by_topic`."""
    return frozenset(
        TopicIdPartition(TopicId(topic.topic_id), partition)
        for topic in topics
        for partition in topic.partitions
    )


def _read_epoch(value: bytes | None) -> int | None:
    if value is None:
        return None
    return wire.ConsumerGroupMetadataValue.decode_with_version(value)[1].epoch


def _read_target_epoch(value: bytes | None) -> int | None:
    if value is None:
        return None
    return wire.ConsumerGroupTargetAssignmentMetadataValue.decode_with_version(value)[1].assignment_epoch


def _write_topics(topics: Iterable[Topic]) -> VersionedData:
    return wire.ConsumerGroupPartitionMetadataValue(
        topics=[
            wire.TopicMetadata(
                topic_id=topic.topic_id, topic_name=topic.name, num_partitions=topic.partition_count
            )
            for topic in topics
        ]
    )


def _read_topics(value: bytes | None) -> tuple[Topic, ...] | None:
    if value is None:
        return None
    _, decoded = wire.ConsumerGroupPartitionMetadataValue.decode_with_version(value)
    return tuple(
        Topic(name=topic.topic_name, topic_id=TopicId(topic.topic_id), partition_count=topic.num_partitions)
        for topic in decoded.topics
    )


def _write_subscription(subscription: Subscription) -> VersionedData:
    classic = subscription.classic
    return wire.ConsumerGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.pattern,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.assignor,
        classic_member_metadata=wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        )
        if classic is not None
        else None,
    )


def _read_subscription(value: bytes | None) -> Subscription | None:
    if value is None:
        return None
    _, decoded = wire.ConsumerGroupMemberMetadataValue.decode_with_version(value)
    classic = decoded.classic_member_metadata
    return Subscription(
        instance_id=decoded.instance_id,
        rack_id=decoded.rack_id,
        client_id=decoded.client_id,
        client_host=decoded.client_host,
        topics=frozenset(decoded.subscribed_topic_names),
        pattern=decoded.subscribed_topic_regex,
        rebalance_timeout_ms=decoded.rebalance_timeout_ms,
        assignor=decoded.server_assignor,
        classic=ClassicMembership(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        )
        if classic is not None
        else None,
    )


def _read_target(value: bytes | None) -> Partitions | None:
    if value is None:
        return None
    _, decoded = wire.ConsumerGroupTargetAssignmentMemberValue.decode_with_version(value)
    return partitions_of(decoded.topic_partitions)


def _write_assignment(assignment: Assignment) -> VersionedData:
    return wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=assignment.epoch,
        previous_member_epoch=assignment.previous_epoch,
        state=assignment.state,
        assigned_partitions=by_topic(assignment.assigned, wire.TopicPartitions),
        partitions_pending_revocation=by_topic(assignment.revoking, wire.TopicPartitions),
    )


def _read_assignment(value: bytes | None) -> Assignment | None:
    if value is None:
        return None
    _, decoded = wire.ConsumerGroupCurrentMemberAssignmentValue.decode_with_version(value)
    try:
        state = MemberState(decoded.state)
    except ValueError as error:
        raise WireError(f"a member is in state {decoded.state}, which is not known") from error
    return Assignment(
        epoch=decoded.member_epoch,
        previous_epoch=decoded.previous_member_epoch,
        state=state,
        assigned=partitions_of(decoded.assigned_partitions),
        revoking=partitions_of(decoded.partitions_pending_revocation),
    )


def _read_resolved(value: bytes | None) -> ResolvedPattern | None:
    if value is None:
        return None
    _, decoded = wire.ConsumerGroupRegularExpressionValue.decode_with_version(value)
    return ResolvedPattern(
        topics=frozenset(decoded.topics), version=decoded.version, timestamp_ms=decoded.timestamp
    )
