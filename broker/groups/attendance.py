"""Members one by one: answering those that wait, keeping their sessions, letting them go."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.groups.draft import Draft
from broker.groups.events import NO_MEMBER_ID, JoinReply, PendingMemberTimer, SessionTimer, SyncReply
from broker.groups.roster import Member
from broker.groups.standing import Standing


class Attendance:
    """Every waiter is answered once; one that waits is alive, and its session runs from the answer on."""

    def __init__(self, standing: Standing, draft: Draft) -> None:
        self._standing = standing
        self._draft = draft

    def answer_join(self, member: Member, reply: JoinReply) -> None:
        """Answer the join that a member waits with, if it does."""
        if member.join_waiter is not None:
            self._draft.reply(member.join_waiter, reply)
            member.join_waiter = None

    def answer_sync(self, member: Member, reply: SyncReply) -> None:
        """Answer the sync that a member waits with, if it does."""
        if member.sync_waiter is not None:
            self._draft.reply(member.sync_waiter, reply)
            member.sync_waiter = None

    def answer_syncs(self, error: ErrorCode) -> None:
        """Answer everyone who waits for an assignment: with it, or with an error that voids all of them."""
        for member in self._standing.roster:
            if error is not ErrorCode.NONE:
                member.assignment = b""
            if member.sync_waiter is not None:
                is_assigned = error is ErrorCode.NONE
                reply = self._standing.assigned(member) if is_assigned else SyncReply(error=error)
                self.answer_sync(member, reply)
                self.touch(member)

    def touch(self, member: Member | None) -> None:
        """The member is alive: its session runs anew, unless it waits for us."""
        if member is not None and not member.is_waiting and not member.is_new:
            self._draft.set_timer(SessionTimer(member.member_id), member.session_timeout_ms)

    def forget(self, member: Member, reason: str) -> None:
        """Let a member go."""
        self.answer_join(member, JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=NO_MEMBER_ID))
        self.answer_sync(member, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._draft.cancel_timer(SessionTimer(member.member_id))
        self._standing.roster.remove(member)
        self._draft.note("member_removed", member_id=member.member_id, reason=reason)

    def forget_pending(self, member_id: str) -> None:
        """Nobody is to come with an id that was handed out, if it was."""
        if member_id in self._standing.roster.pending:
            self._standing.roster.pending.discard(member_id)
            self._draft.cancel_timer(PendingMemberTimer(member_id))

    def send_away(self, error: ErrorCode) -> None:
        """This is not the group any more: everybody is told so and no timer of theirs runs on."""
        for member in self._standing.roster:
            self.answer_join(member, JoinReply(error=error, member_id=member.member_id))
            self.answer_sync(member, SyncReply(error=error))
            self._draft.cancel_timer(SessionTimer(member.member_id))
        for member_id in tuple(self._standing.roster.pending):
            self.forget_pending(member_id)
