"""Members of the classic protocol in a consumer group: what they are told so that they walk along.

A classic member knows no epochs of its own: its generation is its member epoch, REBALANCE_IN_PROGRESS tells
it to join again, the answer to its join brings the epoch and the answer to its sync what it has. It says
what it still owns when it joins. There is no leader among members: the coordinator assigns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.errors import ErrorCode, ProtocolError, WireError
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.consumer_groups.events import MemberSyncTimer, RejoinTimer
from broker.groups.consumer_groups.heartbeats import keep_subscription, replace_static_member
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import (
    ClassicMembership,
    MemberState,
    Partitions,
    Subscription,
    TopicIdPartition,
)
from broker.groups.consumer_groups.round import Asked, Round
from broker.groups.consumer_groups.topics import Topics
from broker.groups.events import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeavingMember,
    SessionTimer,
    Sync,
    SyncReply,
)
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from broker.wire.messages.consumer_protocol import TopicPartition as NamedPartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSubscription:
    """What a classic consumer says in one of its protocols."""

    version: int
    topics: frozenset[str]
    owned: tuple[tuple[str, int], ...]
    rack_id: str | None


def read_subscription(metadata: bytes) -> ClassicSubscription:
    """Raises WireError for what no consumer sends."""
    version, told = ConsumerProtocolSubscription.decode_with_version(metadata, newer_as_latest=True)
    return ClassicSubscription(
        version=min(version, ConsumerProtocolSubscription.max_version),
        topics=frozenset(told.topics),
        owned=tuple((each.topic, number) for each in told.owned_partitions for number in each.partitions),
        rack_id=told.rack_id,
    )


def identified(named: tuple[tuple[str, int], ...], topics: Topics) -> Partitions:
    """Partitions by topic id; those of topics that are gone are left out."""
    found = ((topics.named(name), number) for name, number in named)
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic, number in found if topic is not None)


def write_assignment(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """An assignment as a classic consumer reads it; partitions of topics that are gone are left out."""
    by_name: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions, key=lambda each: each.partition):
        topic = topics.of_id(topic_id)
        if topic is not None:
            by_name.setdefault(topic.name, []).append(number)
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            NamedPartitions(topic=name, partitions=by_name[name]) for name in sorted(by_name)
        ]
    ).encode_with_version(version)


def _first_protocol(subscription: Subscription) -> tuple[str, bytes]:
    assert subscription.classic is not None, "asked of a classic member"
    return subscription.classic.protocols[0]


# Joining


def take_join(work: Round, event: Join, config: ConsumerGroupConfig) -> None:
    """Take in a member that joins (again); unless it is refused, it is answered at the end of the round."""
    try:
        told = _check_join(work.image, event, config)
        if event.member_id == NO_MEMBER_ID and event.instance_id is None and event.requires_known_member_id:
            raise ProtocolError(ErrorCode.MEMBER_ID_REQUIRED)
        member_id = _identify_joining(work, event)
    except ProtocolError as error:
        member_id = event.new_member_id if error.code is ErrorCode.MEMBER_ID_REQUIRED else event.member_id
        work.reply(event.waiter, JoinReply(error=error.code, member_id=member_id))
        return
    before = work.image.subscriptions.get(member_id)
    keep_subscription(
        work,
        member_id,
        replace(
            before if before is not None else Subscription(),
            instance_id=event.instance_id,
            rack_id=told.rack_id if told.rack_id is not None or before is None else before.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=told.topics,
            pattern=None,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicMembership(
                session_timeout_ms=event.session_timeout_ms, protocols=tuple(event.protocols.items())
            ),
        ),
    )
    work.asked.append(Asked(event=event, member_id=member_id, owned=identified(told.owned, work.topics)))


def _check_join(image: GroupImage, event: Join, config: ConsumerGroupConfig) -> ClassicSubscription:
    """What the member subscribes to. Raises ProtocolError."""
    shortest, longest = config.classic_session_timeout_min_ms, config.classic_session_timeout_max_ms
    if not shortest <= event.session_timeout_ms <= longest:
        raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
    is_known = event.member_id in image or image.static_member(event.instance_id) is not None
    if not is_known and len(image) >= config.size_max:
        raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not _is_understood(image, set(event.protocols)):
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return read_subscription(next(iter(event.protocols.values())))
    except WireError as error:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _is_understood(image: GroupImage, names: set[str]) -> bool:
    """Whether one of these protocols is known to every classic member: the group may be theirs again."""
    for subscription in image.subscriptions.values():
        if subscription.classic is not None:
            names = names & {name for name, _ in subscription.classic.protocols}
    return bool(names)


def _identify_joining(work: Round, event: Join) -> str:
    """The id of the member that joins. Raises ProtocolError."""
    member_id = event.member_id or event.new_member_id
    if event.instance_id is not None:
        holder = work.image.static_member(event.instance_id)
        if event.member_id != NO_MEMBER_ID:
            _check_identity(work.image, event.member_id, event.instance_id)
        elif holder is not None:
            replace_static_member(work, holder, member_id)
    if member_id not in work.image:
        work.note("member_joined", member_id=member_id, instance_id=event.instance_id, protocol="classic")
    return member_id


def answer_join(work: Round, event: Join, member_id: str) -> None:
    """Tell a member that has joined its epoch; what it has it is told when it syncs."""
    subscription = work.image.subscriptions[member_id]
    work.cancel_timer(RejoinTimer(member_id))
    work.set_timer(SessionTimer(member_id), event.session_timeout_ms)
    work.set_timer(MemberSyncTimer(member_id), event.rebalance_timeout_ms)
    work.reply(
        event.waiter,
        JoinReply(
            error=ErrorCode.NONE,
            member_id=member_id,
            generation=work.image.assignment(member_id).epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=_first_protocol(subscription)[0],
        ),
    )


# Staying


def _check_identity(image: GroupImage, member_id: str, instance_id: str | None) -> None:
    if instance_id is not None:
        holder = image.static_member(instance_id)
        if holder is not None and holder != member_id:
            raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
        if holder is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    subscription = image.subscriptions.get(member_id)
    if subscription is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)


def _check_member(
    image: GroupImage, member_id: str, instance_id: str | None, generation: int
) -> Subscription:
    """A classic member of this generation. Raises ProtocolError."""
    _check_identity(image, member_id, instance_id)
    subscription = image.subscriptions[member_id]
    if not subscription.is_classic:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if image.assignment(member_id).epoch != generation:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    return subscription


def answer_sync(work: Round, event: Sync, rejoining: set[str]) -> None:
    """Tell a classic member what it has, unless it has to join again."""
    try:
        subscription = _check_member(work.image, event.member_id, event.instance_id, event.generation)
        name, metadata = _first_protocol(subscription)
        if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or event.protocol not in (None, name):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        current = work.image.assignment(event.member_id)
        if work.image.group_epoch > current.epoch and current.state is not MemberState.UNREVOKED:
            _expect_again(work, event.member_id, subscription, rejoining)
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
    except ProtocolError as error:
        work.reply(event.waiter, SyncReply(error=error.code))
        return
    work.cancel_timer(MemberSyncTimer(event.member_id))
    _keep_session(work, event.member_id, subscription)
    version = read_subscription(metadata).version
    work.reply(
        event.waiter,
        SyncReply(
            error=ErrorCode.NONE,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=name,
            assignment=write_assignment(current.assigned, work.topics, version),
        ),
    )


def answer_heartbeat(work: Round, event: Heartbeat, rejoining: set[str]) -> None:
    """Tell a classic member whether it has to join again: there is a new epoch, it has something to give up,
    or what it waited for has become free.
    """
    error = ErrorCode.NONE
    try:
        subscription = _check_member(work.image, event.member_id, event.instance_id, event.generation)
        _keep_session(work, event.member_id, subscription)
        current = work.image.assignment(event.member_id)
        awaits = current.state is MemberState.UNRELEASED
        can_get_more = awaits and not work.image.awaits_others(event.member_id)
        is_behind = current.epoch < work.image.group_epoch
        if is_behind or current.state is MemberState.UNREVOKED or can_get_more:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            _expect_again(work, event.member_id, subscription, rejoining)
    except ProtocolError as refused:
        error = refused.code
    work.reply(event.waiter, HeartbeatReply(error=error))


def _keep_session(work: Round, member_id: str, subscription: Subscription) -> None:
    assert subscription.classic is not None, "asked of a classic member"
    work.set_timer(SessionTimer(member_id), subscription.classic.session_timeout_ms)


def _expect_again(work: Round, member_id: str, subscription: Subscription, rejoining: set[str]) -> None:
    """The member has a rebalance timeout to join again, counted from the first time it was told."""
    if member_id not in rejoining:
        rejoining.add(member_id)
        work.set_timer(RejoinTimer(member_id), subscription.rebalance_timeout_ms)


# Leaving


def take_leave(work: Round, event: Leave) -> None:
    """Let classic members go."""
    results = tuple((leaving, _leave_one(work, leaving)) for leaving in event.members)
    work.reply(event.waiter, LeaveReply(error=ErrorCode.NONE, members=results))


def _leave_one(work: Round, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        member_id = work.image.static_member(leaving.instance_id) or NO_MEMBER_ID
    try:
        _check_identity(work.image, member_id, leaving.instance_id)
    except ProtocolError as error:
        return error.code
    if not work.image.subscriptions[member_id].is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    work.remove(member_id, "left")
    return ErrorCode.NONE
