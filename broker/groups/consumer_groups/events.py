"""What a consumer group is told beside the requests of the classic protocol, and what it wants done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from broker.errors import ErrorCode
from broker.groups.consumer_groups.members import Partitions
from broker.groups.consumer_groups.records import Change
from broker.groups.events import (
    Fact,
    GroupMetadata,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    Loaded,
    SessionTimer,
    Sync,
    SyncReply,
    Waiter,
)

# Timers


@dataclass(frozen=True, slots=True)
class RevocationTimer:
    """A member did not give up in time what it was asked to."""

    member_id: str


@dataclass(frozen=True, slots=True)
class RejoinTimer:
    """A classic member was told to join again and did not."""

    member_id: str


@dataclass(frozen=True, slots=True)
class MemberSyncTimer:
    """A classic member joined and did not ask for its assignment."""

    member_id: str


MemberTimer = SessionTimer | RevocationTimer | RejoinTimer | MemberSyncTimer


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat, checked for what can be told from itself. None where the member says nothing
    new; an epoch of 0 joins, -1 and -2 leave.
    """

    waiter: Waiter
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    pattern: str | None = None
    """Empty: no expression any more."""
    assignor: str | None = None
    owned: Partitions | None = None
    may_see: Callable[[str], bool] = lambda _: True
    """Whether whoever sent it may know of a topic: expressions find no others."""

    @property
    def is_full(self) -> bool:
        """The member says all about itself and has to be told all: it joins, or lost an answer."""
        says_all = self.rebalance_timeout_ms is not None and self.owned is not None
        return self.member_epoch == 0 or (says_all and (self.topics is not None or self.pattern is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTimerFired:
    """A timer that was set and not cancelled ran out."""

    timer: MemberTimer


ConsumerEvent = ConsumerHeartbeat | Join | Sync | Heartbeat | Leave | MemberTimerFired | Loaded


# Replies


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    """Answer to ConsumerHeartbeat; `assignment` None says that it is what it was."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


ConsumerReplyValue = ConsumerHeartbeatReply | JoinReply | SyncReply | HeartbeatReply | LeaveReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReply:
    """Give `value` to `waiter`."""

    waiter: Waiter
    value: ConsumerReplyValue

    def refused(self, error: ErrorCode) -> ConsumerReply:
        """The same, told that the log did not take the group's changes."""
        value = self.value
        refused: ConsumerReplyValue
        match value:
            case ConsumerHeartbeatReply():
                refused = ConsumerHeartbeatReply(error=error)
            case JoinReply():
                refused = JoinReply(error=error, member_id=value.member_id)
            case SyncReply():
                refused = SyncReply(error=error)
            case HeartbeatReply():
                refused = HeartbeatReply(error=error)
            case LeaveReply():
                refused = LeaveReply(error=error)
        return ConsumerReply(waiter=self.waiter, value=refused)


def refusal(event: ConsumerEvent, error: ErrorCode) -> ConsumerReply | None:
    """The answer to an event that is not handled at all; None where nobody waits for one."""
    value: ConsumerReplyValue
    match event:
        case ConsumerHeartbeat():
            value = ConsumerHeartbeatReply(error=error)
        case Join():
            value = JoinReply(error=error, member_id=event.member_id)
        case Sync():
            value = SyncReply(error=error)
        case Heartbeat():
            value = HeartbeatReply(error=error)
        case Leave():
            value = LeaveReply(error=error)
        case MemberTimerFired() | Loaded():
            return None
        case _:
            assert_never(event)
    return ConsumerReply(waiter=event.waiter, value=value)


# Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    """Fire `timer` after `delay_ms`, counted anew if it is set; None: forget it."""

    timer: MemberTimer
    delay_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Once the log has the records, the group is a classic one: as `metadata` says, or an empty one."""

    metadata: GroupMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEffects:
    """What to do after one round. Timers at once; replies once the log has all of `records`, in one batch, or
    at once where there are none. `ConsumerGroup.settle` is told how it went before anything else is handled.
    """

    records: tuple[Change, ...] = ()
    metadata: tuple[GroupMetadata | None, ...] = ()
    """Records of the classic kind that go with them: the group's tombstone, or what it is turned into."""
    timers: tuple[TimerChange, ...] = ()
    replies: tuple[ConsumerReply, ...] = ()
    facts: tuple[Fact, ...] = ()
    retirement: Retirement | None = None
    unhandled: tuple[ConsumerEvent, ...] = ()
    """Events that came after the retirement: the classic group's to handle."""
