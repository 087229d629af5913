"""Leadership, in-sync replicas and the high watermark of one partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ErrorCode, ProtocolError
from broker.replication.follower_progress import LagBounds
from broker.replication.partition import Assignment, IsrChange, Partition, Role
from broker.types import BrokerId, LeaderEpoch, TopicPartition

LOCAL = BrokerId(1)
SECOND = BrokerId(2)
THIRD = BrokerId(3)
BOUNDS = LagBounds(time_ms=100)


def assignment(
    leader: int = 1,
    epoch: int = 0,
    isr: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (),
    version: int = 0,
) -> Assignment:
    return Assignment(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(BrokerId, isr)),
        replicas=tuple(map(BrokerId, replicas or isr)),
        partition_epoch=version,
    )


def partition(log_end_offset: int = 0, high_watermark: int = 0) -> Partition:
    return Partition(
        TopicPartition("t", 0), LOCAL, log_end_offset=log_end_offset, high_watermark=high_watermark
    )


def leader_of(*isr: int, log_end_offset: int = 0, high_watermark: int = 0) -> Partition:
    machine = partition(log_end_offset, high_watermark)
    machine.lead(assignment(isr=isr), now_ms=0)
    return machine


def fetched(
    machine: Partition, follower: BrokerId, offset: int, *, now_ms: int, broker_epoch: int = 1
) -> bool:
    return machine.fetched(follower, offset, broker_epoch=broker_epoch, now_ms=now_ms)


def propose(machine: Partition, *, now_ms: int = 0) -> IsrChange | None:
    return machine.propose(
        joining=machine.candidates(BOUNDS), leaving=machine.laggards(BOUNDS, now_ms=now_ms), bounds=BOUNDS
    )


def written(machine: Partition, version: int, *isr: BrokerId) -> bool:
    return machine.isr_written(isr, version, LeaderEpoch(0))


def joining_second() -> Partition:
    """A leader that is about to write that the second replica joined at offset 4."""
    machine = partition()
    machine.lead(assignment(isr=(1,), replicas=(1, 2)), now_ms=0)
    machine.appended(4)
    fetched(machine, SECOND, 4, now_ms=1)
    assert propose(machine) is not None
    assert not machine.give_up_waiting(BOUNDS, now_ms=1000)
    return machine


def test_a_partition_begins_offline_and_refuses_produce() -> None:
    with pytest.raises(ProtocolError) as refused:
        partition().require_leader()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_lone_leader_commits_what_it_appends_at_once() -> None:
    machine = leader_of(1)
    assert machine.appended(5)
    assert machine.high_watermark == 5


def test_a_lone_leader_commits_what_its_log_held_before() -> None:
    assert leader_of(1, log_end_offset=7, high_watermark=3).high_watermark == 7


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    machine = leader_of(1, 2, 3)
    assert not machine.appended(10)
    assert not fetched(machine, SECOND, 10, now_ms=1)
    assert fetched(machine, THIRD, 4, now_ms=1)
    assert machine.high_watermark == 4
    assert fetched(machine, THIRD, 10, now_ms=2)
    assert machine.high_watermark == 10


def test_a_new_leader_keeps_the_high_watermark_until_every_follower_has_fetched() -> None:
    machine = leader_of(1, 2, log_end_offset=8, high_watermark=5)
    assert machine.high_watermark == 5
    assert not fetched(machine, SECOND, 5, now_ms=1)
    assert fetched(machine, SECOND, 6, now_ms=2)
    assert machine.high_watermark == 6


def test_a_leader_in_a_new_epoch_knows_nothing_of_its_followers_ends() -> None:
    machine = leader_of(1, 2, 3)
    machine.appended(6)
    fetched(machine, SECOND, 6, now_ms=1)
    fetched(machine, THIRD, 4, now_ms=1)
    assert machine.lead(assignment(epoch=1, isr=(1, 2), replicas=(1, 2, 3), version=1), now_ms=2)
    assert machine.high_watermark == 4
    assert fetched(machine, SECOND, 6, now_ms=3)
    assert machine.high_watermark == 6


def test_replicas_outside_the_isr_do_not_hold_the_high_watermark_back() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1, 2), replicas=(1, 2, 3)), now_ms=0)
    machine.appended(4)
    assert fetched(machine, SECOND, 4, now_ms=1)
    assert machine.high_watermark == 4


def test_a_replica_whose_joining_is_being_written_counts_already() -> None:
    machine = joining_second()
    assert machine.maximal_isr == {LOCAL, SECOND}
    assert machine.isr == (LOCAL,)
    assert not machine.appended(6)
    assert machine.high_watermark == 4
    written(machine, 1, LOCAL, SECOND)
    assert machine.isr == (LOCAL, SECOND)
    assert fetched(machine, SECOND, 6, now_ms=2)
    assert machine.high_watermark == 6


def test_a_change_whose_outcome_is_unknown_stays_in_force_and_is_to_be_written_again() -> None:
    machine = joining_second()
    machine.appended(6)
    (again,) = {propose(machine), propose(machine)}
    assert again == IsrChange(leader_epoch=LeaderEpoch(0), partition_epoch=0, isr=(LOCAL, SECOND))
    assert machine.high_watermark == 4


def test_nothing_is_proposed_after_another_wrote_the_state_until_an_order_comes() -> None:
    machine = joining_second()
    change = propose(machine)
    assert change is not None
    machine.isr_superseded(change)
    machine.appended(6)
    assert propose(machine) is None
    assert machine.high_watermark == 4
    machine.lead(assignment(epoch=1, isr=(1,), replicas=(1, 2), version=1), now_ms=3)
    assert machine.high_watermark == 6
    fetched(machine, SECOND, 6, now_ms=4)
    assert propose(machine) is not None


def test_an_order_that_repeats_what_is_known_leaves_a_change_under_way() -> None:
    machine = joining_second()
    assert not machine.lead(assignment(isr=(1,), replicas=(1, 2)), now_ms=3)
    machine.appended(6)
    assert machine.high_watermark == 4
    machine.lead(assignment(isr=(1,), replicas=(1, 2), version=1), now_ms=4)
    assert machine.high_watermark == 6
    assert machine.maximal_isr == {LOCAL}


@pytest.mark.parametrize("epoch", [0, 1])
def test_what_was_written_before_a_newer_order_changes_nothing(epoch: int) -> None:
    machine = joining_second()
    machine.lead(assignment(epoch=epoch, isr=(1,), replicas=(1, 2), version=5), now_ms=3)
    assert not written(machine, 1, LOCAL, SECOND)
    assert machine.isr == (LOCAL,)


def test_a_shrunk_isr_lets_the_high_watermark_move() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    assert propose(machine, now_ms=101) is not None
    assert machine.high_watermark == 0
    assert written(machine, 1, LOCAL)
    assert machine.high_watermark == 3


def test_nobody_joins_below_the_start_of_the_leaders_epoch() -> None:
    machine = partition(log_end_offset=9, high_watermark=4)
    machine.lead(assignment(isr=(1, 2), replicas=(1, 2, 3)), now_ms=0)
    assert (machine.is_settled, machine.epoch_start_offset) == (False, 9)
    fetched(machine, THIRD, 8, now_ms=1)
    assert not machine.candidates(BOUNDS)
    fetched(machine, THIRD, 9, broker_epoch=7, now_ms=2)
    assert machine.candidates(BOUNDS) == {THIRD: 7}
    assert machine.needs_change(THIRD, BOUNDS)
    fetched(machine, SECOND, 9, now_ms=3)
    assert machine.is_settled


def test_a_follower_that_keeps_up_holds_a_busy_leader_back_until_it_joins() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1,), replicas=(1, 2)), now_ms=0)
    machine.appended(10)
    assert machine.high_watermark == 10
    fetched(machine, SECOND, 0, now_ms=1)
    machine.appended(20)
    assert machine.high_watermark == 20
    fetched(machine, SECOND, 10, now_ms=2)
    machine.appended(30)
    fetched(machine, SECOND, 20, now_ms=3)
    assert machine.needs_change(SECOND, BOUNDS)
    machine.appended(40)
    assert machine.high_watermark == 20
    assert not machine.give_up_waiting(BOUNDS, now_ms=102)
    assert machine.give_up_waiting(BOUNDS, now_ms=103)
    assert machine.high_watermark == 40


def test_a_follower_that_does_not_catch_up_in_time_is_a_laggard() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    fetched(machine, SECOND, 1, now_ms=10)
    assert machine.laggards(BOUNDS, now_ms=100) == []
    assert machine.laggards(BOUNDS, now_ms=101) == [SECOND]


def test_a_follower_that_never_fetched_is_a_laggard_in_time_even_of_an_empty_log() -> None:
    assert leader_of(1, 2).laggards(BOUNDS, now_ms=101) == [SECOND]


def test_who_is_away_is_a_laggard_at_once_even_with_all_records() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    fetched(machine, SECOND, 3, now_ms=10)
    assert machine.laggards(BOUNDS, now_ms=10) == []
    assert machine.told_absent((SECOND,))
    assert machine.laggards(BOUNDS, now_ms=10) == [SECOND]
    assert not machine.told_absent(())
    assert machine.laggards(BOUNDS, now_ms=10) == []


def test_who_is_away_concerns_leaders_and_members_of_the_isr_alone() -> None:
    assert not leader_of(1).told_absent((SECOND,))
    machine = leader_of(1, 2)
    machine.stop()
    assert not machine.told_absent((SECOND,))


def test_who_left_the_isr_has_to_ask_before_it_joins_again() -> None:
    machine = leader_of(1, 2, 3)
    fetched(machine, THIRD, 0, now_ms=60)
    machine.appended(3)
    fetched(machine, SECOND, 0, now_ms=61)
    assert machine.laggards(BOUNDS, now_ms=101) == [SECOND]
    assert propose(machine, now_ms=101) is not None
    written(machine, 1, LOCAL, THIRD)
    assert machine.high_watermark == 0
    assert not machine.candidates(BOUNDS)
    fetched(machine, SECOND, 0, now_ms=102)
    assert machine.candidates(BOUNDS)


def test_who_was_taken_out_of_the_isr_by_an_order_has_to_ask_before_it_joins_again() -> None:
    machine = leader_of(1, 2, log_end_offset=3)
    fetched(machine, SECOND, 3, now_ms=1)
    machine.lead(assignment(isr=(1,), replicas=(1, 2), version=1), now_ms=2)
    assert not machine.candidates(BOUNDS)
    fetched(machine, SECOND, 3, now_ms=3)
    assert machine.candidates(BOUNDS) == {SECOND: 1}


def test_who_joined_as_an_order_told_first_holds_nothing_back_once_it_has_left() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1,), replicas=(1, 2)), now_ms=0)
    fetched(machine, SECOND, 0, now_ms=0)
    assert propose(machine) is not None
    machine.lead(assignment(isr=(1, 2), version=1), now_ms=1)
    assert not machine.appended(4)
    written(machine, 2, LOCAL)
    assert machine.high_watermark == 4


def test_a_follower_that_has_everything_is_no_laggard_however_long_it_is_silent() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    fetched(machine, SECOND, 3, now_ms=10)
    assert machine.laggards(BOUNDS, now_ms=1_000_000) == []


def test_a_follower_that_keeps_up_with_a_busy_leader_is_no_laggard() -> None:
    machine = leader_of(1, 2)
    for turn in range(1, 50):
        machine.appended(turn * 10)
        fetched(machine, SECOND, (turn - 1) * 10, now_ms=turn * 100)
    assert machine.laggards(LagBounds(time_ms=150), now_ms=4900) == []


def test_a_follower_too_many_records_behind_is_a_laggard_and_does_not_join() -> None:
    bounds = LagBounds(time_ms=100, messages=5)
    machine = leader_of(1, 2)
    machine.appended(6)
    assert machine.laggards(bounds, now_ms=1) == [], "it did not fetch yet"
    fetched(machine, SECOND, 0, now_ms=1)
    assert machine.laggards(bounds, now_ms=1) == [SECOND]
    machine.propose(joining=(), leaving=[SECOND], bounds=bounds)
    written(machine, 1, LOCAL)
    fetched(machine, SECOND, 6, now_ms=2)
    assert machine.candidates(bounds)
    machine.appended(12)
    assert not machine.candidates(bounds)


def test_a_member_that_turns_out_to_have_lost_records_is_to_leave_at_once() -> None:
    machine = leader_of(1, 2)
    machine.appended(5)
    fetched(machine, SECOND, 5, now_ms=1)
    fetched(machine, SECOND, 3, now_ms=2)
    assert machine.needs_change(SECOND, BOUNDS)
    assert machine.laggards(BOUNDS, now_ms=2) == [SECOND]
    assert machine.high_watermark == 5


def test_a_fetch_of_a_node_that_holds_no_replica_is_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        fetched(leader_of(1), THIRD, 0, now_ms=0)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_of_an_earlier_registration_is_refused() -> None:
    machine = leader_of(1, 2)
    fetched(machine, SECOND, 0, broker_epoch=8, now_ms=0)
    with pytest.raises(ProtocolError) as refused:
        fetched(machine, SECOND, 0, broker_epoch=7, now_ms=0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_has_to_name_the_epoch_that_it_follows() -> None:
    machine = partition()
    machine.lead(assignment(epoch=4, isr=(1, 2)), now_ms=0)
    machine.require_follower(SECOND, 4)
    for epoch, code in (
        (-1, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        with pytest.raises(ProtocolError) as refused:
            machine.require_follower(SECOND, epoch)
        assert refused.value.code is code


def test_replicas_that_hold_a_record_are_counted_among_those_in_sync() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1, 2), replicas=(1, 2, 3)), now_ms=0)
    machine.appended(4)
    fetched(machine, THIRD, 4, now_ms=1)
    assert machine.count_holding(4) == 1
    fetched(machine, SECOND, 3, now_ms=1)
    assert [machine.count_holding(offset) for offset in (3, 4)] == [2, 1]


def test_an_order_of_an_older_leader_epoch_is_refused() -> None:
    machine = partition()
    machine.lead(assignment(epoch=3), now_ms=0)
    with pytest.raises(ProtocolError, match="STALE_CONTROLLER_EPOCH"):
        machine.lead(assignment(epoch=2), now_ms=0)
    with pytest.raises(ProtocolError, match="STALE_CONTROLLER_EPOCH"):
        machine.follow(assignment(epoch=2))


def test_an_order_of_the_same_epoch_changes_the_isr_and_begins_nothing_new() -> None:
    machine = leader_of(1, 2)
    machine.appended(2)
    fetched(machine, SECOND, 2, now_ms=1)
    assert not machine.lead(assignment(isr=(1,), replicas=(1, 2), version=1), now_ms=5)
    assert machine.isr == (LOCAL,)


def test_a_leader_that_becomes_follower_refuses_produce_and_commits_only_what_it_is_told() -> None:
    machine = leader_of(1, 2, log_end_offset=5, high_watermark=2)
    assert machine.follow(assignment(leader=2, epoch=1, isr=(1, 2)))
    assert machine.role is Role.FOLLOWER
    assert not machine.appended(9)
    machine.told_high_watermark(100)
    assert machine.high_watermark == 9


def test_truncation_takes_the_high_watermark_along() -> None:
    machine = partition(log_end_offset=9, high_watermark=9)
    machine.truncated(4)
    assert machine.high_watermark == 4


def test_a_client_with_another_leader_epoch_is_told_which_way_it_is_wrong() -> None:
    machine = partition()
    machine.lead(assignment(epoch=4), now_ms=0)
    machine.require_leader(4)
    machine.require_leader(-1)
    for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(ProtocolError) as refused:
            machine.require_leader(epoch)
        assert refused.value.code is code


def test_too_few_replicas_in_sync_are_refused() -> None:
    machine = leader_of(1, 2)
    machine.require_in_sync(2)
    with pytest.raises(ProtocolError) as refused:
        machine.require_in_sync(3)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "fetch 2", "fetch 3"]), st.integers(0, 6)),
        min_size=1,
        max_size=60,
    )
)
def test_the_high_watermark_never_goes_back_nor_beyond_any_member_of_the_isr(
    steps: list[tuple[str, int]],
) -> None:
    machine = leader_of(1, 2, 3)
    ends = {SECOND: -1, THIRD: -1}
    for now_ms, (step, count) in enumerate(steps):
        before = machine.high_watermark
        if step == "append":
            machine.appended(machine.log_end_offset + count)
        else:
            follower = BrokerId(int(step[-1]))
            ends[follower] = min(max(ends[follower], 0) + count, machine.log_end_offset)
            fetched(machine, follower, ends[follower], now_ms=now_ms)
        assert before <= machine.high_watermark <= max(0, min(*ends.values(), machine.log_end_offset))
