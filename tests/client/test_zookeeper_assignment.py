"""Who reads what in a group that meets in ZooKeeper, as a table and for all groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_assignment import (
    PartitionNames,
    partition_of_name,
    register,
    share_of,
    spread,
    stream_name,
    topics_of,
)
from broker.coordination.znodes import Assignment, ConsumerZnode
from broker.types import BrokerId, TopicPartition

KAFKAS = ConsumerZnode(subscription={"t": 1}, pattern="static", timestamp_ms=1)


def led_by(*brokers: int) -> Assignment:
    """Partitions from 0 on with these preferred brokers."""
    return {number: (BrokerId(broker), BrokerId(9)) for number, broker in enumerate(brokers)}


def shares(
    registrations: Mapping[str, ConsumerZnode], topics: Mapping[str, Assignment]
) -> dict[str, list[tuple[str, int, int]]]:
    """Topic, partition and stream of all that each member gets."""
    return {
        member: [
            (topic, number, stream)
            for (topic, number), stream in share_of(member, registrations, topics).items()
        ]
        for member in registrations
    }


def test_partitions_go_in_runs_to_the_sorted_streams_and_the_first_get_one_more() -> None:
    registrations = {"b": register({"t": 1}, 0), "a": register({"t": 2}, 0)}
    assert shares(registrations, {"t": led_by(1, 1, 1, 1, 1)}) == {
        "a": [("t", 0, 0), ("t", 1, 0), ("t", 2, 1), ("t", 3, 1)],
        "b": [("t", 4, 0)],
    }


def test_partitions_of_one_preferred_broker_stay_together() -> None:
    registrations = {"a": register({"t": 1}, 0), "b": register({"t": 1}, 0)}
    assert shares(registrations, {"t": led_by(2, 1, 2, 1)}) == {
        "a": [("t", 1, 0), ("t", 3, 0)],
        "b": [("t", 0, 0), ("t", 2, 0)],
    }


def test_with_a_consumer_of_kafkas_in_the_group_partitions_are_sorted_as_it_sorts_them() -> None:
    registrations = {"a": register({"t": 1}, 0), "b": KAFKAS}
    assert shares(registrations, {"t": led_by(2, 1, 2, 1)}) == {
        "a": [("t", 0, 0), ("t", 1, 0)],
        "b": [("t", 2, 0), ("t", 3, 0)],
    }


def test_streams_are_sorted_as_text() -> None:
    registrations = {"a": register({"t": 11}, 0)}
    given_to = share_of("a", registrations, {"t": led_by(*[1] * 11)})
    names = [stream_name("a", given_to[TopicPartition("t", number)]) for number in range(11)]
    assert names == sorted(names)
    assert names[2] == "a-10"


def test_streams_without_a_partition_get_none() -> None:
    registrations = {"a": register({"t": 1}, 0), "b": register({"t": 3}, 0)}
    assert shares(registrations, {"t": led_by(1, 1)}) == {"a": [("t", 0, 0)], "b": [("t", 1, 0)]}


def test_only_those_that_read_a_topic_share_it() -> None:
    registrations = {
        "a": register({"t": 1, "gone": 1}, 0),
        "b": register((TopicPattern.allow("t|u"), 1), 0),
        "c": register((TopicPattern.deny("t"), 1), 0),
    }
    topics = {"t": led_by(1, 1), "u": led_by(1, 1), "__consumer_offsets": led_by(1)}
    assert shares(registrations, topics) == {
        "a": [("t", 0, 0)],
        "b": [("t", 1, 0), ("u", 0, 0)],
        "c": [("u", 1, 0)],
    }


@given(
    counts=st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 4), min_size=1, max_size=6),
    brokers=st.lists(st.integers(1, 4), max_size=30),
    kafkas=st.booleans(),
)
def test_every_partition_goes_to_one_stream_and_streams_differ_by_one_at_most(
    counts: dict[str, int], brokers: list[int], kafkas: bool
) -> None:
    registrations = {member: register({"t": count}, 0) for member, count in counts.items()}
    if kafkas:
        registrations["kafka's"] = KAFKAS
    topics = {"t": led_by(*brokers)}
    given_to = [
        (number, stream_name(member, stream))
        for member in registrations
        for (_, number), stream in share_of(member, registrations, topics).items()
    ]
    assert sorted(number for number, _ in given_to) == list(range(len(brokers)))
    streams = [
        stream_name(member, stream)
        for member, registered in registrations.items()
        for stream in range(registered.subscription["t"])
    ]
    sizes = [sum(name == stream for _, name in given_to) for stream in streams]
    assert max(sizes) - min(sizes) <= 1


@given(items=st.lists(st.integers()), count=st.integers(1, 9))
def test_runs_are_all_items_in_order(items: list[int], count: int) -> None:
    runs = spread(items, count)
    assert [item for run in runs for item in run] == items
    assert len(runs) == count


def test_registrations_are_written_as_kafkas_consumers_read_them() -> None:
    static = register({"t": 2}, 5).encode()
    assert static == (
        b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"5","order":"broker"}'
    )
    assert b'{"a|b.*":3},"pattern":"white_list"' in register((TopicPattern.allow("'a, b.*'"), 3), 5).encode()
    assert b'"pattern":"black_list"' in register((TopicPattern.deny("a"), 1), 5).encode()


def test_registrations_of_kafkas_consumers_are_read() -> None:
    written = b'{"version":1,"subscription":{"a.*":2},"pattern":"white_list","timestamp":"1416700000000"}'
    registration = ConsumerZnode.decode(written, "/path")
    assert topics_of(registration, ["ab", "b", "__consumer_offsets"]) == {"ab": 2}
    assert not registration.sorts_by_broker


def test_internal_topics_match_only_when_asked_for() -> None:
    registration = register((TopicPattern.deny("x"), 1), 0)
    assert topics_of(registration, ["__transaction_state"]) == {}
    assert topics_of(registration, ["__transaction_state"], internal_too=True) == {"__transaction_state": 1}


@pytest.mark.parametrize("make", [TopicPattern.allow, TopicPattern.deny])
def test_what_is_no_regular_expression_is_refused(make: type[TopicPattern]) -> None:
    with pytest.raises(ValueError, match=r"'a\(' is no regular expression"):
        make("a(")


@pytest.mark.parametrize(
    ("subscription", "told"),
    [
        ({"a(": 1}, "no regular expression"),
        ({"a": 10**9}, "1000000000 streams of a"),
        ({"a": -1}, "-1 streams"),
    ],
)
def test_what_is_wrong_with_a_registration_is_told(subscription: dict[str, int], told: str) -> None:
    registration = ConsumerZnode(subscription=subscription, pattern="white_list", timestamp_ms=1)
    with pytest.raises(ValueError, match=told):
        topics_of(registration, ["a"])


@pytest.mark.parametrize(
    ("names", "name"), [(PartitionNames.NUMBER, "3"), (PartitionNames.BROKER_AND_NUMBER, "12-3")]
)
def test_znodes_of_partitions_have_either_name(names: PartitionNames, name: str) -> None:
    assert names.name_of(3, (12, 1)) == name
    assert partition_of_name(name) == 3


@pytest.mark.parametrize("name", ["", "x", "x-3", "3-", "-3", "-"])
def test_other_names_are_of_no_partition(name: str) -> None:
    assert partition_of_name(name) is None
