"""Which replica a consumer should read from."""

from __future__ import annotations

from random import Random

import pytest

from broker.errors import ConfigurationError
from broker.replication.read_replicas import (
    RackSelector,
    RandomSelector,
    ReadableReplica,
    ReadingClient,
    load_selector,
)
from broker.types import BrokerId, TopicPartition

PARTITION = TopicPartition("t", 0)


class Last:
    """Takes the replica that was named last."""

    def select(self, partition, client, leader, followers):
        return followers[-1]


def replica(broker_id: int, rack: str | None, end: int = 10, behind_ms: int = 0) -> ReadableReplica:
    return ReadableReplica(broker_id=BrokerId(broker_id), rack=rack, log_end_offset=end, behind_ms=behind_ms)


def client(rack: str) -> ReadingClient:
    return ReadingClient(rack=rack, client_id="c", host="127.0.0.1", listener="PLAINTEXT")


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("a", [replica(2, "a", end=20)], 1),
        ("b", [replica(2, "b"), replica(3, "c")], 2),
        ("b", [replica(2, "b", end=9), replica(3, "b")], 3),
        ("b", [replica(2, "b", behind_ms=5), replica(3, "b", behind_ms=4)], 3),
        ("b", [replica(2, "b"), replica(3, "b")], 2),
        ("d", [replica(2, "b"), replica(3, None)], 1),
        ("", [replica(2, ""), replica(3, None)], 1),
    ],
)
def test_a_replica_in_the_clients_rack_is_taken(
    rack: str, followers: list[ReadableReplica], chosen: int
) -> None:
    assert RackSelector().select(PARTITION, client(rack), replica(1, "a"), followers).broker_id == chosen


def test_any_replica_is_taken_at_random() -> None:
    selector = RandomSelector(Random(1))
    replicas = replica(1, "a"), [replica(2, "b"), replica(3, None)]
    assert {selector.select(PARTITION, client("a"), *replicas).broker_id for _ in range(50)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("leader", type(None)),
        ("rack", RackSelector),
        ("random", RandomSelector),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", RackSelector),
        (f"{__name__}:Last", Last),
    ],
)
def test_selectors_have_names(name: str, kind: type) -> None:
    assert isinstance(load_selector(name, Random(1)), kind)


@pytest.mark.parametrize(
    "name",
    ["nearest", "org.apache.kafka.Nobodys", f"{__name__}:Missing", "broker.types:HostPort", "random:Random"],
)
def test_what_selects_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"replica\.selector\.class: .*"):
        load_selector(name, Random(1))
