"""Assignments, heartbeats, leaving, expiry, and what the log's answer decides."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.groups.events import CoordinatorMoved, Deleted, OffsetsCommitted, SessionTimer, SyncTimer
from broker.groups.state import State
from broker.groups.view import view_of
from tests.groups.scripted_group import REBALANCE_MS, SESSION_MS, ScriptedGroup, subscription


def rejoined(group: ScriptedGroup, members: list[str]) -> None:
    """All members join again, the leader starting it: a new generation waits for its assignment."""
    for member in members:
        group.join(member)
    assert group.state is State.COMPLETING_REBALANCE


def test_members_wait_for_the_leaders_assignment_and_get_it_only_once_it_is_in_the_log() -> None:
    group = ScriptedGroup()
    leader, second, third = members = group.stable(3)
    rejoined(group, members)
    group.writes_at_once = False
    early = group.sync(second)
    leading = group.sync(leader, {leader: b"L", second: b"S", "stranger": b"?"})
    assert group.waits(early, leading)
    assert group.state is State.COMPLETING_REBALANCE
    group.write()
    assert (group.synced(early).assignment, group.synced(leading).assignment) == (b"S", b"L")
    assert group.synced(group.sync(third)).assignment == b""
    assert {each.member_id for each in group.log[-1].members} == set(members)
    assert group.state is State.STABLE


def test_an_assignment_that_could_not_be_stored_is_told_and_starts_over() -> None:
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    rejoined(group, members)
    group.writes_at_once = False
    waiters = group.sync(second), group.sync(leader, {leader: b"L"})
    group.fail_write(ErrorCode.NOT_COORDINATOR)
    assert [group.synced(waiter).error for waiter in waiters] == [ErrorCode.NOT_COORDINATOR] * 2
    assert group.state is State.PREPARING_REBALANCE


def test_an_assignment_stored_after_its_generation_ended_changes_nothing_but_what_is_known_of_the_log() -> (
    None
):
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    rejoined(group, members)
    group.writes_at_once = False
    leading = group.sync(leader, {leader: b"old"})
    newcomer = group.join()
    assert group.synced(leading).error is ErrorCode.REBALANCE_IN_PROGRESS
    group.write()
    assert group.state is State.PREPARING_REBALANCE
    assert group.machine.standing.stored == group.log[-1]
    group.join(leader)
    group.join(second)
    assert group.joined(newcomer).generation == group.machine.standing.generation
    assert group.machine.standing.stored.generation == group.machine.standing.generation - 1


def test_a_new_generation_is_assigned_while_the_old_ones_assignment_is_still_being_stored() -> None:
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    rejoined(group, members)
    group.writes_at_once = False
    group.sync(leader, {leader: b"old"})
    group.leave(second)
    group.join(leader)
    leading = group.sync(leader, {leader: b"new"})
    group.write()
    assert group.waits(leading)
    group.write()
    assert group.synced(leading).assignment == b"new"


def test_a_sync_that_is_repeated_while_the_assignment_is_being_stored_does_not_store_it_twice() -> None:
    group = ScriptedGroup()
    (leader,) = group.stable(1)
    group.join(leader)
    group.writes_at_once = False
    overtaken, latest = group.sync(leader, {leader: b"1"}), group.sync(leader, {leader: b"2"})
    assert group.synced(overtaken).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(group.waiting_stores) == 1
    group.write()
    assert group.synced(latest).assignment == b"1"


def test_a_sync_names_protocol_type_and_protocol_or_is_refused() -> None:
    group = ScriptedGroup()
    (leader,) = group.stable(1)
    wrong = group.sync(leader, protocol_type="consumer", protocol="sticky")
    wrong_type = group.sync(leader, protocol_type="connect")
    right = group.sync(leader, protocol_type="consumer", protocol="range")
    assert group.synced(wrong).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.synced(wrong_type).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (group.synced(right).protocol_type, group.synced(right).protocol) == ("consumer", "range")


def test_members_that_do_not_ask_for_their_assignment_in_time_are_removed() -> None:
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    rejoined(group, members)
    group.sync(leader, {leader: b"all"})
    assert group.state is State.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        group.advance(5_000)
        group.heartbeat(leader)
        group.heartbeat(second)
    assert group.members == [leader]
    assert group.state is State.PREPARING_REBALANCE


def test_a_leader_that_never_brings_an_assignment_is_removed_and_the_others_start_over() -> None:
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    rejoined(group, members)
    waiting = group.sync(second)
    group.advance(SESSION_MS)
    assert group.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.leader == second
    assert leader not in group.members


def test_once_everyone_has_synced_nobody_is_watched_for_it() -> None:
    group = ScriptedGroup()
    group.stable(3)
    assert SyncTimer() not in group.timers


def test_a_member_that_sends_heartbeats_stays_and_one_that_does_not_goes() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    for _ in range(3):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat(leader) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.members == [leader]
    assert group.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_tells_of_the_rebalance_and_fences_old_generations() -> None:
    group = ScriptedGroup()
    leader, _second = group.stable(2)
    group.join()
    assert group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat("nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_late_heartbeat_of_an_expired_member_is_refused_and_the_member_comes_back_as_new() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    for _ in range(2):
        group.advance(SESSION_MS - 1)
        group.heartbeat(leader)
    assert group.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.joined(group.join(second)).error is ErrorCode.UNKNOWN_MEMBER_ID
    back = group.join()
    group.join(leader)
    assert group.joined(back).member_id != second


def test_a_member_that_waits_for_its_join_or_sync_does_not_expire() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    waiting = group.join(leader)
    for _ in range(5):
        group.advance(SESSION_MS - 1)
        group.heartbeat(second)
    assert group.members == [leader, second]
    group.join(second)
    assert group.joined(waiting).error is ErrorCode.NONE
    assert SessionTimer(leader) in group.timers


def test_committing_offsets_keeps_a_member_alive() -> None:
    group = ScriptedGroup()
    (member,) = group.stable(1)
    for _ in range(3):
        group.advance(SESSION_MS - 1)
        group.tell(OffsetsCommitted(member_id=member))
    assert group.members == [member]


def test_a_member_that_leaves_starts_a_rebalance_and_the_next_in_order_leads() -> None:
    group = ScriptedGroup()
    leader, second, third = group.stable(3)
    assert group.leave(leader) == [ErrorCode.NONE]
    assert (group.state, group.leader) == (State.PREPARING_REBALANCE, second)
    group.join(third)
    assert group.joined(group.join(second)).leader == second


def test_a_leader_that_leaves_in_the_middle_of_a_rebalance_is_followed_without_a_second_one() -> None:
    group = ScriptedGroup()
    leader, second, third = group.stable(3)
    started = group.facts.count("rebalance_started")
    joins = [group.join(leader), group.join(second)]
    group.leave(leader)
    joins += [group.join(third)]
    assert group.joined(joins[0]).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [group.joined(waiter).leader for waiter in joins[1:]] == [second, second]
    assert [len(group.joined(waiter).members) for waiter in joins[1:]] == [2, 0]
    assert group.facts.count("rebalance_started") == started + 1


def test_a_leader_that_leaves_while_all_wait_for_its_assignment_sends_them_back_to_join() -> None:
    group = ScriptedGroup()
    leader, second, third = members = group.stable(3)
    rejoined(group, members)
    waiting = [group.sync(second), group.sync(third)]
    group.leave(leader)
    assert [group.synced(waiter).error for waiter in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert group.leader == second


def test_several_members_leave_in_one_request_each_with_its_own_answer() -> None:
    group = ScriptedGroup()
    members = group.stable(3)
    assert group.leave(*members, "nobody", members[0]) == [
        *[ErrorCode.NONE] * 3,
        *[ErrorCode.UNKNOWN_MEMBER_ID] * 2,
    ]
    assert group.state is State.EMPTY


def test_when_the_last_member_leaves_the_group_is_empty_and_the_log_says_so() -> None:
    group = ScriptedGroup()
    (member,) = group.stable(1)
    group.leave(member)
    empty = group.log[-1]
    assert (empty.members, empty.protocol, empty.leader) == ((), None, None)
    assert (empty.generation, empty.state_timestamp_ms) == (group.machine.standing.generation, group.now_ms)
    assert not group.timers


def test_a_zombies_commit_is_fenced_by_generation_and_member() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    old = group.machine.standing.generation
    group.leave(second)
    group.join(leader)
    group.share([leader])
    check = group.machine.standing.commit_error
    assert check(group.machine.standing.generation, leader, None) is ErrorCode.NONE
    assert check(old, leader, None) is ErrorCode.ILLEGAL_GENERATION
    assert check(old, second, None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(-1, "", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(-1, leader, None) is ErrorCode.ILLEGAL_GENERATION


def test_offsets_may_be_committed_while_the_group_gathers_but_not_before_assignments_are_known() -> None:
    group = ScriptedGroup()
    leader, second = members = group.stable(2)
    group.join(leader)
    assert (
        group.machine.standing.commit_error(group.machine.standing.generation, second, None) is ErrorCode.NONE
    )
    rejoined(group, members)
    assert (
        group.machine.standing.commit_error(group.machine.standing.generation, second, None)
        is ErrorCode.REBALANCE_IN_PROGRESS
    )


def test_anyone_may_commit_without_generation_while_there_are_no_members() -> None:
    group = ScriptedGroup()
    assert group.machine.standing.commit_error(-1, "", None) is ErrorCode.NONE
    assert group.machine.standing.commit_error(0, "m", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_and_assignments_are_shown_only_while_the_group_is_stable() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    view = view_of(group.machine.standing)
    assert (view.protocol_type, view.protocol, view.state) == ("consumer", "range", State.STABLE)
    assert [member.assignment for member in view.members] == [
        f"for {each}".encode() for each in (leader, second)
    ]
    assert {member.metadata for member in view.members} == {subscription("flights")}
    group.join()
    view = view_of(group.machine.standing)
    assert (view.protocol, {member.metadata + member.assignment for member in view.members}) == ("", {b""})


def test_when_the_coordinator_moves_every_waiter_is_sent_elsewhere_and_nothing_goes_on() -> None:
    group = ScriptedGroup()
    leader, _second = group.stable(2)
    group.join(requires_known_member_id=True)
    waiting = group.join(leader)
    group.tell(CoordinatorMoved())
    assert group.joined(waiting).error is ErrorCode.NOT_COORDINATOR
    assert group.state is State.DEAD
    assert not group.timers
    assert group.heartbeat(leader) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_deleted_group_is_dead_to_everyone() -> None:
    group = ScriptedGroup()
    (member,) = group.stable(1)
    group.leave(member)
    group.tell(Deleted())
    assert group.joined(group.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.leave(member) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert group.synced(group.sync(member)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.machine.standing.commit_error(-1, "", None) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_read_from_the_log_goes_on_where_it_was_with_fresh_sessions() -> None:
    before = ScriptedGroup()
    leader, second = members = before.stable(2)
    group = ScriptedGroup()
    for metadata in before.log:
        group.machine.apply(metadata)
    group.tell_loaded()
    assert (group.state, group.members, group.leader) == (State.STABLE, members, leader)
    assert set(group.timers) == {SessionTimer(member) for member in members}
    assert group.heartbeat(second) is ErrorCode.NONE
    assert group.synced(group.sync(second)).assignment == f"for {second}".encode()
    assert group.joined(group.join(second)).error is ErrorCode.NONE
    assert group.state is State.STABLE


@pytest.mark.parametrize("protocols", [{"range": b"not a subscription"}, {"range": b""}])
def test_consumers_whose_metadata_cannot_be_read_count_as_subscribed_to_everything(
    protocols: dict[str, bytes],
) -> None:
    group = ScriptedGroup()
    group.join(protocols=protocols)
    assert group.machine.standing.topics is None
    assert group.machine.standing.is_subscribed_to("anything")
