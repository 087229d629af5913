from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
)
from broker.types import TopicPartition

ASSIGNORS: list[Assignor] = [RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()]
TOPICS = ["a", "b", "c"]

groups = st.dictionaries(
    st.text("mnopq", min_size=1, max_size=3),
    st.frozensets(st.sampled_from(TOPICS)).map(lambda topics: Subscription(topics=topics)),
    min_size=1,
    max_size=6,
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8))


def owners(assignments: Mapping[str, Assignment]) -> dict[TopicPartition, list[str]]:
    held: dict[TopicPartition, list[str]] = {}
    for member, assignment in assignments.items():
        for partition in assignment.partitions:
            held.setdefault(partition, []).append(member)
    return held


def wanted(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> set[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return {
        TopicPartition(topic, i) for topic in topics & partitions.keys() for i in range(partitions[topic])
    }


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
@given(members=groups, partitions=counts)
def test_every_wanted_partition_has_exactly_one_owner_that_wants_it(
    assignor: Assignor, members: dict[str, Subscription], partitions: dict[str, int]
) -> None:
    assignments = assignor.assign(members, partitions)
    assert assignments.keys() == members.keys()
    held = owners(assignments)
    assert held.keys() == wanted(members, partitions)
    for partition, names in held.items():
        assert len(names) == 1
        assert partition.topic in members[names[0]].topics


@pytest.mark.parametrize("assignor", ASSIGNORS[1:], ids=lambda assignor: assignor.name)
@given(names=st.sets(st.text("mno", min_size=1, max_size=3), min_size=1), partitions=counts)
def test_shares_of_members_that_want_the_same_differ_by_one_at_most(
    assignor: Assignor, names: set[str], partitions: dict[str, int]
) -> None:
    members = {name: Subscription(topics=frozenset(TOPICS)) for name in names}
    shares = [len(assignment.partitions) for assignment in assignor.assign(members, partitions).values()]
    assert max(shares) - min(shares) <= 1


@given(names=st.sets(st.text("mno", min_size=1, max_size=3), min_size=1), partitions=counts)
def test_range_balances_each_topic_and_gives_contiguous_runs(
    names: set[str], partitions: dict[str, int]
) -> None:
    members = {name: Subscription(topics=frozenset(TOPICS)) for name in names}
    for assignment in RangeAssignor().assign(members, partitions).values():
        for topic, count in partitions.items():
            numbers = [partition.partition for partition in assignment.partitions if partition.topic == topic]
            assert len(numbers) in (count // len(names), -(-count // len(names)))
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def test_range_follows_instance_ids_so_that_static_members_keep_their_share() -> None:
    topics = frozenset({"a"})
    members = {
        "zz-new": Subscription(topics=topics, instance_id="first"),
        "aa-new": Subscription(topics=topics, instance_id="second"),
    }
    assignments = RangeAssignor().assign(members, {"a": 3})
    assert [partition.partition for partition in assignments["zz-new"].partitions] == [0, 1]


def settled(
    members: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> tuple[Mapping[str, Assignment], int]:
    """Rebalance as often as members would, until nobody gives anything up; the assignment and the rounds it
    took.
    """
    assignor = CooperativeStickyAssignor()
    for generation in range(1, 10):
        assignments = assignor.assign(members, partitions)
        held = owners(assignments)
        assert all(len(names) == 1 for names in held.values())
        if all(
            set(assignments[name].partitions) >= member.owned & wanted(members, partitions)
            for name, member in members.items()
        ) and held.keys() == wanted(members, partitions):
            return assignments, generation
        members = {
            name: Subscription(
                topics=member.topics, owned=frozenset(assignments[name].partitions), generation=generation
            )
            for name, member in members.items()
        }
    raise AssertionError("the group does not settle")


@settings(max_examples=60)
@given(
    names=st.sets(st.text("mno", min_size=1, max_size=3), min_size=1, max_size=6),
    newcomers=st.sets(st.text("xyz", min_size=1, max_size=2), max_size=3),
    partitions=counts,
)
def test_cooperative_moves_no_more_than_balance_needs(
    names: set[str], newcomers: set[str], partitions: dict[str, int]
) -> None:
    topics = frozenset(TOPICS)
    before, _ = settled({name: Subscription(topics=topics) for name in names}, partitions)
    rejoining = {
        name: Subscription(topics=topics, owned=frozenset(before[name].partitions), generation=1)
        for name in names
    } | {name: Subscription(topics=topics) for name in newcomers}
    after, rounds = settled(rejoining, partitions)
    shares = Counter({name: len(assignment.partitions) for name, assignment in after.items()})
    assert max(shares.values()) - min(shares.values()) <= 1
    assert rounds <= 2
    moved = sum(len(set(after[name].partitions) - set(before[name].partitions)) for name in names)
    assert moved == 0
    assert sum(shares[name] for name in newcomers) == sum(partitions.values()) - sum(
        shares[name] for name in names
    )


def test_a_partition_that_moves_is_given_to_nobody_until_its_owner_let_go() -> None:
    topics = frozenset({"a"})
    both = frozenset({TopicPartition("a", 0), TopicPartition("a", 1)})
    members = {
        "old": Subscription(topics=topics, owned=both, generation=1),
        "new": Subscription(topics=topics),
    }
    assignments = CooperativeStickyAssignor().assign(members, {"a": 2})
    assert len(assignments["old"].partitions) == 1
    assert assignments["new"].partitions == ()


def test_of_two_claims_the_one_of_the_newer_generation_holds() -> None:
    topics, claim = frozenset({"a"}), frozenset({TopicPartition("a", 0)})
    members = {
        "late": Subscription(topics=topics, owned=claim, generation=3),
        "now": Subscription(topics=topics, owned=claim, generation=4),
    }
    assignments = CooperativeStickyAssignor().assign(members, {"a": 1})
    assert assignments["now"].partitions == (TopicPartition("a", 0),)
