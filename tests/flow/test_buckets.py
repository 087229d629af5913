"""Buckets: where partitions belong for ever, and how the group's members share them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from broker.client.assignors import Assignment, Subscription
from broker.types import TopicPartition
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
