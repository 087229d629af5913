"""Any sequence of requests, timers and answers of the log, with invariants checked after every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.groups.events import (
    CoordinatorMoved,
    JoinReply,
    JoinTimer,
    LeavingMember,
    PendingMemberTimer,
    SessionTimer,
    SyncReply,
    SyncTimer,
    Waiter,
)
from broker.groups.membership import Membership
from broker.groups.state import State
from broker.groups.view import view_of
from tests.groups.scripted_group import CONFIG, SESSION_MS, ScriptedGroup, subscription

PROTOCOLS = (
    {"range": subscription("a"), "sticky": b"1"},
    {"sticky": b"2", "range": subscription("a")},
    {"range": subscription("a", "b")},
)
INSTANCES = ("x", "y")

member = st.integers(0, 3)
step = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 2), st.booleans(), st.booleans()),
    st.tuples(st.just("join static"), st.integers(0, 2), st.sampled_from(INSTANCES), st.booleans()),
    st.tuples(st.just("join again"), st.integers(0, 2), member),
    st.tuples(st.just("sync"), member),
    st.tuples(st.just("everyone joins")),
    st.tuples(st.just("everyone syncs")),
    st.tuples(st.just("heartbeat"), member),
    st.tuples(st.just("leave"), member),
    st.tuples(st.just("leave static"), st.sampled_from(INSTANCES)),
    st.tuples(st.just("wait"), st.sampled_from([100, 3_000, 3_000, SESSION_MS // 2, SESSION_MS, 60_000])),
    st.tuples(st.just("write")),
    st.tuples(st.just("write")),
    st.tuples(st.just("fail")),
)


class Walk:
    """One group on its way through random steps, watched."""

    def __init__(self, *, delay_ms: int, writes_at_once: bool, group_max_size: int) -> None:
        self.group = ScriptedGroup(
            replace(CONFIG, initial_rebalance_delay_ms=delay_ms, group_max_size=group_max_size)
        )
        self.group.writes_at_once = writes_at_once
        self.last_generation = 0
        self.log_is_behind = False
        self.generation_leaders: dict[int, set[str]] = {}
        self.seen: set[Waiter] = set()

    def take(self, step: tuple[object, ...]) -> None:
        group = self.group
        match step:
            case ("join", int(protocols), bool(named), bool(skips)):
                group.join(
                    protocols=PROTOCOLS[protocols],
                    requires_known_member_id=named,
                    supports_skip_assignment=skips,
                )
            case ("join static", int(protocols), str(instance), bool(skips)):
                group.join(
                    instance_id=instance, protocols=PROTOCOLS[protocols], supports_skip_assignment=skips
                )
            case ("join again", int(protocols), int(index)):
                self.join_again(self.someone(index), PROTOCOLS[protocols])
            case ("everyone joins",):
                for member_id in group.members:
                    self.join_again(member_id)
            case ("sync", int(index)):
                self.sync(self.someone(index))
            case ("everyone syncs",):
                for member_id in group.members:
                    self.sync(member_id)
            case ("heartbeat", int(index)):
                member_id = self.someone(index)
                group.heartbeat(member_id, instance_id=self.instance_of(member_id))
            case ("leave", int(index)):
                member_id = self.someone(index)
                group.leave(LeavingMember(member_id=member_id, instance_id=self.instance_of(member_id)))
            case ("leave static", str(instance)):
                group.leave(LeavingMember(member_id="", instance_id=instance))
            case ("wait", int(milliseconds)):
                group.advance(milliseconds)
            case ("write",):
                if group.waiting_stores:
                    group.write()
                    self.log_is_behind = False
            case ("fail",):
                if group.waiting_stores:
                    group.fail_write()
                    self.log_is_behind = True

    def join_again(self, member_id: str, protocols: Mapping[str, bytes] | None = None) -> None:
        known = self.group.machine.standing.roster.members.get(member_id)
        instance_id = known.instance_id if known is not None else None
        unchanged = known.protocols if known is not None else PROTOCOLS[0]
        self.group.join(member_id, protocols=protocols or unchanged, instance_id=instance_id)

    def sync(self, member_id: str) -> None:
        assignments = {each: each.encode() for each in [*self.group.members[1:], "stranger"]}
        self.group.sync(member_id, assignments, instance_id=self.instance_of(member_id))

    def someone(self, index: int) -> str:
        known = [*self.group.members, *sorted(self.group.machine.standing.roster.pending), "stranger"]
        return known[index % len(known)]

    def instance_of(self, member_id: str) -> str | None:
        known = self.group.machine.standing.roster.members.get(member_id)
        return known.instance_id if known is not None else None

    def check(self) -> None:
        self.check_waiters()
        self.check_roster()
        self.check_timers()
        self.check_answers()
        if not self.group.waiting_stores and not self.log_is_behind:
            self.check_recovery()

    def check_waiters(self) -> None:
        """Nobody is forgotten: whoever has no answer is known to be waiting."""
        group = self.group
        unanswered = set(group.asked) - group.answers.keys()
        waiting = {
            waiter
            for each in group.machine.standing.roster
            for waiter in (each.join_waiter, each.sync_waiter)
            if waiter is not None
        }
        assert unanswered == waiting

    def check_roster(self) -> None:
        machine = self.group.machine
        assert machine.standing.generation >= self.last_generation
        self.last_generation = machine.standing.generation
        if machine.standing.roster.members:
            assert machine.standing.roster.leader in machine.standing.roster.members
            assert machine.standing.roster.supported_by_all()
        else:
            assert machine.standing.state in (State.EMPTY, State.PREPARING_REBALANCE)
        if machine.standing.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert machine.standing.protocol in machine.standing.roster.supported_by_all()

    def check_timers(self) -> None:
        """Nothing waits for ever: members, ids handed out and rebalances each have a timer or a waiter."""
        group, machine = self.group, self.group.machine
        for each in machine.standing.roster:
            has_timer = SessionTimer(each.member_id) in group.timers
            assert has_timer == (each.is_new or not each.is_waiting)
        sessions = {timer.member_id for timer in group.timers if isinstance(timer, SessionTimer)}
        assert sessions <= machine.standing.roster.members.keys()
        pending = {timer.member_id for timer in group.timers if isinstance(timer, PendingMemberTimer)}
        assert pending == machine.standing.roster.pending
        assert (JoinTimer() in group.timers) == (machine.standing.state is State.PREPARING_REBALANCE)
        assert (SyncTimer() in group.timers) == any(each.owes_sync for each in machine.standing.roster)

    def check_answers(self) -> None:
        """One member a generation is told to assign; assignments go to members, out of the log."""
        group = self.group
        for waiter in group.answers.keys() - self.seen:
            match group.answers[waiter]:
                case JoinReply(error=ErrorCode.NONE, skip_assignment=False, members=members) as reply if (
                    members
                ):
                    assert reply.member_id == reply.leader
                    leaders = self.generation_leaders.setdefault(reply.generation, set())
                    leaders.add(reply.member_id)
                    assert len(leaders) == 1
                case SyncReply(error=ErrorCode.NONE) as reply:
                    assert reply.assignment in {each.assignment for each in group.log[-1].members}
            self.seen.add(waiter)
        for metadata in group.log[-1:]:
            ids = {each.member_id for each in metadata.members}
            assert "stranger" not in ids
            assert metadata.leader in (ids or {None})

    def check_recovery(self) -> None:
        live = self.group.machine
        recovered = Membership(self.group.config)
        for metadata in self.group.log:
            recovered.apply(metadata)
        assert recovered.standing.stored == live.standing.stored
        if live.standing.state in (State.STABLE, State.EMPTY):
            assert recovered.standing.generation == live.standing.generation
            assert recovered.standing.roster.leader == live.standing.roster.leader
            assert view_of(recovered.standing).members == view_of(live.standing).members
            assert recovered.standing.state is live.standing.state


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(step, min_size=30, max_size=60),
    delay_ms=st.sampled_from([0, 3_000]),
    writes_at_once=st.booleans(),
    group_max_size=st.sampled_from([3, 1_000]),
)
def test_the_invariants_of_a_group_hold_after_every_step(
    steps: list[tuple[object, ...]], delay_ms: int, writes_at_once: bool, group_max_size: int
) -> None:
    walk = Walk(delay_ms=delay_ms, writes_at_once=writes_at_once, group_max_size=group_max_size)
    for each in steps:
        walk.take(each)
        walk.check()
    walk.group.tell(CoordinatorMoved())
    walk.check_waiters()
    assert not walk.group.timers


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(step, min_size=20, max_size=40))
def test_a_group_left_alone_comes_to_rest_empty_and_answers_everyone(steps: list[tuple[object, ...]]) -> None:
    walk = Walk(delay_ms=3_000, writes_at_once=True, group_max_size=1_000)
    for each in steps:
        walk.take(each)
    walk.group.advance(3_600_000)
    assert walk.group.state is State.EMPTY
    assert set(walk.group.asked) == walk.group.answers.keys()
    assert not walk.group.timers
