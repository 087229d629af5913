"""A rebalance, from the reason for it until everyone has been told what is theirs.

Joins are held back until every known member has joined again or time is out (of an empty group: until no more
members have come for a while). Then the generation grows by one and all are answered at once; assignments are
told once the log has the leader's.
"""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.groups.attendance import Attendance
from broker.groups.config import GroupConfig
from broker.groups.draft import Draft
from broker.groups.events import JoinTimer, SessionTimer, StoreId, Sync, SyncReply, SyncTimer
from broker.groups.roster import Member
from broker.groups.standing import Standing
from broker.groups.state import State
from broker.groups.stores import Stores


class Rebalance:
    """Moves a group from state to state; at most one rebalance is under way."""

    def __init__(
        self, config: GroupConfig, standing: Standing, draft: Draft, attendance: Attendance, stores: Stores
    ) -> None:
        self.member_added = False
        """Whether a member came since the wait for more of them began."""
        self._config = config
        self._standing = standing
        self._draft = draft
        self._attendance = attendance
        self._stores = stores
        self._initial_delay_left_ms: int | None = None
        """While an empty group gathers its first members: how much longer the wait may still be drawn out."""
        self._assignment_store: StoreId | None = None

    # Gathering members

    def need(self, reason: str) -> None:
        """Start a rebalance unless one is under way, and end it at once if nobody is missing."""
        if self._standing.state is not State.PREPARING_REBALANCE:
            self._start_rebalance(reason)
        self.try_complete()

    def _start_rebalance(self, reason: str) -> None:
        if self._standing.state is State.COMPLETING_REBALANCE:
            self._attendance.answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        for member in self._standing.roster:
            member.owes_sync = False
        self._assignment_store = None
        self._draft.cancel_timer(SyncTimer())
        timeout_ms, delay_ms = (
            self._standing.roster.rebalance_timeout_ms,
            self._config.initial_rebalance_delay_ms,
        )
        if self._standing.state is State.EMPTY and delay_ms > 0:
            self._initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            self.member_added = False
            self._draft.set_timer(JoinTimer(), delay_ms)
        else:
            self._initial_delay_left_ms = None
            self._draft.set_timer(JoinTimer(), timeout_ms)
        self._standing.move_to(State.PREPARING_REBALANCE, self._draft.now_ms)
        self._draft.note("rebalance_started", reason=reason, generation=self._standing.generation)

    def try_complete(self) -> None:
        """End the gathering of members if nobody is missing any more."""
        if (
            self._standing.state is State.PREPARING_REBALANCE
            and self._initial_delay_left_ms is None
            and self._standing.roster.everyone_joined
        ):
            self._complete_join()

    def join_time_is_out(self) -> None:
        """Go on with those who joined; of a new group, wait on while members come."""
        if self._standing.state is not State.PREPARING_REBALANCE:
            return
        left_ms = self._initial_delay_left_ms
        if left_ms and self.member_added:
            delay_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
            self._initial_delay_left_ms = left_ms - delay_ms
            self.member_added = False
            self._draft.set_timer(JoinTimer(), delay_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        self._initial_delay_left_ms = None
        for member in self._standing.roster:
            if member.join_waiter is None and member.instance_id is None:
                self._attendance.forget(member, "did not join again in time")
        if len(self._standing.roster) and not self._standing.roster.elect_joined_leader():
            # Only static members are left and none has joined: wait on, until one does or their sessions end.
            self._draft.set_timer(JoinTimer(), self._standing.roster.rebalance_timeout_ms)
            return
        self._draft.cancel_timer(JoinTimer())
        self._standing.generation += 1
        if len(self._standing.roster):
            self._start_generation()
        else:
            self._become_empty()

    def _start_generation(self) -> None:
        self._standing.agree()
        self._standing.move_to(State.COMPLETING_REBALANCE, self._draft.now_ms)
        for member in self._standing.roster:
            if member.join_waiter is None:
                continue
            self._attendance.answer_join(member, self._standing.joined(member))
            member.is_new = False
            member.owes_sync = True
            self._attendance.touch(member)
        self._draft.set_timer(SyncTimer(), self._standing.roster.rebalance_timeout_ms)
        self._draft.note(
            "generation_started",
            generation=self._standing.generation,
            members=len(self._standing.roster),
            leader=self._standing.roster.leader,
            protocol=self._standing.protocol,
        )

    def _become_empty(self) -> None:
        self._standing.agree()
        self._standing.move_to(State.EMPTY, self._draft.now_ms)
        self._stores.store(())
        self._draft.note("group_emptied", generation=self._standing.generation)

    # Assignments

    def sync(self, event: Sync) -> None:
        """A member asks for its assignment; the leader brings everyone's."""
        error = self._sync_error(event)
        if error is not ErrorCode.NONE:
            self._draft.reply(event.waiter, SyncReply(error=error))
            return
        member = self._standing.roster.members[event.member_id]
        if self._standing.state is State.STABLE:
            self._draft.reply(event.waiter, self._standing.assigned(member))
            self._attendance.touch(member)
        else:
            self._wait_for_sync(member, event)
        member.owes_sync = False
        if not any(each.owes_sync for each in self._standing.roster):
            self._draft.cancel_timer(SyncTimer())

    def _sync_error(self, event: Sync) -> ErrorCode:
        error = self._standing.member_error(event.member_id, event.instance_id, event.generation)
        if error is not ErrorCode.NONE:
            return error
        if self._standing.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if event.protocol_type not in (None, self._standing.protocol_type) or event.protocol not in (
            None,
            self._standing.protocol,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _wait_for_sync(self, member: Member, event: Sync) -> None:
        self._attendance.answer_sync(member, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = event.waiter
        self._draft.cancel_timer(SessionTimer(member.member_id))
        if member.member_id == self._standing.roster.leader and self._assignment_store is None:
            self._assignment_store = self._stores.store_members(event.assignments)

    def stored(self, store_id: StoreId, error: ErrorCode) -> None:
        """A store was reported: if it was the assignment, members get theirs."""
        if store_id != self._assignment_store:
            return
        self._assignment_store = None
        self._attendance.answer_syncs(error)
        if error is ErrorCode.NONE:
            self._draft.note(
                "assignment_stored", generation=self._standing.generation, members=len(self._standing.roster)
            )
        else:
            self.need("the assignment could not be stored")

    def abandon(self) -> None:
        """Nothing is under way any more."""
        self._draft.cancel_timer(JoinTimer())
        self._draft.cancel_timer(SyncTimer())
        self._assignment_store = None

    def sync_time_is_out(self) -> None:
        """Those that were told of the generation and did not ask for their part of it are gone."""
        if self._standing.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        silent = [member for member in self._standing.roster if member.owes_sync]
        for member in silent:
            self._attendance.forget(member, "did not ask for its assignment in time")
        if silent:
            self.need(f"{len(silent)} members did not ask for their assignment")
