"""A group with members that changes its protocol, in either direction, and loses nothing by it.

Upgrade: the first member of the consumer protocol joins a group of classic consumers. Its generation becomes
the epoch, what each member was given becomes both its target and what it has; the join then starts a new
epoch. Downgrade: the last member of the consumer protocol is gone and only classic ones are left. The epoch
becomes the generation, the targets what the members are given, and a rebalance follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import WireError
from broker.groups.consumer_groups.classic_members import identified, read_subscription, write_assignment
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import (
    NOTHING,
    Assignment,
    ClassicMembership,
    Partitions,
    Subscription,
)
from broker.groups.consumer_groups.records import (
    Change,
    GroupEpoch,
    MemberAssignment,
    MemberSubscription,
    MemberTarget,
    PatternResolution,
    SubscribedTopics,
    TargetEpoch,
)
from broker.groups.consumer_groups.topics import Topics
from broker.groups.events import GroupMetadata, MemberMetadata
from broker.groups.roster import Member
from broker.groups.standing import Standing
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment


def may_upgrade(standing: Standing, config: ConsumerGroupConfig) -> bool:
    """Whether a classic group with members may become a consumer group."""
    return (
        config.migration.allows_upgrade
        and standing.is_consumer_group
        and standing.protocol_type is not None
        and len(standing.roster) < config.size_max
    )


def upgraded(standing: Standing, topics: Topics) -> list[Change]:
    """The consumer group that a classic one becomes. Raises WireError when a member's metadata cannot be
    read.
    """
    members = [(member.member_id, *_upgraded_member(member, standing, topics)) for member in standing.roster]
    epoch = standing.generation
    return [
        *(MemberSubscription(member_id=member_id, subscription=each) for member_id, each, _ in members),
        GroupEpoch(epoch=epoch),
        *(MemberTarget(member_id=member_id, partitions=has) for member_id, _, has in members),
        TargetEpoch(epoch=epoch),
        *(
            MemberAssignment(
                member_id=member_id,
                assignment=Assignment(epoch=epoch, previous_epoch=epoch, assigned=has),
            )
            for member_id, _, has in members
        ),
    ]


def _upgraded_member(member: Member, standing: Standing, topics: Topics) -> tuple[Subscription, Partitions]:
    protocol = standing.protocol if standing.protocol in member.protocols else next(iter(member.protocols))
    told = read_subscription(member.protocols[protocol or ""])
    subscription = Subscription(
        instance_id=member.instance_id,
        rack_id=told.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=told.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMembership(
            session_timeout_ms=member.session_timeout_ms, protocols=tuple(member.protocols.items())
        ),
    )
    return subscription, _given(member.assignment, topics)


def _given(assignment: bytes, topics: Topics) -> Partitions:
    if not assignment:
        return NOTHING
    _, told = ConsumerProtocolAssignment.decode_with_version(assignment, newer_as_latest=True)
    named = tuple((each.topic, number) for each in told.assigned_partitions for number in each.partitions)
    return identified(named, topics)


def downgrades(image: GroupImage, config: ConsumerGroupConfig) -> bool:
    """Whether a group that has just lost a member of the consumer protocol becomes a classic one."""
    return (
        config.migration.allows_downgrade
        and 0 < len(image) <= config.classic_size_max
        and all(subscription.is_classic for subscription in image.subscriptions.values())
    )


def downgraded(image: GroupImage, topics: Topics, now_ms: int) -> GroupMetadata:
    """The classic group that a consumer group becomes, all of whose members are classic."""
    protocols = {member_id: _protocols(image.subscriptions[member_id]) for member_id in image}
    common = set.intersection(*(set(names) for names in protocols.values()))
    first = next(iter(protocols))
    protocol = next(name for name in protocols[first] if name in common)
    return GroupMetadata(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=image.group_epoch,
        protocol=protocol,
        leader=first,
        state_timestamp_ms=now_ms,
        members=tuple(
            _downgraded_member(member_id, image, topics, protocols[member_id][protocol])
            for member_id in image
        ),
    )


def _protocols(subscription: Subscription) -> dict[str, bytes]:
    assert subscription.classic is not None, "only classic members are left"
    return dict(subscription.classic.protocols)


def _downgraded_member(member_id: str, image: GroupImage, topics: Topics, metadata: bytes) -> MemberMetadata:
    subscription = image.subscriptions[member_id]
    assert subscription.classic is not None, "only classic members are left"
    try:
        version = read_subscription(metadata).version
    except WireError:
        version = 0
    return MemberMetadata(
        member_id=member_id,
        instance_id=subscription.instance_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        session_timeout_ms=subscription.classic.session_timeout_ms,
        subscription=metadata,
        assignment=write_assignment(image.target(member_id), topics, version),
    )


def tombstones(image: GroupImage) -> Iterator[Change]:
    """What makes the log forget the group."""
    for member_id in image:
        yield MemberAssignment(member_id=member_id, assignment=None)
        yield MemberTarget(member_id=member_id, partitions=None)
    yield TargetEpoch(epoch=None)
    for member_id in image:
        yield MemberSubscription(member_id=member_id, subscription=None)
    for pattern in image.patterns:
        yield PatternResolution(pattern=pattern, resolved=None)
    yield SubscribedTopics(topics=None)
    yield GroupEpoch(epoch=None)
