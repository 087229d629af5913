"""How members come together: the delayed join, protocols, bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import ErrorCode
from broker.groups.state import State
from tests.groups.scripted_group import (
    CONFIG,
    NO_DELAY,
    REBALANCE_MS,
    SESSION_MS,
    ScriptedGroup,
    subscription,
)


def test_the_first_wait_is_drawn_out_by_joins_but_not_beyond_the_rebalance_timeout() -> None:
    group = ScriptedGroup(CONFIG)
    first = group.join(rebalance_timeout_ms=10_000)
    for _ in range(2):
        group.advance(2_999)
        group.join(rebalance_timeout_ms=10_000)
    assert group.waits(first)
    group.advance(3_001)
    group.join(rebalance_timeout_ms=10_000)
    group.advance(1_000)
    assert group.waits(first)
    group.advance(1)
    assert group.joined(first).generation == 1
    assert len(group.joined(first).members) == 4


def test_the_first_wait_ends_after_one_delay_when_nobody_else_comes() -> None:
    group = ScriptedGroup(CONFIG)
    first = group.join()
    group.advance(2_999)
    assert group.waits(first)
    group.advance(1)
    assert group.joined(first).generation == 1


def test_an_emptied_group_gathers_its_members_with_the_initial_delay_again() -> None:
    group = ScriptedGroup(CONFIG)
    waiter = group.join()
    group.advance(3_000)
    group.leave(group.joined(waiter).member_id)
    assert group.state is State.EMPTY
    again = group.join()
    assert group.waits(again)
    group.advance(3_000)
    assert group.joined(again).generation == group.machine.standing.generation == 3


def test_members_that_do_not_join_again_within_the_rebalance_timeout_are_removed() -> None:
    group = ScriptedGroup()
    leader, second, third = group.stable(3)
    joins = [group.join(leader), group.join(second)]
    for _ in range(REBALANCE_MS // 5_000):
        group.advance(5_000)
        group.heartbeat(third)
    assert [group.joined(waiter).leader for waiter in joins] == [leader, leader]
    assert group.members == [leader, second]
    assert group.heartbeat(third) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_in_time_is_followed_by_one_that_did() -> None:
    group = ScriptedGroup()
    leader, second, third = group.stable(3)
    group.join()
    group.join(third)
    joined = group.join(second)
    group.advance(REBALANCE_MS)
    assert leader not in group.members
    assert group.joined(joined).leader == second


def test_a_member_without_an_id_is_sent_away_with_one_and_the_group_waits_for_it() -> None:
    group = ScriptedGroup()
    first_try = group.joined(group.join(requires_known_member_id=True))
    assert (first_try.error, group.state) == (ErrorCode.MEMBER_ID_REQUIRED, State.EMPTY)
    other_try = group.joined(group.join(requires_known_member_id=True))
    first = group.join(first_try.member_id, requires_known_member_id=True)
    assert group.waits(first)
    other = group.join(other_try.member_id, requires_known_member_id=True)
    assert group.joined(first).generation == group.joined(other).generation == 1
    assert not group.machine.standing.roster.pending


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten() -> None:
    group = ScriptedGroup()
    unused = group.joined(group.join(requires_known_member_id=True)).member_id
    first = group.join()
    assert group.waits(first)
    group.advance(SESSION_MS)
    assert group.joined(first).generation == 1
    assert group.joined(group.join(unused)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_was_only_handed_an_id_may_leave() -> None:
    group = ScriptedGroup()
    pending = group.joined(group.join(requires_known_member_id=True)).member_id
    first = group.join()
    assert group.leave(pending) == [ErrorCode.NONE]
    assert group.joined(first).generation == 1
    assert not any(timer for timer in group.timers if "Pending" in type(timer).__name__)


def test_ids_handed_out_are_bounded() -> None:
    group = ScriptedGroup(replace(NO_DELAY, pending_members_max=2))
    errors = [group.joined(group.join(requires_known_member_id=True)).error for _ in range(3)]
    assert errors == [*[ErrorCode.MEMBER_ID_REQUIRED] * 2, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_the_protocol_with_most_votes_among_those_that_all_support_is_chosen() -> None:
    group = ScriptedGroup(CONFIG)
    group.join(protocols={"sticky": b"", "range": b"", "odd": b""})
    group.join(protocols={"range": b"", "sticky": b""})
    third = group.join(protocols={"range": b"", "sticky": b"third"})
    group.advance(2 * CONFIG.initial_rebalance_delay_ms)
    assert group.joined(third).protocol == "range"


def test_the_leader_gets_the_metadata_for_the_chosen_protocol_untouched() -> None:
    owned = b"\x00\x03 whatever a cooperative assignor packs \xff"
    group = ScriptedGroup(CONFIG)
    first = group.join(protocols={"cooperative-sticky": owned, "range": b"r1"})
    second = group.join(protocols={"cooperative-sticky": b"second"})
    group.advance(2 * CONFIG.initial_rebalance_delay_ms)
    assert group.joined(first).protocol == "cooperative-sticky"
    assert {each.member_id: each.metadata for each in group.joined(first).members} == {
        group.joined(first).member_id: owned,
        group.joined(second).member_id: b"second",
    }


@pytest.mark.parametrize("member_id", ["", "nobody"])
def test_a_protocol_mismatch_is_refused_before_anything_else(member_id: str) -> None:
    group = ScriptedGroup()
    group.stable(2)
    before = group.machine.standing.generation
    other_name = group.join(member_id, protocols={"sticky": b""})
    other_type = group.join(member_id, protocol_type="connect")
    for waiter in (other_name, other_type):
        assert group.joined(waiter).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (group.state, group.machine.standing.generation) == (State.STABLE, before)


def test_an_empty_group_refuses_a_join_without_protocols_or_type() -> None:
    group = ScriptedGroup()
    for waiter in (group.join(protocols={}), group.join(protocol_type="")):
        assert group.joined(waiter).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.machine.is_disposable


def test_an_emptied_group_may_be_taken_over_by_members_of_another_type() -> None:
    group = ScriptedGroup()
    (member,) = group.stable(1)
    group.leave(member)
    joined = group.joined(group.join(protocol_type="connect", protocols={"compatible": b""}))
    assert (joined.error, joined.protocol_type, joined.protocol) == (ErrorCode.NONE, "connect", "compatible")


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    group = ScriptedGroup()
    joined = group.joined(group.join(session_timeout_ms=session_timeout_ms))
    assert joined.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_changed_metadata_of_a_follower_starts_a_rebalance() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    changed = group.join(second, protocols={"range": subscription("flights", "weather")})
    assert group.state is State.PREPARING_REBALANCE
    leader_join = group.join(leader)
    assert group.joined(changed).generation == group.joined(leader_join).generation
    assert group.machine.standing.topics == {"flights", "weather"}


def test_a_join_that_is_repeated_because_its_answer_was_lost_is_answered_from_the_same_generation() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    group.join(leader)
    group.join(second)
    generation = group.machine.standing.generation
    again = group.joined(group.join(leader))
    assert (again.generation, len(again.members)) == (generation, 2)
    assert group.joined(group.join(second)).generation == generation
    assert group.state is State.COMPLETING_REBALANCE


def test_a_join_overtaken_by_another_of_the_same_member_is_answered_too() -> None:
    group = ScriptedGroup()
    leader, second = group.stable(2)
    overtaken = group.join(leader)
    latest = group.join(leader)
    assert group.joined(overtaken).error is ErrorCode.REBALANCE_IN_PROGRESS
    group.join(second)
    assert group.joined(latest).error is ErrorCode.NONE


def test_a_full_group_takes_no_new_members_but_keeps_its_own() -> None:
    group = ScriptedGroup(replace(NO_DELAY, group_max_size=2))
    leader, second = group.stable(2)
    assert group.joined(group.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.state is State.STABLE
    joins = group.join(leader), group.join(second)
    assert [group.joined(waiter).error for waiter in joins] == [ErrorCode.NONE] * 2


def test_a_group_that_is_larger_than_allowed_after_a_restart_shrinks_to_those_that_join_first() -> None:
    large = ScriptedGroup()
    members = large.stable(3)
    group = ScriptedGroup(replace(NO_DELAY, group_max_size=2))
    group.machine.apply(large.log[-1])
    group.tell_loaded()
    assert group.state is State.PREPARING_REBALANCE
    joins = [group.join(member) for member in members]
    assert [group.joined(waiter).error for waiter in joins] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert group.members == members[:2]


def test_a_new_member_whose_join_is_never_answered_is_given_up_in_the_end() -> None:
    group = ScriptedGroup(replace(NO_DELAY, new_member_join_timeout_ms=30_000))
    (leader,) = group.stable(1)
    newcomer = group.join()
    for _ in range(6):
        group.advance(5_000)
        group.heartbeat(leader)
    assert group.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.members == [leader]


def test_a_member_that_comes_with_its_id_to_a_group_that_filled_up_does_not_hold_the_others_up() -> None:
    group = ScriptedGroup(replace(NO_DELAY, group_max_size=2))
    leader, second = group.stable(2)
    joins = [group.join(leader)]
    late = group.joined(group.join(requires_known_member_id=True)).member_id
    joins += [group.join(second)]
    assert group.waits(*joins)
    assert group.joined(group.join(late)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [group.joined(waiter).error for waiter in joins] == [ErrorCode.NONE] * 2
