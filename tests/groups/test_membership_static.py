"""Static members: restarts without rebalance, fencing of the replaced one, absence during a rebalance."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.groups.events import LeavingMember, SessionTimer
from broker.groups.state import State
from tests.groups.scripted_group import REBALANCE_MS, SESSION_MS, ScriptedGroup, subscription


def test_a_static_member_that_restarts_unchanged_gets_its_assignment_back_without_a_rebalance() -> None:
    group = ScriptedGroup()
    leader, old = group.stable(2, instance_ids=["a", "b"])
    generation = group.machine.standing.generation
    back = group.joined(group.join(instance_id="b"))
    assert (back.error, back.generation, back.leader) == (ErrorCode.NONE, generation, leader)
    assert back.member_id not in (old, leader)
    synced = group.synced(group.sync(back.member_id, instance_id="b"))
    assert synced.assignment == f"for {old}".encode()
    assert group.state is State.STABLE
    assert [each.member_id for each in group.log[-1].members] == [leader, back.member_id]
    assert SessionTimer(old) not in group.timers
    assert SessionTimer(back.member_id) in group.timers


def test_the_new_id_of_a_static_member_is_told_only_once_it_is_in_the_log() -> None:
    group = ScriptedGroup()
    _leader, old = group.stable(2, instance_ids=["a", "b"])
    group.writes_at_once = False
    waiting = group.join(instance_id="b")
    assert group.waits(waiting)
    group.write()
    assert group.joined(waiting).member_id != old


def test_when_the_new_id_cannot_be_stored_the_member_is_told_and_may_try_again() -> None:
    group = ScriptedGroup()
    group.stable(2, instance_ids=["a", "b"])
    group.writes_at_once = False
    refused = group.join(instance_id="b")
    group.fail_write()
    assert group.joined(refused).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.writes_at_once = True
    assert group.joined(group.join(instance_id="b")).error is ErrorCode.NONE
    assert group.state is State.STABLE


def test_two_static_members_that_restart_together_do_not_disturb_each_other() -> None:
    group = ScriptedGroup()
    group.stable(3, instance_ids=["a", "b", "c"])
    group.writes_at_once = False
    waiters = [group.join(instance_id=name) for name in ("b", "c")]
    group.write()
    group.write()
    new_ids = [group.joined(waiter).member_id for waiter in waiters]
    assert group.members[1:] == new_ids
    assert [each.member_id for each in group.log[-1].members] == group.members


def test_the_member_that_was_replaced_is_fenced_whatever_it_sends() -> None:
    group = ScriptedGroup()
    _leader, old = group.stable(2, instance_ids=["a", "b"])
    group.join(instance_id="b")
    generation = group.machine.standing.generation
    assert group.heartbeat(old, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert group.synced(group.sync(old, instance_id="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert group.joined(group.join(old, instance_id="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert group.machine.standing.commit_error(generation, old, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert group.leave(LeavingMember(member_id=old, instance_id="b")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert group.heartbeat(old, instance_id="unheard of") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("while_syncing", [False, True])
def test_a_replaced_member_that_was_waiting_is_told_at_once(while_syncing: bool) -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2, instance_ids=["a", "b"])
    group.join(leader, instance_id="a")
    waiting = group.join(second, instance_id="b")
    if while_syncing:
        waiting = group.sync(second, instance_id="b")
    else:
        group.join()
        waiting = group.join(second, instance_id="b")
    group.join(instance_id="b")
    reply = group.synced(waiting) if while_syncing else group.joined(waiting)
    assert reply.error is ErrorCode.FENCED_INSTANCE_ID
    assert group.state is State.PREPARING_REBALANCE


def test_a_static_leader_that_restarts_is_not_told_that_it_leads_unless_it_can_skip_the_assignment() -> None:
    group = ScriptedGroup()
    old, _second = group.stable(2, instance_ids=["a", "b"])
    back = group.joined(group.join(instance_id="a"))
    assert (back.leader, back.skip_assignment, back.members) == (old, False, ())
    newer = group.joined(group.join(instance_id="a", supports_skip_assignment=True))
    assert (newer.leader, newer.skip_assignment) == (newer.member_id, True)
    assert len(newer.members) == 2
    assert group.leader == newer.member_id


def test_a_static_member_that_comes_back_with_other_topics_starts_a_rebalance() -> None:
    group = ScriptedGroup()
    leader, _second = group.stable(2, instance_ids=["a", "b"])
    changed = group.join(instance_id="b", protocols={"range": subscription("weather")})
    assert group.state is State.PREPARING_REBALANCE
    group.join(leader, instance_id="a")
    assert group.joined(changed).generation == group.machine.standing.generation


def test_a_static_member_that_comes_back_with_other_details_of_its_assignor_does_not() -> None:
    group = ScriptedGroup()
    group.stable(2, instance_ids=["a", "b"])
    group.join(instance_id="b", protocols={"range": subscription("flights") + b"\0\0\0\0"})
    assert group.state is State.STABLE


def test_a_static_member_that_comes_back_while_assignments_are_made_starts_over() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2, instance_ids=["a", "b"])
    group.join(leader, instance_id="a")
    group.join(second, instance_id="b")
    group.writes_at_once = False
    waiting = group.sync(leader, {leader: b"for an id that is gone"}, instance_id="a")
    back = group.join(instance_id="b")
    assert group.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state is State.PREPARING_REBALANCE
    group.join(leader, instance_id="a")
    assert group.joined(back).error is ErrorCode.NONE


def test_a_rebalance_started_while_the_new_id_is_being_stored_answers_the_waiting_join() -> None:
    group = ScriptedGroup()
    leader, _second = group.stable(2, instance_ids=["a", "b"])
    group.writes_at_once = False
    back = group.join(instance_id="b")
    group.join(leader, instance_id="a")
    reply = group.joined(back)
    assert reply.generation == group.machine.standing.generation
    group.write()
    assert group.state is State.COMPLETING_REBALANCE


def test_a_static_member_that_is_away_during_a_rebalance_keeps_its_place_until_its_session_ends() -> None:
    group = ScriptedGroup()
    members = [
        group.joined(group.join(instance_id="a", session_timeout_ms=REBALANCE_MS * 3)).member_id,
    ]
    group.share(members, ["a"])
    newcomer = group.join()
    group.advance(REBALANCE_MS)
    assert group.joined(newcomer).leader == group.joined(newcomer).member_id
    assert {each.instance_id for each in group.joined(newcomer).members} == {"a", None}
    new_leader = group.joined(newcomer).member_id
    group.sync(new_leader, {members[0]: b"kept"})
    back = group.joined(group.join(instance_id="a"))
    assert group.synced(group.sync(back.member_id, instance_id="a")).assignment == b"kept"


def test_when_only_absent_static_members_are_left_the_group_waits_for_their_sessions() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2, instance_ids=["a", "b"])
    group.leave(LeavingMember(member_id=leader, instance_id="a"))
    assert group.state is State.PREPARING_REBALANCE
    assert group.members == [second]
    group.advance(SESSION_MS)
    assert group.state is State.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance_id_alone() -> None:
    group = ScriptedGroup()
    leader, _second = group.stable(2, instance_ids=["a", "b"])
    assert group.leave(
        LeavingMember(member_id="", instance_id="b"), LeavingMember(member_id="", instance_id="z")
    ) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert group.members == [leader]


def test_a_static_member_is_not_asked_to_come_back_with_an_id() -> None:
    group = ScriptedGroup()
    joined = group.joined(group.join(instance_id="a", requires_known_member_id=True))
    assert joined.error is ErrorCode.NONE


def test_a_static_member_of_a_recovered_group_is_still_known_by_its_instance_id() -> None:
    before = ScriptedGroup()
    before.stable(2, instance_ids=["a", "b"])
    group = ScriptedGroup()
    group.machine.apply(before.log[-1])
    group.tell_loaded()
    group._ids = 100
    assert group.joined(group.join(instance_id="b")).error is ErrorCode.NONE
    assert group.state is State.STABLE
