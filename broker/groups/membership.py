"""The state machine of one group under the classic protocol: who is in, who leads, and who gets what.

States: an Empty group has no members (it may have offsets). A join makes it PreparingRebalance: joins are
held back until every known member has joined again or time is out (of an empty group: until no more members
have come for a while). Then the generation grows by one, everyone is answered at once, the leader with the
list of members, and the group is CompletingRebalance until the leader's assignment is stored. Stable: members
know what is theirs and send heartbeats. Dead: this object is not the group any more.

Rules that hold throughout:
- A mismatch of protocols is refused first. A member of the current generation that joins again with nothing
  changed is answered at once; a new member, the leader, or changed metadata start a rebalance, and one
  rebalance at a time is under way.
- Leadership stays where it is while the leader stays. Only the leader gets the list of members.
- Requests with an old generation, a replaced instance id or an unknown member id are fenced and change
  nothing.
- Every waiter is answered exactly once. One that is overtaken by a second request of the same member gets
  REBALANCE_IN_PROGRESS.
- A member that waits for an answer is alive; its session runs from the answer on. One that never had an
  answer is kept for `new_member_join_timeout_ms`.
- Assignments and new ids of static members are told only after the log has them (`Stored`); `apply` is how
  both a live group and a recovering one take in what the log says.

Differences from Apache Kafka, all in favour of members: a static member that is away during a rebalance keeps
its place until its session ends; one that comes back with another set of topics starts a rebalance; one that
comes back to a full group is not turned away. Sources: KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-559,
KIP-814.

The parts: `standing` is the group's state, `joining` decides on joins, `rebalance` leads from one generation
to the next, `stores` speaks with the log, `attendance` answers members and keeps their sessions.
"""

from __future__ import annotations

from typing import assert_never

from broker.errors import ErrorCode
from broker.groups.attendance import Attendance
from broker.groups.config import GroupConfig
from broker.groups.draft import Draft
from broker.groups.events import (
    NO_MEMBER_ID,
    CoordinatorMoved,
    Deleted,
    Downgraded,
    Effects,
    Event,
    GroupMetadata,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinTimer,
    Leave,
    LeaveReply,
    LeavingMember,
    Loaded,
    OffsetsCommitted,
    PendingMemberTimer,
    SessionTimer,
    Stored,
    Sync,
    SyncTimer,
    Timer,
    TimerFired,
    Upgraded,
)
from broker.groups.joining import Joining
from broker.groups.rebalance import Rebalance
from broker.groups.roster import Member, Roster
from broker.groups.standing import Standing
from broker.groups.state import State
from broker.groups.stores import Stores


class Membership:
    """One group. Owned by one driver: `handle` changes it, `apply` replays the log into it; `standing` is to
    be looked at only.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.standing = Standing()
        self._config = config
        self._draft = Draft()
        self._attendance = Attendance(self.standing, self._draft)
        self._stores = Stores(self.standing, self._draft)
        self._rebalance = Rebalance(config, self.standing, self._draft, self._attendance, self._stores)
        self._joining = Joining(
            config, self.standing, self._draft, self._attendance, self._stores, self._rebalance
        )

    @property
    def is_deserted(self) -> bool:
        """No members, none expected, and the log knows as much."""
        standing = self.standing
        return standing.state is State.EMPTY and not standing.roster.pending and not self._stores.under_way

    @property
    def is_disposable(self) -> bool:
        """Deserted, and with nothing in the log: nothing is lost by forgetting this object."""
        return self.is_deserted and self.standing.stored is None

    def apply(self, metadata: GroupMetadata) -> None:
        """Become what the log says."""
        self.standing.apply(metadata)

    def handle(self, event: Event, now_ms: int) -> Effects:
        """Decide. `now_ms` is wall time and goes into records only: timers are asked for as delays."""
        self._draft.now_ms = now_ms
        match event:
            case Join():
                self._joining.join(event)
            case Sync():
                self._rebalance.sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case OffsetsCommitted():
                self._attendance.touch(self.standing.roster.members.get(event.member_id))
            case TimerFired():
                self._timer_fired(event.timer)
            case Stored():
                self._store_reported(event)
            case Loaded():
                self._loaded()
            case Deleted():
                assert not len(self.standing.roster), "a group with members is not deleted"
                self._die()
            case CoordinatorMoved():
                self._die()
            case Upgraded():
                self._die(ErrorCode.REBALANCE_IN_PROGRESS)
            case Downgraded():
                self._downgraded()
            case _:
                assert_never(event)
        return self._draft.take()

    def _store_reported(self, event: Stored) -> None:
        self._stores.take_in(event)
        self._rebalance.stored(event.store.id, event.error)
        self._joining.stored(event.store.id, event.error)

    # Sessions

    def _heartbeat(self, event: Heartbeat) -> None:
        error = self.standing.member_error(event.member_id, event.instance_id, event.generation)
        if error is ErrorCode.NONE:
            self._attendance.touch(self.standing.roster.members[event.member_id])
            if self.standing.state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._draft.reply(event.waiter, HeartbeatReply(error=error))

    def _timer_fired(self, timer: Timer) -> None:
        match timer:
            case SessionTimer(member_id):
                self._session_ended(member_id)
            case PendingMemberTimer(member_id):
                self.standing.roster.pending.discard(member_id)
                self._rebalance.try_complete()
            case JoinTimer():
                self._rebalance.join_time_is_out()
            case SyncTimer():
                self._rebalance.sync_time_is_out()
            case _:
                assert_never(timer)

    def _session_ended(self, member_id: str) -> None:
        member = self.standing.roster.members.get(member_id)
        if member is not None and (member.is_new or not member.is_waiting):
            self._remove(member, "was not heard of within its session timeout")

    # Leaving

    def _leave(self, event: Leave) -> None:
        if self.standing.state is State.DEAD:
            self._draft.reply(event.waiter, LeaveReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        results = tuple((leaving, self._leave_one(leaving)) for leaving in event.members)
        self._draft.reply(event.waiter, LeaveReply(error=ErrorCode.NONE, members=results))

    def _leave_one(self, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in self.standing.roster.pending:
            self._attendance.forget_pending(member_id)
            self._rebalance.try_complete()
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID:
            static_member = self.standing.roster.static_member(leaving.instance_id)
            member_id = static_member.member_id if static_member is not None else NO_MEMBER_ID
        error = self.standing.roster.identity_error(member_id, leaving.instance_id)
        if error is ErrorCode.NONE:
            self._remove(self.standing.roster.members[member_id], "left")
        return error

    def _remove(self, member: Member, reason: str) -> None:
        self._attendance.forget(member, reason)
        self._rebalance.need(f"member {member.member_id} {reason}")

    # Coming and going as a whole

    def _loaded(self) -> None:
        """Sessions run from now on: whoever was alive could not reach us before."""
        for member in self.standing.roster:
            self._attendance.touch(member)
        if len(self.standing.roster) > self._config.group_max_size:
            self._rebalance.need("the group is larger than allowed")

    def _downgraded(self) -> None:
        self._loaded()
        if self.standing.state is not State.DEAD:
            self._rebalance.need("the group spoke the consumer protocol before")

    def _die(self, told: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        self._attendance.send_away(told)
        self._rebalance.abandon()
        self._joining.abandon()
        self.standing.roster = Roster()
        self.standing.move_to(State.DEAD, self._draft.now_ms)
