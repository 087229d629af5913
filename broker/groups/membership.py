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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.draft import Draft
from broker.groups.events import (
    NO_MEMBER_ID,
    CoordinatorMoved,
    Deleted,
    Effects,
    Event,
    GroupMetadata,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    JoinTimer,
    Leave,
    LeaveReply,
    LeavingMember,
    Loaded,
    MemberMetadata,
    OffsetsCommitted,
    PendingMemberTimer,
    SessionTimer,
    Store,
    Stored,
    StoreId,
    Sync,
    SyncReply,
    SyncTimer,
    Timer,
    TimerFired,
    Waiter,
)
from broker.groups.roster import Member, Roster
from broker.groups.state import TRANSITIONS, State
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, same_topics, subscribed_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Return:
    """A static member came back to a stable group and waits until its new id is stored."""

    member_id: str
    waiter: Waiter
    leader_before: str
    supports_skip_assignment: bool


class Membership:
    """One group. Owned by one driver: `handle` changes it, `apply` replays the log into it, all else only
    looks.
    """

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.state = State.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.stored: GroupMetadata | None = None
        """What the log says, as far as this machine was told; None when it says nothing."""
        self._topics: frozenset[str] | None = frozenset()
        self._initial_delay_left_ms: int | None = None
        """While an empty group gathers its first members: how much longer the wait may still be drawn out."""
        self._member_added = False
        self._last_store = StoreId(0)
        self._stores_under_way = 0
        self._assignment_store: StoreId | None = None
        self._returns: dict[StoreId, _Return] = {}
        self._now_ms = 0
        self._draft = Draft()

    # What can be asked

    @property
    def is_deserted(self) -> bool:
        """No members, none expected, and the log knows as much."""
        return self.state is State.EMPTY and not self.roster.pending and self._stores_under_way == 0

    @property
    def is_disposable(self) -> bool:
        """Deserted, and with nothing in the log: nothing is lost by forgetting this object."""
        return self.is_deserted and self.stored is None

    @property
    def topics(self) -> frozenset[str] | None:
        """Topics that the current generation of consumers subscribed to; None when that cannot be told."""
        return self._topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member uses `topic`; yes when that cannot be told."""
        return self._topics is None or topic in self._topics

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def commit_error(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether these may commit offsets now: a member of the current generation, or anyone while there are
        no members.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._member_error(member_id, instance_id, generation)
        if error is ErrorCode.NONE and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    # What changes it

    def apply(self, metadata: GroupMetadata) -> None:
        """Become what the log says: the only way to Stable, of a live group and of one that is being read
        from the log.
        """
        self.stored = metadata
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type
        self.protocol = metadata.protocol
        self.roster.adopt(metadata)
        self._topics = self._subscribed_topics()
        self._move_to(State.STABLE if metadata.members else State.EMPTY)
        self.state_timestamp_ms = metadata.state_timestamp_ms

    def handle(self, event: Event, now_ms: int) -> Effects:
        """Decide. `now_ms` is wall time and goes into records only: timers are asked for as delays."""
        self._now_ms = now_ms
        self._draft = Draft()
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case OffsetsCommitted():
                self._touch(self.roster.members.get(event.member_id))
            case TimerFired():
                self._timer_fired(event.timer)
            case Stored():
                self._store_reported(event)
            case Loaded():
                self._loaded()
            case Deleted():
                assert not len(self.roster), "a group with members is not deleted"
                self._die()
            case CoordinatorMoved():
                self._die()
            case _:
                assert_never(event)
        return self._draft.effects()

    # Joining

    def _join(self, event: Join) -> None:
        error = self._join_error(event)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
        elif event.member_id == NO_MEMBER_ID:
            self._join_unnamed(event)
        elif event.member_id in self.roster.pending and event.instance_id is None:
            self._add_member(event, event.member_id)
        else:
            self._join_again(event)

    def _join_error(self, event: Join) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if (
            not self._config.session_timeout_min_ms
            <= event.session_timeout_ms
            <= self._config.session_timeout_max_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not self._supports(event.protocol_type, event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        if not len(self.roster):
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and not self.roster.supported_by_all().isdisjoint(
            protocols
        )

    def _has_room(self, member: Member | None) -> bool:
        """KIP-389: during a rebalance the first to join stay, so that a group that was let grow too large
        shrinks.
        """
        if self.state is State.PREPARING_REBALANCE:
            already_joined = member is not None and member.join_waiter is not None
            return already_joined or self.roster.joining_count < self._config.group_max_size
        return member is not None or len(self.roster) < self._config.group_max_size

    def _join_unnamed(self, event: Join) -> None:
        static_member = self.roster.static_member(event.instance_id)
        if static_member is not None:
            self._replace_static_member(static_member, event)
        elif event.instance_id is None and event.requires_known_member_id:
            self._hand_out_member_id(event)
        else:
            self._add_member(event, event.new_member_id)

    def _hand_out_member_id(self, event: Join) -> None:
        if not self._has_room(None) or len(self.roster.pending) >= self._config.pending_members_max:
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        self.roster.pending.add(event.new_member_id)
        self._draft.set_timer(PendingMemberTimer(event.new_member_id), event.session_timeout_ms)
        self._draft.reply(
            event.waiter, JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id)
        )

    def _add_member(self, event: Join, member_id: str) -> None:
        self._drop_pending(member_id)
        if not self._has_room(None):
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._try_complete_join()
            return
        if not len(self.roster):
            self.protocol_type = event.protocol_type
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
        self.roster.add(member)
        self._member_added = True
        self._draft.set_timer(SessionTimer(member_id), self._config.new_member_join_timeout_ms)
        self._rebalance(f"member {member_id} joined")

    def _join_again(self, event: Join) -> None:
        error = self.roster.identity_error(event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
            return
        member = self.roster.members[event.member_id]
        if not self._has_room(member):
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._remove(member, "the group is full")
        elif self._knows_all_of(event, member):
            self._draft.reply(event.waiter, self._joined(member))
        else:
            self._wait_for_join(member, event)
            self._rebalance(f"member {member.member_id} joined again")

    def _knows_all_of(self, event: Join, member: Member) -> bool:
        """A retried join, or one that changes nothing: the current generation answers it. A stable leader
        asks for a rebalance.
        """
        if self.state is State.COMPLETING_REBALANCE:
            return member.matches(event.protocols)
        if self.state is State.STABLE:
            return member.member_id != self.roster.leader and member.matches(event.protocols)
        return False

    def _wait_for_join(self, member: Member, event: Join) -> None:
        self._answer_join(
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

    def _joined(self, member: Member) -> JoinReply:
        is_leader = member.member_id == self.roster.leader and self.state is not State.STABLE
        return JoinReply(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            members=self.roster.listed(self.protocol or "") if is_leader else (),
        )

    def _refuse_join(self, event: Join, error: ErrorCode) -> None:
        self._draft.reply(event.waiter, JoinReply(error=error, member_id=event.member_id))

    # Static members that come back (KIP-345)

    def _replace_static_member(self, member: Member, event: Join) -> None:
        old_member_id, leader_before = member.member_id, self.roster.leader or ""
        self._answer_join(member, JoinReply(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id))
        self._answer_sync(member, SyncReply(error=ErrorCode.FENCED_INSTANCE_ID))
        self._draft.cancel_timer(SessionTimer(old_member_id))
        self.roster.rename(member, event.new_member_id)
        member.is_new = False
        old_protocols = member.protocols
        self._wait_for_join(member, event)
        self._draft.note("static_member_returned", old_member_id=old_member_id, member_id=member.member_id)
        if self.state is State.STABLE and self._changes_nothing(old_protocols, member.protocols):
            self._returns[self._store_members({each.member_id: each.assignment for each in self.roster})] = (
                _Return(
                    member_id=member.member_id,
                    waiter=event.waiter,
                    leader_before=leader_before,
                    supports_skip_assignment=event.supports_skip_assignment,
                )
            )
        else:
            self._rebalance(f"static member {event.instance_id} came back")

    def _changes_nothing(self, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> bool:
        """Whether assignments stay right: the same protocol would be chosen, and a consumer wants the same
        topics.
        """
        protocol = self.roster.select_protocol()
        if protocol != self.protocol:
            return False
        return not self.is_consumer_group or same_topics(old.get(protocol, b""), new[protocol])

    def _answer_return(self, returning: _Return, error: ErrorCode) -> None:
        member = self.roster.members.get(returning.member_id)
        if member is None or member.join_waiter != returning.waiter or self.state is not State.STABLE:
            return
        if error is not ErrorCode.NONE:
            self._answer_join(member, JoinReply(error=error, member_id=NO_MEMBER_ID))
        else:
            self._answer_join(member, self._returned(member, returning))
        self._touch(member)

    def _returned(self, member: Member, returning: _Return) -> JoinReply:
        """One that led before is told so only where it can be told not to assign as well (KIP-814)."""
        leads = member.member_id == self.roster.leader
        tells = leads and returning.supports_skip_assignment
        return JoinReply(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=(self.roster.leader or "") if tells else returning.leader_before,
            skip_assignment=tells,
            members=self.roster.listed(self.protocol or "") if tells else (),
        )

    # The rebalance

    def _rebalance(self, reason: str) -> None:
        """Start one unless one is under way, and end it at once if nobody is missing."""
        if self.state is not State.PREPARING_REBALANCE:
            self._start_rebalance(reason)
        self._try_complete_join()

    def _start_rebalance(self, reason: str) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        for member in self.roster:
            member.owes_sync = False
        self._assignment_store = None
        self._draft.cancel_timer(SyncTimer())
        timeout_ms, delay_ms = self.roster.rebalance_timeout_ms, self._config.initial_rebalance_delay_ms
        if self.state is State.EMPTY and delay_ms > 0:
            self._initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._member_added = False
            self._draft.set_timer(JoinTimer(), delay_ms)
        else:
            self._initial_delay_left_ms = None
            self._draft.set_timer(JoinTimer(), timeout_ms)
        self._move_to(State.PREPARING_REBALANCE)
        self._draft.note("rebalance_started", reason=reason, generation=self.generation)

    def _try_complete_join(self) -> None:
        if (
            self.state is State.PREPARING_REBALANCE
            and self._initial_delay_left_ms is None
            and self.roster.everyone_joined
        ):
            self._complete_join()

    def _join_time_is_out(self) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        left_ms = self._initial_delay_left_ms
        if left_ms and self._member_added:
            delay_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
            self._initial_delay_left_ms = left_ms - delay_ms
            self._member_added = False
            self._draft.set_timer(JoinTimer(), delay_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        self._initial_delay_left_ms = None
        for member in self.roster:
            if member.join_waiter is None and member.instance_id is None:
                self._forget(member, "did not join again in time")
        if len(self.roster) and not self.roster.elect_joined_leader():
            # Only static members are left and none has joined: wait on, until one does or their sessions end.
            self._draft.set_timer(JoinTimer(), self.roster.rebalance_timeout_ms)
            return
        self._draft.cancel_timer(JoinTimer())
        self.generation += 1
        if len(self.roster):
            self._start_generation()
        else:
            self._become_empty()

    def _start_generation(self) -> None:
        self.protocol = self.roster.select_protocol()
        self._topics = self._subscribed_topics()
        self._move_to(State.COMPLETING_REBALANCE)
        for member in self.roster:
            if member.join_waiter is None:
                continue
            self._answer_join(member, self._joined(member))
            member.is_new = False
            member.owes_sync = True
            self._touch(member)
        self._draft.set_timer(SyncTimer(), self.roster.rebalance_timeout_ms)
        self._draft.note(
            "generation_started",
            generation=self.generation,
            members=len(self.roster),
            leader=self.roster.leader,
            protocol=self.protocol,
        )

    def _become_empty(self) -> None:
        self.protocol = None
        self._topics = frozenset()
        self._move_to(State.EMPTY)
        self._store(())
        self._draft.note("group_emptied", generation=self.generation)

    # Assignments

    def _sync(self, event: Sync) -> None:
        error = self._sync_error(event)
        if error is not ErrorCode.NONE:
            self._draft.reply(event.waiter, SyncReply(error=error))
            return
        member = self.roster.members[event.member_id]
        if self.state is State.STABLE:
            self._draft.reply(event.waiter, self._assigned(member))
            self._touch(member)
        else:
            self._wait_for_sync(member, event)
        member.owes_sync = False
        if not any(each.owes_sync for each in self.roster):
            self._draft.cancel_timer(SyncTimer())

    def _sync_error(self, event: Sync) -> ErrorCode:
        error = self._member_error(event.member_id, event.instance_id, event.generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if event.protocol_type not in (None, self.protocol_type) or event.protocol not in (
            None,
            self.protocol,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _wait_for_sync(self, member: Member, event: Sync) -> None:
        self._answer_sync(member, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = event.waiter
        self._draft.cancel_timer(SessionTimer(member.member_id))
        if member.member_id == self.roster.leader and self._assignment_store is None:
            self._assignment_store = self._store_members(event.assignments)

    def _assigned(self, member: Member) -> SyncReply:
        return SyncReply(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def _store_members(self, assignments: Mapping[str, bytes]) -> StoreId:
        """Store who is in and what each gets: nothing for members left out, and nothing goes to anyone who is
        no member.
        """
        protocol = self.protocol or ""
        return self._store(
            tuple(each.recorded(protocol, assignments.get(each.member_id, b"")) for each in self.roster)
        )

    def _store(self, members: tuple[MemberMetadata, ...]) -> StoreId:
        self._last_store = StoreId(self._last_store + 1)
        self._stores_under_way += 1
        metadata = GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )
        self._draft.store(Store(id=self._last_store, metadata=metadata))
        return self._last_store

    def _store_reported(self, event: Stored) -> None:
        self._stores_under_way -= 1
        if event.error is ErrorCode.NONE:
            self._take_in(event.store)
        else:
            self._draft.note(
                "store_failed", generation=event.store.metadata.generation, error=event.error.name
            )
        if event.store.id == self._assignment_store:
            self._assignment_stored(event.error)
        returning = self._returns.pop(event.store.id, None)
        if returning is not None:
            self._answer_return(returning, event.error)

    def _take_in(self, store: Store) -> None:
        """Apply what was stored unless the group has moved on: only the last store is about the present
        members.
        """
        is_current = store.id == self._last_store and store.metadata.generation == self.generation
        if is_current and self.state not in (State.PREPARING_REBALANCE, State.DEAD):
            self.apply(store.metadata)
        else:
            self.stored = store.metadata

    def _assignment_stored(self, error: ErrorCode) -> None:
        self._assignment_store = None
        self._answer_syncs(error)
        if error is ErrorCode.NONE:
            self._draft.note("assignment_stored", generation=self.generation, members=len(self.roster))
        else:
            self._rebalance("the assignment could not be stored")

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in self.roster:
            if error is not ErrorCode.NONE:
                member.assignment = b""
            if member.sync_waiter is not None:
                reply = self._assigned(member) if error is ErrorCode.NONE else SyncReply(error=error)
                self._answer_sync(member, reply)
                self._touch(member)

    def _sync_time_is_out(self) -> None:
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        silent = [member for member in self.roster if member.owes_sync]
        for member in silent:
            self._forget(member, "did not ask for its assignment in time")
        if silent:
            self._rebalance(f"{len(silent)} members did not ask for their assignment")

    # Sessions

    def _heartbeat(self, event: Heartbeat) -> None:
        error = self._member_error(event.member_id, event.instance_id, event.generation)
        if error is ErrorCode.NONE:
            self._touch(self.roster.members[event.member_id])
            if self.state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._draft.reply(event.waiter, HeartbeatReply(error=error))

    def _member_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What fences a request that claims to come from a member of the current generation."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.identity_error(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _touch(self, member: Member | None) -> None:
        """The member is alive: its session runs anew, unless it waits for us."""
        if member is not None and not member.is_waiting and not member.is_new:
            self._draft.set_timer(SessionTimer(member.member_id), member.session_timeout_ms)

    def _timer_fired(self, timer: Timer) -> None:
        match timer:
            case SessionTimer(member_id):
                self._session_ended(member_id)
            case PendingMemberTimer(member_id):
                self.roster.pending.discard(member_id)
                self._try_complete_join()
            case JoinTimer():
                self._join_time_is_out()
            case SyncTimer():
                self._sync_time_is_out()
            case _:
                assert_never(timer)

    def _session_ended(self, member_id: str) -> None:
        member = self.roster.members.get(member_id)
        if member is not None and (member.is_new or not member.is_waiting):
            self._remove(member, "was not heard of within its session timeout")

    # Leaving

    def _leave(self, event: Leave) -> None:
        if self.state is State.DEAD:
            self._draft.reply(event.waiter, LeaveReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        results = tuple((leaving, self._leave_one(leaving)) for leaving in event.members)
        self._draft.reply(event.waiter, LeaveReply(error=ErrorCode.NONE, members=results))

    def _leave_one(self, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in self.roster.pending:
            self._drop_pending(member_id)
            self._try_complete_join()
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID:
            static_member = self.roster.static_member(leaving.instance_id)
            member_id = static_member.member_id if static_member is not None else NO_MEMBER_ID
        error = self.roster.identity_error(member_id, leaving.instance_id)
        if error is ErrorCode.NONE:
            self._remove(self.roster.members[member_id], "left")
        return error

    def _remove(self, member: Member, reason: str) -> None:
        self._forget(member, reason)
        self._rebalance(f"member {member.member_id} {reason}")

    def _forget(self, member: Member, reason: str) -> None:
        self._answer_join(member, JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=NO_MEMBER_ID))
        self._answer_sync(member, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._draft.cancel_timer(SessionTimer(member.member_id))
        self.roster.remove(member)
        self._draft.note("member_removed", member_id=member.member_id, reason=reason)

    def _drop_pending(self, member_id: str) -> None:
        if member_id in self.roster.pending:
            self.roster.pending.discard(member_id)
            self._draft.cancel_timer(PendingMemberTimer(member_id))

    # Coming and going as a whole

    def _loaded(self) -> None:
        """Sessions run from now on: whoever was alive could not reach us before."""
        for member in self.roster:
            self._touch(member)
        if len(self.roster) > self._config.group_max_size:
            self._rebalance("the group is larger than allowed")

    def _die(self) -> None:
        for member in self.roster:
            self._answer_join(member, JoinReply(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id))
            self._answer_sync(member, SyncReply(error=ErrorCode.NOT_COORDINATOR))
            self._draft.cancel_timer(SessionTimer(member.member_id))
        for member_id in tuple(self.roster.pending):
            self._drop_pending(member_id)
        self._draft.cancel_timer(JoinTimer())
        self._draft.cancel_timer(SyncTimer())
        self.roster = Roster()
        self._assignment_store = None
        self._returns.clear()
        self._move_to(State.DEAD)

    # Small parts

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not len(self.roster):
            return frozenset()
        if not self.is_consumer_group or self.protocol is None:
            return None
        return subscribed_topics(member.protocols[self.protocol] for member in self.roster)

    def _move_to(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} does not lead to {state}"
        self.state = state
        self.state_timestamp_ms = self._now_ms

    def _answer_join(self, member: Member, reply: JoinReply) -> None:
        if member.join_waiter is not None:
            self._draft.reply(member.join_waiter, reply)
            member.join_waiter = None

    def _answer_sync(self, member: Member, reply: SyncReply) -> None:
        if member.sync_waiter is not None:
            self._draft.reply(member.sync_waiter, reply)
            member.sync_waiter = None
