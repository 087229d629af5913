"""Leadership, in-sync replicas and the high watermark of one partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ErrorCode, ProtocolError
from broker.replication.partition import Assignment, Partition, Role
from broker.types import BrokerId, LeaderEpoch, TopicPartition

LOCAL = BrokerId(1)
SECOND = BrokerId(2)
THIRD = BrokerId(3)


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
    assert not machine.fetched(SECOND, 10, now_ms=1)
    assert machine.fetched(THIRD, 4, now_ms=1)
    assert machine.high_watermark == 4
    assert machine.fetched(THIRD, 10, now_ms=2)
    assert machine.high_watermark == 10


def test_a_new_leader_keeps_the_high_watermark_until_every_follower_has_fetched() -> None:
    machine = leader_of(1, 2, log_end_offset=8, high_watermark=5)
    assert machine.high_watermark == 5
    assert not machine.fetched(SECOND, 5, now_ms=1)
    assert machine.fetched(SECOND, 6, now_ms=2)
    assert machine.high_watermark == 6


def test_replicas_outside_the_isr_do_not_hold_the_high_watermark_back() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1, 2), replicas=(1, 2, 3)), now_ms=0)
    machine.appended(4)
    assert machine.fetched(SECOND, 4, now_ms=1)
    assert machine.high_watermark == 4


def test_a_replica_whose_joining_is_being_written_counts_already() -> None:
    machine = partition()
    machine.lead(assignment(isr=(1,), replicas=(1, 2)), now_ms=0)
    machine.appended(4)
    machine.fetched(SECOND, 4, now_ms=1)
    assert machine.may_join(SECOND)
    machine.joining([SECOND])
    assert not machine.appended(6)
    assert machine.high_watermark == 4
    machine.isr_changed((LOCAL, SECOND), 1)
    assert machine.fetched(SECOND, 6, now_ms=2)
    assert machine.high_watermark == 6


def test_a_shrunk_isr_lets_the_high_watermark_move() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    assert machine.isr_changed((LOCAL,), 1)
    assert machine.high_watermark == 3


def test_a_follower_that_does_not_catch_up_in_time_is_a_laggard() -> None:
    machine = leader_of(1, 2)
    machine.appended(3)
    machine.fetched(SECOND, 1, now_ms=10)
    assert machine.laggards(lag_time_max_ms=100, now_ms=100) == []
    assert machine.laggards(lag_time_max_ms=100, now_ms=101) == [SECOND]


def test_a_follower_that_keeps_up_with_a_busy_leader_is_no_laggard() -> None:
    machine = leader_of(1, 2)
    for turn in range(1, 50):
        machine.appended(turn * 10)
        machine.fetched(SECOND, (turn - 1) * 10, now_ms=turn * 100)
    assert machine.laggards(lag_time_max_ms=150, now_ms=4900) == []


def test_a_fetch_of_a_node_that_holds_no_replica_is_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        leader_of(1).fetched(THIRD, 0, now_ms=0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
    machine.fetched(SECOND, 2, now_ms=1)
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
            machine.fetched(follower, ends[follower], now_ms=now_ms)
        assert before <= machine.high_watermark <= max(0, min(*ends.values(), machine.log_end_offset))
