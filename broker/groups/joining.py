"""Who may join a group, new or again, and static members that come back.

A mismatch of protocols is refused first. A member of the current generation that joins again with nothing
changed is answered at once; a new member, the leader, or changed metadata start a rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.errors import ErrorCode
from broker.groups.attendance import Attendance
from broker.groups.config import GroupConfig
from broker.groups.draft import Draft
from broker.groups.events import (
    NO_MEMBER_ID,
    Join,
    JoinReply,
    PendingMemberTimer,
    SessionTimer,
    StoreId,
    SyncReply,
    Waiter,
)
from broker.groups.rebalance import Rebalance
from broker.groups.roster import Member
from broker.groups.standing import Standing
from broker.groups.state import State
from broker.groups.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Return:
    """A static member came back to a stable group and waits until its new id is stored."""

    member_id: str
    waiter: Waiter
    leader_before: str
    supports_skip_assignment: bool


class Joining:
    """Decides on joins; what comes of them is the rebalance's."""

    def __init__(
        self,
        config: GroupConfig,
        standing: Standing,
        draft: Draft,
        attendance: Attendance,
        stores: Stores,
        rebalance: Rebalance,
    ) -> None:
        self._config = config
        self._standing = standing
        self._draft = draft
        self._attendance = attendance
        self._stores = stores
        self._rebalance = rebalance
        self._returns: dict[StoreId, _Return] = {}

    def join(self, event: Join) -> None:
        """Let one in, let it wait, or refuse it."""
        error = self._join_error(event)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
        elif event.member_id == NO_MEMBER_ID:
            self._join_unnamed(event)
        elif event.member_id in self._standing.roster.pending and event.instance_id is None:
            self._add_member(event, event.member_id)
        else:
            self._join_again(event)

    def _join_error(self, event: Join) -> ErrorCode:
        if self._standing.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if (
            not self._config.session_timeout_min_ms
            <= event.session_timeout_ms
            <= self._config.session_timeout_max_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not self._standing.supports(event.protocol_type, event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _has_room(self, member: Member | None) -> bool:
        """KIP-389: during a rebalance the first to join stay, so that a group that was let grow too large
        shrinks.
        """
        if self._standing.state is State.PREPARING_REBALANCE:
            already_joined = member is not None and member.join_waiter is not None
            return already_joined or self._standing.roster.joining_count < self._config.group_max_size
        return member is not None or len(self._standing.roster) < self._config.group_max_size

    def _join_unnamed(self, event: Join) -> None:
        static_member = self._standing.roster.static_member(event.instance_id)
        if static_member is not None:
            self._replace_static_member(static_member, event)
        elif event.instance_id is None and event.requires_known_member_id:
            self._hand_out_member_id(event)
        else:
            self._add_member(event, event.new_member_id)

    def _hand_out_member_id(self, event: Join) -> None:
        if not self._has_room(None) or len(self._standing.roster.pending) >= self._config.pending_members_max:
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        self._standing.roster.pending.add(event.new_member_id)
        self._draft.set_timer(PendingMemberTimer(event.new_member_id), event.session_timeout_ms)
        self._draft.reply(
            event.waiter, JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id)
        )

    def _add_member(self, event: Join, member_id: str) -> None:
        self._attendance.forget_pending(member_id)
        if not self._has_room(None):
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._rebalance.try_complete()
            return
        if not len(self._standing.roster):
            self._standing.protocol_type = event.protocol_type
        member = Member(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=dict(event.protocols),
            join_waiter=event.waiter,
            is_new=True,
        )
        self._standing.roster.add(member)
        self._rebalance.member_added = True
        self._draft.set_timer(SessionTimer(member_id), self._config.new_member_join_timeout_ms)
        self._rebalance.need(f"member {member_id} joined")

    def _join_again(self, event: Join) -> None:
        error = self._standing.roster.identity_error(event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
            return
        member = self._standing.roster.members[event.member_id]
        if not self._has_room(member):
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._attendance.forget(member, "the group is full")
            self._rebalance.need(f"member {member.member_id} the group is full")
        elif self._knows_all_of(event, member):
            self._draft.reply(event.waiter, self._standing.joined(member))
        else:
            self._wait_for_join(member, event)
            self._rebalance.need(f"member {member.member_id} joined again")

    def _knows_all_of(self, event: Join, member: Member) -> bool:
        """A retried join, or one that changes nothing: the current generation answers it. A stable leader
        asks for a rebalance.
        """
        if self._standing.state is State.COMPLETING_REBALANCE:
            return member.matches(event.protocols)
        if self._standing.state is State.STABLE:
            return member.member_id != self._standing.roster.leader and member.matches(event.protocols)
        return False

    def _wait_for_join(self, member: Member, event: Join) -> None:
        self._attendance.answer_join(
            member, JoinReply(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        )
        member.client_id = event.client_id
        member.client_host = event.client_host
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.protocols = dict(event.protocols)
        member.join_waiter = event.waiter
        if not member.is_new:
            self._draft.cancel_timer(SessionTimer(member.member_id))

    def _refuse_join(self, event: Join, error: ErrorCode) -> None:
        self._draft.reply(event.waiter, JoinReply(error=error, member_id=event.member_id))

    # Static members that come back (KIP-345)

    def _replace_static_member(self, member: Member, event: Join) -> None:
        old_member_id, leader_before = member.member_id, self._standing.roster.leader or ""
        self._attendance.answer_join(
            member, JoinReply(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id)
        )
        self._attendance.answer_sync(member, SyncReply(error=ErrorCode.FENCED_INSTANCE_ID))
        self._draft.cancel_timer(SessionTimer(old_member_id))
        self._standing.roster.rename(member, event.new_member_id)
        member.is_new = False
        old_protocols = member.protocols
        self._wait_for_join(member, event)
        self._draft.note("static_member_returned", old_member_id=old_member_id, member_id=member.member_id)
        if self._standing.state is State.STABLE and self._standing.keeps_assignments(
            old_protocols, member.protocols
        ):
            assignments = {each.member_id: each.assignment for each in self._standing.roster}
            self._returns[self._stores.store_members(assignments)] = _Return(
                member_id=member.member_id,
                waiter=event.waiter,
                leader_before=leader_before,
                supports_skip_assignment=event.supports_skip_assignment,
            )
        else:
            self._rebalance.need(f"static member {event.instance_id} came back")

    def stored(self, store_id: StoreId, error: ErrorCode) -> None:
        """A store was reported: if it was the new id of a static member that came back, that is answered."""
        returning = self._returns.pop(store_id, None)
        if returning is not None:
            self._answer_return(returning, error)

    def abandon(self) -> None:
        """Nobody who came back is waited for any more."""
        self._returns.clear()

    def _answer_return(self, returning: _Return, error: ErrorCode) -> None:
        member = self._standing.roster.members.get(returning.member_id)
        if (
            member is None
            or member.join_waiter != returning.waiter
            or self._standing.state is not State.STABLE
        ):
            return
        if error is not ErrorCode.NONE:
            self._attendance.answer_join(member, JoinReply(error=error, member_id=NO_MEMBER_ID))
        else:
            reply = self._standing.returned(
                member,
                returning.leader_before,
                supports_skip_assignment=returning.supports_skip_assignment,
            )
            self._attendance.answer_join(member, reply)
        self._attendance.touch(member)
