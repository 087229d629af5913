"""The assignors of the coordinator: complete, even, and sparing with moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer_groups.assignors import (
    ASSIGNORS,
    Assignments,
    Members,
    MemberSpec,
    assign_ranges,
    assign_uniformly,
)
from broker.groups.consumer_groups.members import NOTHING, Partitions, TopicIdPartition
from broker.groups.consumer_groups.topics import Topic
from tests.groups.fixed_topics import topic_id

A, B, C = (
    Topic(name=name, topic_id=topic_id(number), partition_count=count)
    for number, (name, count) in enumerate([("a", 6), ("b", 6), ("c", 1)], 1)
)


def members(
    *names: str, topics: frozenset[Topic] = frozenset({A}), before: Assignments | None = None
) -> Members:
    return {name: MemberSpec(topics=topics, before=(before or {}).get(name, NOTHING)) for name in names}


def again(specs: Members, before: Assignments, *left: str, joined: tuple[str, ...] = ()) -> Members:
    """The members after some left and others came, each with what it was to have."""
    topics = next(iter(specs.values())).topics
    names = [name for name in specs if name not in left] + list(joined)
    return members(*names, topics=topics, before=before)


def sizes(assignments: Assignments) -> dict[str, int]:
    return {name: len(partitions) for name, partitions in sorted(assignments.items())}


def moves(before: Assignments, after: Assignments) -> int:
    """Partitions that one member had and another has."""
    owners = {partition: name for name, partitions in before.items() for partition in partitions}
    return sum(
        owners.get(partition, name) != name for name, partitions in after.items() for partition in partitions
    )


def numbers(partitions: Partitions, topic: Topic) -> list[int]:
    return sorted(each.partition for each in partitions if each.topic_id == topic.topic_id)


def test_uniform_shares_are_equal_to_one_partition() -> None:
    assert sizes(assign_uniformly(members("x", "y", "z", "w"))) == {"w": 2, "x": 2, "y": 1, "z": 1}


@pytest.mark.parametrize("joined", [("n",), ("n", "o"), ("n", "o", "p")])
def test_uniform_takes_from_nobody_more_than_those_who_join_get(joined: tuple[str, ...]) -> None:
    topics = frozenset({A, B})
    specs = members("x", "y", topics=topics)
    before = assign_uniformly(specs)
    after = assign_uniformly(again(specs, before, joined=joined))
    assert moves(before, after) == sum(len(after[name]) for name in joined)


def test_uniform_hands_the_share_of_one_who_left_to_the_others_and_moves_nothing_else() -> None:
    specs = members("x", "y", "z")
    before = assign_uniformly(specs)
    after = assign_uniformly(again(specs, before, "y"))
    assert after["x"] >= before["x"]
    assert after["z"] >= before["z"]


def test_uniform_goes_through_others_to_even_out_what_members_want() -> None:
    specs = {
        "x": MemberSpec(topics=frozenset({A}), before=frozenset()),
        "y": MemberSpec(topics=frozenset({A, B})),
        "z": MemberSpec(topics=frozenset({B, C})),
    }
    assert sorted(sizes(assign_uniformly(specs)).values()) == [4, 4, 5]


def test_ranges_are_runs_and_meet_at_one_member() -> None:
    after = assign_ranges(members("x", "y", "z", "w", topics=frozenset({A, B})))
    for topic in (A, B):
        assert [numbers(after[name], topic) for name in ("w", "x", "y", "z")] == [[0, 1], [2, 3], [4], [5]]


def test_ranges_keep_their_order_when_a_member_joins() -> None:
    specs = members("m", "x")
    before = assign_ranges(specs)
    after = assign_ranges(again(specs, before, joined=("a",)))
    assert [numbers(after[name], A) for name in ("m", "x", "a")] == [[0, 1], [2, 3], [4, 5]]


def test_ranges_of_static_members_follow_their_instance_ids() -> None:
    specs: Mapping[str, MemberSpec] = {
        "1": MemberSpec(topics=frozenset({A}), instance_id="second"),
        "2": MemberSpec(topics=frozenset({A}), instance_id="first"),
    }
    assert numbers(assign_ranges(specs)["2"], A) == [0, 1, 2]


def test_members_that_want_nothing_that_exists_get_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign(members("x", "y", topics=frozenset())) == {"x": NOTHING, "y": NOTHING}


topics_of_some = st.frozensets(st.sampled_from([A, B, C]), max_size=3)
groups = st.dictionaries(st.sampled_from("pqrstu"), topics_of_some, min_size=1)


def _wanted(wants: Mapping[str, frozenset[Topic]]) -> Counter[TopicIdPartition]:
    return Counter(
        TopicIdPartition(topic.topic_id, number)
        for topic in frozenset().union(*wants.values())
        for number in range(topic.partition_count)
    )


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(st.lists(groups, min_size=1, max_size=4))
def test_every_wanted_partition_goes_to_exactly_one_member_that_wants_it(
    name: str, history: list[dict[str, frozenset[Topic]]]
) -> None:
    assignments: Assignments = {}
    for wants in history:
        specs = {
            member: MemberSpec(topics=topics, before=assignments.get(member, NOTHING))
            for member, topics in wants.items()
        }
        assignments = ASSIGNORS[name](specs)
        assert assignments.keys() == wants.keys()
        assert Counter(each for partitions in assignments.values() for each in partitions) == _wanted(wants)
        for member, partitions in assignments.items():
            ids = {topic.topic_id for topic in wants[member]}
            assert all(partition.topic_id in ids for partition in partitions)
        assert ASSIGNORS[name](specs) == assignments


@given(st.lists(groups, min_size=1, max_size=4))
def test_uniform_leaves_no_hand_over_that_would_even_out_more(
    history: list[dict[str, frozenset[Topic]]],
) -> None:
    assignments: Assignments = {}
    for wants in history:
        assignments = assign_uniformly(
            {
                member: MemberSpec(topics=topics, before=assignments.get(member, NOTHING))
                for member, topics in wants.items()
            }
        )
        for giver, partitions in assignments.items():
            for topic in wants[giver]:
                if not numbers(partitions, topic):
                    continue
                for taker, its in wants.items():
                    assert topic not in its or len(partitions) - len(assignments[taker]) <= 1
