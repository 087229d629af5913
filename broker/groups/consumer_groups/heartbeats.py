"""Members of the consumer protocol: joining, staying, leaving.

A member is fenced by its epoch: one that is ahead of what the log knows, or behind by more than one lost
answer, has to give everything up and join again. Differences from Apache Kafka, in favour of members: one
that begins anew under the member id it has is taken in at once, where Kafka lets it wait for its own session
to end.
"""

from __future__ import annotations

from dataclasses import replace

from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.consumer_groups.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    RevocationTimer,
)
from broker.groups.consumer_groups.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NEW_MEMBER,
    NOTHING,
    Assignment,
    MemberState,
    Partitions,
    Subscription,
)
from broker.groups.consumer_groups.patterns import Pattern
from broker.groups.consumer_groups.records import MemberAssignment, MemberSubscription, MemberTarget
from broker.groups.consumer_groups.round import Asked, Round


def take_heartbeat(work: Round, event: ConsumerHeartbeat, config: ConsumerGroupConfig) -> None:
    """Take in what a member says; unless it leaves or is refused, it is answered at the end of the round."""
    try:
        if event.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            _leave(work, event)
        else:
            _check(work, event, config)
            _identify(work, event)
            _subscribe(work, event)
            work.asked.append(Asked(event=event, member_id=event.member_id, owned=event.owned))
    except ProtocolError as error:
        work.refuse(event, error.code, error.message)


def _check(work: Round, event: ConsumerHeartbeat, config: ConsumerGroupConfig) -> None:
    if event.assignor is not None and event.assignor not in config.assignors:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.assignor} is not supported. Supported assignors: "
            f"{', '.join(config.assignors)}.",
        )
    is_known = event.member_id in work.image or work.image.static_member(event.instance_id) is not None
    if not is_known and len(work.image) >= config.size_max:
        raise ProtocolError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.size_max} members.",
        )
    if event.pattern:
        Pattern(event.pattern)


def _identify(work: Round, event: ConsumerHeartbeat) -> None:
    """Whoever says this may be the member. Raises ProtocolError."""
    joins = event.member_epoch == JOIN_EPOCH
    member_id = event.member_id
    if event.instance_id is not None:
        holder = work.image.static_member(event.instance_id)
        if joins and holder is not None and holder != member_id:
            _check_released(work, event, holder)
            replace_static_member(work, holder, member_id)
            return
        if not joins:
            _check_holder(event, holder)
    if member_id not in work.image:
        if not joins:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
        work.note("member_joined", member_id=member_id, instance_id=event.instance_id, protocol="consumer")
        return
    current = work.image.assignment(member_id)
    if joins:
        answer_was_lost = current.previous_epoch == JOIN_EPOCH and current.epoch > JOIN_EPOCH
        if not answer_was_lost:
            work.write(MemberAssignment(member_id=member_id, assignment=NEW_MEMBER))
    elif not _is_in_step(current, event.member_epoch, event.owned):
        raise ProtocolError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member is at epoch {event.member_epoch}, the coordinator knows it at {current.epoch}. "
            "The member must abandon all its partitions and rejoin.",
        )


def _check_released(work: Round, event: ConsumerHeartbeat, holder: str) -> None:
    is_classic = work.image.subscriptions[holder].is_classic
    if not is_classic and work.image.assignment(holder).epoch != LEAVE_STATIC_EPOCH:
        raise ProtocolError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} cannot join the group "
            f"because the instance id is owned by member {holder}.",
        )


def _check_holder(event: ConsumerHeartbeat, holder: str | None) -> None:
    if holder is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {event.instance_id} is unknown.")
    if holder != event.member_id:
        raise ProtocolError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} was fenced by member "
            f"{holder}.",
        )


def _is_in_step(current: Assignment, epoch: int, owned: Partitions | None) -> bool:
    if epoch == current.epoch:
        return True
    # The answer with the newer epoch may have been lost: what it gave is not owned then.
    was_told = epoch < current.epoch and epoch == current.previous_epoch
    return was_told and owned is not None and owned <= current.assigned


def replace_static_member(work: Round, old_member_id: str, member_id: str) -> None:
    """A static member came back under a new member id: what was its own stays so."""
    subscription = work.image.subscriptions[old_member_id]
    target = work.image.target(old_member_id)
    assigned = work.image.assignment(old_member_id).assigned
    work.forget_member(old_member_id)
    work.write(MemberSubscription(member_id=member_id, subscription=subscription))
    work.write(MemberTarget(member_id=member_id, partitions=target))
    work.write(
        MemberAssignment(
            member_id=member_id,
            assignment=Assignment(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, assigned=assigned),
        )
    )
    work.note("static_member_returned", old_member_id=old_member_id, member_id=member_id)


def _subscribe(work: Round, event: ConsumerHeartbeat) -> None:
    before = work.image.subscriptions.get(event.member_id)
    told = before if before is not None else Subscription()
    timeout_ms = event.rebalance_timeout_ms
    pattern = told.pattern if event.pattern is None else event.pattern or None
    keep_subscription(
        work,
        event.member_id,
        replace(
            told,
            instance_id=event.instance_id if event.instance_id is not None else told.instance_id,
            rack_id=event.rack_id if event.rack_id is not None else told.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=event.topics if event.topics is not None else told.topics,
            pattern=pattern,
            rebalance_timeout_ms=timeout_ms if timeout_ms is not None else told.rebalance_timeout_ms,
            assignor=event.assignor if event.assignor is not None else told.assignor,
            classic=None,
        ),
    )


def keep_subscription(work: Round, member_id: str, subscription: Subscription) -> None:
    """A member is, from now on, this; other topics than before are another epoch."""
    before = work.image.subscriptions.get(member_id)
    if subscription == before:
        return
    work.write(MemberSubscription(member_id=member_id, subscription=subscription))
    if before is None or (before.topics, before.pattern) != (subscription.topics, subscription.pattern):
        work.bumps = True


def _leave(work: Round, event: ConsumerHeartbeat) -> None:
    member_id = event.member_id
    if event.instance_id is not None:
        _check_holder(event, work.image.static_member(event.instance_id))
    if member_id not in work.image:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
    if event.member_epoch == LEAVE_STATIC_EPOCH:
        left = replace(
            work.image.assignment(member_id),
            epoch=LEAVE_STATIC_EPOCH,
            state=MemberState.STABLE,
            revoking=NOTHING,
        )
        work.write(MemberAssignment(member_id=member_id, assignment=left))
        work.cancel_timer(RevocationTimer(member_id))
        work.note("static_member_left", member_id=member_id, instance_id=event.instance_id)
    else:
        work.remove(member_id, "left")
    work.reply(
        event.waiter,
        ConsumerHeartbeatReply(error=ErrorCode.NONE, member_id=member_id, member_epoch=event.member_epoch),
    )
