"""Groups as their coordinators list and describe them, of both protocols, and what the messages say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.client.group_protocol import PROTOCOL_TYPE, read_assignment
from broker.errors import WireError
from broker.types import TopicPartition
from broker.wire.messages import consumer_group_describe, describe_groups

CLASSIC, CONSUMER = "classic", "consumer"
"""The types of groups, as coordinators call them (KIP-848)."""
DEAD = "Dead"
"""The state of a group that there is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as its coordinator lists it; `state` and `type` are empty where the node is too old to tell."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group and the partitions it has. What follows `assignment` is told of groups of the
    consumer protocol alone: the member's epoch, what it is to have, what it subscribed to, and whether it
    speaks that protocol itself.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    is_classic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as its coordinator sees it; `protocol` is the name of the assignor in use. The epochs are those
    of groups of the consumer protocol: the group's, and the one that its target assignment was made for.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None


def described_classic(group: describe_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """From the answer to DescribeGroups."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_classic_member(member, group.protocol_type) for member in group.members),
    )


def _classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    """A member of another protocol, or one whose assignment is garbled, is shown without partitions."""
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = read_assignment(member.member_assignment).partitions
        except WireError:
            assignment = ()
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=assignment,
    )


def described_consumers(group: consumer_group_describe.DescribedGroup, coordinator: int) -> GroupDescription:
    """From the answer to ConsumerGroupDescribe."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol=group.assignor_name,
        coordinator=coordinator,
        members=tuple(map(_consumer, group.members)),
        type=CONSUMER,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _consumer(member: consumer_group_describe.Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions(member.assignment.topic_partitions),
        epoch=member.member_epoch,
        target=_partitions(member.target_assignment.topic_partitions),
        topics=tuple(member.subscribed_topic_names),
        pattern=member.subscribed_topic_regex or None,
        is_classic=member.member_type == 0,
    )


def _partitions(topics: Iterable[consumer_group_describe.TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions)
    )
