"""Plans for moves of replicas, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from broker.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from broker.errors import ConfigurationError
from broker.moves import drained, parse_plan, rendered_plan, spread
from broker.types import HostPort, TopicPartition


def cluster_of(
    topics: Mapping[str, Sequence[Sequence[int]]], brokers: Mapping[int, str | None]
) -> ClusterMetadata:
    return ClusterMetadata(
        nodes={b: Node(id=b, address=HostPort("h", b), rack=rack) for b, rack in brokers.items()},
        topics={
            name: TopicMetadata(
                name=name,
                partitions={
                    number: PartitionMetadata(leader=replicas[0], replicas=tuple(replicas))
                    for number, replicas in enumerate(partitions)
                },
            )
            for name, partitions in topics.items()
        },
    )


FOUR = dict.fromkeys(range(1, 5))


def test_a_topic_is_spread_over_brokers_as_if_made_there() -> None:
    cluster = cluster_of({"t": [[1, 2], [1, 2], [1, 2]]}, FOUR)
    assert spread(cluster, ["t"], [2, 3, 4], None) == {
        TopicPartition("t", 0): (2, 3),
        TopicPartition("t", 1): (3, 4),
        TopicPartition("t", 2): (4, 2),
    }


def test_what_is_in_its_place_is_left_out_of_the_plan() -> None:
    cluster = cluster_of({"t": [[2, 3], [1, 2]]}, FOUR)
    assert spread(cluster, ["t"], [2, 3, 4], None).keys() == {TopicPartition("t", 1)}


def test_a_topic_gets_another_number_of_replicas() -> None:
    cluster = cluster_of({"t": [[1]]}, FOUR)
    assert spread(cluster, ["t"], [1, 2, 3], 3) == {TopicPartition("t", 0): (1, 2, 3)}
    with pytest.raises(ConfigurationError, match="5 replicas for 2 brokers"):
        spread(cluster, ["t"], [1, 2], 5)
    with pytest.raises(ConfigurationError, match="broker 9 is not there"):
        spread(cluster, ["t"], [1, 9], None)


def test_a_drained_broker_keeps_nothing_and_load_is_spread() -> None:
    cluster = cluster_of({"t": [[1, 2], [2, 1], [1, 3], [4, 3]]}, FOUR)
    plan = drained(cluster, ["t"], 1)
    assert plan.keys() == {TopicPartition("t", number) for number in (0, 1, 2)}
    assert all(1 not in replicas for replicas in plan.values())
    assert plan[TopicPartition("t", 0)][1] == 2
    assert {replica for replicas in plan.values() for replica in replicas} == {2, 3, 4}


def test_a_drained_replica_goes_to_a_rack_that_the_partition_is_not_in() -> None:
    cluster = cluster_of({"t": [[1, 2]], "u": [[4, 3]] * 5}, {1: "a", 2: "b", 3: "b", 4: "a"})
    assert drained(cluster, ["t"], 1) == {TopicPartition("t", 0): (4, 2)}


def test_the_last_broker_cannot_be_drained() -> None:
    with pytest.raises(ConfigurationError, match="no other broker is left"):
        drained(cluster_of({"t": [[1, 2]]}, dict.fromkeys((1, 2))), ["t"], 1)


def test_a_plan_reads_as_it_is_written() -> None:
    plan = {TopicPartition("t", 0): (1, 2), TopicPartition("u", 3): (2,)}
    assert parse_plan(json.dumps(rendered_plan(plan)), "plan.json") == plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "partitions"),
        ('{"partitions": []}', "at least one"),
        ('{"partitions": [7]}', r"partitions\[0\]: an object"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "replicas is missing"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "from 0 on"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "list of broker ids"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            r"partitions\[1\]: t-0 is named twice",
        ),
    ],
)
def test_a_plan_that_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"plan.json: .*{words}"):
        parse_plan(text, "plan.json")
