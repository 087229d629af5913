"""Buckets: where partitions belong for ever, and how the group's members share them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.assignors import Assignment, Subscription
from broker.types import TopicPartition
from mirrormaker.flow.bucket_rates import decode_load, decode_rates
from mirrormaker.flow.buckets import BucketAssignor, bucket_of

TOPICS = {"flights": 30, "planes": 7, "weather": 1}


def test_the_bucket_of_a_partition_never_changes() -> None:
    assert [bucket_of(TopicPartition("flights", number), 16) for number in range(4)] == [10, 11, 12, 13]


def test_neighbours_lie_in_different_buckets() -> None:
    assert len({bucket_of(TopicPartition("flights", number), 16) for number in range(16)}) == 16


def rebalance(
    assignor: BucketAssignor, owned: Mapping[str, frozenset[TopicPartition]], topics: Mapping[str, int]
) -> Mapping[str, Assignment]:
    """Rebalance as a cooperative group does, again and again, until nothing is withheld any more."""
    for generation in range(10):
        members = {
            member: Subscription(topics=frozenset(topics), owned=held, generation=generation)
            for member, held in owned.items()
        }
        assigned = assignor.assign(members, topics)
        given_up = any(held - set(assigned[member].partitions) for member, held in owned.items())
        owned = {member: frozenset(assigned[member].partitions) for member in owned}
        if not given_up:
            return assigned
    raise AssertionError("the group does not come to rest")


@given(members=st.integers(1, 9), buckets=st.integers(1, 40))
def test_every_partition_has_one_owner_and_a_bucket_is_never_divided(members: int, buckets: int) -> None:
    owned: dict[str, frozenset[TopicPartition]] = {f"m{index}": frozenset() for index in range(members)}
    assigned = rebalance(BucketAssignor(buckets), owned, TOPICS)
    held = [partition for assignment in assigned.values() for partition in assignment.partitions]
    assert sorted(held) == sorted(
        TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)
    )
    for bucket in range(buckets):
        owners = {
            member
            for member, assignment in assigned.items()
            for partition in assignment.partitions
            if bucket_of(partition, buckets) == bucket
        }
        assert len(owners) <= 1


def test_a_bucket_that_moves_is_withheld_until_its_owner_gave_it_up() -> None:
    assignor = BucketAssignor(4)
    alone = assignor.assign({"a": Subscription(topics=frozenset({"t"}))}, {"t": 8})
    held = frozenset(alone["a"].partitions)
    assert len(held) == 8
    members = {
        "a": Subscription(topics=frozenset({"t"}), owned=held, generation=1),
        "b": Subscription(topics=frozenset({"t"})),
    }
    assigned = assignor.assign(members, {"t": 8})
    assert len(assigned["a"].partitions) == 4
    assert assigned["b"].partitions == ()
    after = rebalance(assignor, {"a": held, "b": frozenset()}, {"t": 8})
    assert len(after["a"].partitions) == len(after["b"].partitions) == 4


def test_a_member_that_leaves_moves_nothing_between_those_that_stay() -> None:
    assignor = BucketAssignor(24)
    before = rebalance(assignor, {member: frozenset() for member in "abc"}, TOPICS)
    staying = {member: frozenset(before[member].partitions) for member in "ab"}
    after = rebalance(assignor, staying, TOPICS)
    for member in "ab":
        assert staying[member] <= set(after[member].partitions)


def test_new_partitions_go_to_the_owner_of_their_bucket() -> None:
    assignor = BucketAssignor(4)
    before = rebalance(assignor, {"a": frozenset(), "b": frozenset()}, {"t": 4})
    owned = {member: frozenset(assignment.partitions) for member, assignment in before.items()}
    members = {
        member: Subscription(topics=frozenset({"t"}), owned=held, generation=1)
        for member, held in owned.items()
    }
    after = assignor.assign(members, {"t": 8})
    assert all(owned[member] <= set(after[member].partitions) for member in owned)
    assert sum(len(assignment.partitions) for assignment in after.values()) == 8


def test_of_two_claims_the_newer_generation_counts() -> None:
    partition = TopicPartition("t", 0)
    members = {
        "old": Subscription(topics=frozenset({"t"}), owned=frozenset({partition}), generation=3),
        "new": Subscription(topics=frozenset({"t"}), owned=frozenset({partition}), generation=4),
    }
    assert BucketAssignor(1).assign(members, {"t": 1})["new"].partitions == (partition,)


def test_partitions_of_a_topic_that_the_owner_does_not_know_are_left_out() -> None:
    members = {"a": Subscription(topics=frozenset({"t"}))}
    assert BucketAssignor(2).assign(members, {"t": 1, "u": 1})["a"].partitions == (TopicPartition("t", 0),)


def test_buckets_are_shared_out_by_their_bytes_and_others_make_room_for_a_hot_one() -> None:
    topics, hot = {"t": 8}, bucket_of(TopicPartition("t", 0), 8)
    rates = dict.fromkeys(range(8), 1_000_000) | {hot: 7_000_000}
    assignor = BucketAssignor(8)
    owned = rebalance(assignor, {"a": frozenset(), "b": frozenset()}, topics)
    assert {len(assignment.partitions) for assignment in owned.values()} == {4}
    assignor.known = rates
    after = rebalance(
        assignor, {member: frozenset(held.partitions) for member, held in owned.items()}, topics
    )
    assert sorted(len(assignment.partitions) for assignment in after.values()) == [1, 7]


def test_members_tell_their_rates_and_are_told_those_of_all() -> None:
    one = BucketAssignor(4, lambda: {0: 500_000})
    other = BucketAssignor(4, lambda: {1: 300_000})
    held = {bucket_of(TopicPartition("t", number), 4): TopicPartition("t", number) for number in range(4)}
    members = {
        name: Subscription(
            topics=frozenset({"t"}),
            owned=frozenset({held[bucket]}),
            generation=1,
            user_data=assignor.user_data({"t"}, ()),
        )
        for bucket, (name, assignor) in enumerate({"a": one, "b": other}.items())
    }
    told = one.assign(members, {"t": 4})
    for assignment in told.values():
        load = decode_load(assignment.user_data)
        assert (load.rates, load.members) == ({0: 500_000, 1: 300_000}, 2)


def test_what_a_dead_member_had_is_shared_out_by_what_was_known_of_it() -> None:
    assignor = BucketAssignor(6)
    assignor.known = dict.fromkeys(range(5), 1 << 20) | {5: 5 << 20}
    shared = rebalance(assignor, {"a": frozenset(), "b": frozenset()}, {"t": 6})
    assert sorted(len(assignment.partitions) for assignment in shared.values()) == [1, 5]


def test_what_a_member_tells_in_another_way_is_passed_over() -> None:
    members = {
        "a": Subscription(topics=frozenset({"t"}), user_data=b"\xff"),
        "b": Subscription(topics=frozenset({"t"}), user_data=b'{"rates": {"x": 1, "1": "y"}}'),
    }
    shared = BucketAssignor(4).assign(members, {"t": 4})
    assert [len(shared[member].partitions) for member in "ab"] == [2, 2]


@pytest.mark.parametrize(
    "told",
    [b"[" * 100_000, b'{"rates": {"1": 1%s}}' % (b"0" * 400), b'{"rates": {"%s": 1}}' % (b"9" * 5000)],
    ids=["deep", "fast", "far"],
)
def test_what_no_member_measures_is_passed_over(told: bytes) -> None:
    assert decode_rates(told) == {}
