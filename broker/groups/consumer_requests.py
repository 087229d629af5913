"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as events and views of the machine, and back: pure
translation, as `requests` for the classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_groups.events import ConsumerHeartbeat, ConsumerHeartbeatReply
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Partitions,
)
from broker.groups.consumer_groups.record_codec import by_topic, partitions_of
from broker.groups.consumer_groups.topics import Topics
from broker.groups.events import Waiter
from broker.groups.requests import Client
from broker.types import TopicId
from broker.wire.messages import consumer_group_describe as describe
from broker.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

VERSION_WITH_OWN_MEMBER_IDS = 1
"""From here on members name themselves (KIP-1082)."""

_UNCHANGED = -1
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, *, version: int) -> None:
    """Raises ProtocolError for a request that cannot be right, whatever the group is."""
    if not request.group_id.strip():
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    for name, text in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    joins = request.member_epoch == JOIN_EPOCH
    if not request.member_id and (not joins or version >= VERSION_WITH_OWN_MEMBER_IDS):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if joins:
        _check_join(request)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _UNCHANGED:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."
        )
    if request.topic_partitions is None or request.topic_partitions:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def heartbeat_event(
    request: ConsumerGroupHeartbeatRequest,
    *,
    client: Client,
    waiter: Waiter,
    new_member_id: str,
    may_see: Callable[[str], bool],
) -> ConsumerHeartbeat:
    """ConsumerGroupHeartbeat; `new_member_id` is for a member of version 0 that joins, `may_see` says which
    topics its expression may find.
    """
    names, owned = request.subscribed_topic_names, request.topic_partitions
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerHeartbeat(
        waiter=waiter,
        member_id=request.member_id or new_member_id,
        member_epoch=request.member_epoch,
        client_id=client.client_id,
        client_host=client.host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms != _UNCHANGED else None,
        topics=frozenset(names) if names is not None else None,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=partitions_of(owned) if owned is not None else None,
        may_see=may_see,
    )


def heartbeat_response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    """Answer to ConsumerGroupHeartbeat."""
    assignment = reply.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=Assignment(topic_partitions=by_topic(assignment, ResponseTopicPartitions))
        if assignment is not None
        else None,
    )


def described_consumer_group(
    group_id: str, image: GroupImage, topics: Topics, default_assignor: str
) -> describe.DescribedGroup:
    """A group of the answer to ConsumerGroupDescribe."""
    return describe.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=image.state.value,
        group_epoch=image.group_epoch,
        assignment_epoch=image.target_epoch,
        assignor_name=image.preferred_assignor() or default_assignor,
        members=[_described_member(member_id, image, topics) for member_id in image],
    )


def _described_member(member_id: str, image: GroupImage, topics: Topics) -> describe.Member:
    subscription, has = image.subscriptions[member_id], image.assignment(member_id)
    return describe.Member(
        member_id=member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=has.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.pattern,
        assignment=_described_partitions(has.assigned, topics),
        target_assignment=_described_partitions(image.target(member_id), topics),
        member_type=_CLASSIC_MEMBER if subscription.is_classic else _CONSUMER_MEMBER,
    )


def _described_partitions(partitions: Partitions, topics: Topics) -> describe.Assignment:
    """With names; topics that are gone are left out."""
    named = []
    for each in by_topic(partitions, describe.TopicPartitions):
        topic = topics.of_id(TopicId(each.topic_id))
        if topic is not None:
            each.topic_name = topic.name
            named.append(each)
    return describe.Assignment(topic_partitions=named)
