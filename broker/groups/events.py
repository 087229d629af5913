"""What a group machine is told, and what it wants done: frozen values, the vocabulary of `membership`.

A *waiter* is an opaque token of the driver for one request under way: the machine answers each waiter exactly
once, at once or later. A *member id* is handed out by the coordinator, an *instance id* (`group.instance.id`,
KIP-345) is chosen by the user and marks a static member. All times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from broker.errors import ErrorCode

Waiter = NewType("Waiter", int)
StoreId = NewType("StoreId", int)

NO_MEMBER_ID = ""
NO_GENERATION = -1


# What has to survive


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member as the log keeps it: `subscription` is its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """One generation of a group as the log keeps it; no members means that the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group entered the state that this record describes; -1 in records older than Kafka 2.1."""
    members: tuple[MemberMetadata, ...]


# Timers


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """A member was not heard of in time."""

    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberTimer:
    """A member id was handed out and nobody joined with it."""

    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """The wait for members to join (again) is over."""


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """The wait for members to ask for their assignment is over."""


Timer = SessionTimer | PendingMemberTimer | JoinTimer | SyncTimer


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `new_member_id` is what the member will be called if it needs a name; protocols are in order
    of preference.
    """

    waiter: Waiter
    member_id: str
    instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    requires_known_member_id: bool
    """KIP-394: a dynamic member without an id is sent away with one first."""
    supports_skip_assignment: bool
    """KIP-814: a static leader that comes back may be told not to assign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. Protocol type and name are checked where given (KIP-559); only the leader brings
    assignments.
    """

    waiter: Waiter
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat."""

    waiter: Waiter
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """Who leaves: an instance id without a member id is an administrator removing a static member."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup of one or more members."""

    waiter: Waiter
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """A member committed offsets, which proves it alive as a heartbeat does."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that was set and not cancelled ran out."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The append that an earlier `Store` asked for is committed, or failed with `error`."""

    store: Store
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The log was read to its end: the machine is live from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The group, empty as it must be, is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMoved:
    """This node no longer coordinates the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """The group speaks the consumer protocol from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downgraded:
    """The group spoke the consumer protocol before, and is live from here on."""


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | OffsetsCommitted
    | TimerFired
    | Stored
    | Loaded
    | Deleted
    | CoordinatorMoved
    | Upgraded
    | Downgraded
)


# Replies


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A line of the list that only the leader gets: `metadata` is for the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """Answer to Join; `members` is filled for the leader alone."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """Answer to Sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """Answer to Heartbeat."""

    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """Answer to Leave: one error a member, in the order asked, unless all of it was refused with `error`."""

    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


ReplyValue = JoinReply | SyncReply | HeartbeatReply | LeaveReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Give `value` to `waiter`."""

    waiter: Waiter
    value: ReplyValue


# Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Fire `timer` after `delay_ms`; one that is set already is set anew."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Forget `timer`; nothing happens when it is not set."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Append `metadata` to the log and report `Stored` with this value, whatever comes of it."""

    id: StoreId
    metadata: GroupMetadata


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth a line in the log: a past-tense name and its keys."""

    name: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What to do after one event, in this order: timers, replies, stores.

    No reply here waits for a store here. An answer that must not be seen before something is durable (an
    assignment, the new id of a static member) is held back by the machine and comes out of handling `Stored`,
    so a driver that appends the stores of a group in the order it got them and reports each one cannot answer
    too early.
    """

    timers: tuple[SetTimer | CancelTimer, ...] = ()
    """Later entries win over earlier ones for the same timer."""
    replies: tuple[Reply, ...] = ()
    """May be given at once, in any order."""
    stores: tuple[Store, ...] = ()
    """To be appended in order, after the stores of earlier effects of the same group."""
    facts: tuple[Fact, ...] = field(default=())
    """For the log only."""
