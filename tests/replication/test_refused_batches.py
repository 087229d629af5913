"""Batches that come after one that was refused for now wait for it to be sent again."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.replication.refused_batches import REFUSALS_MAX, RefusedBatches
from broker.types import TopicPartition
from tests.storage.samples import build

NOT_LEADER = ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet")
PARTITION = TopicPartition("topic", 3)


def batch(sequence: int, count: int = 2, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return build([b"v"] * count, producer=(producer_id, epoch, sequence))


def is_in_turn(refused: RefusedBatches, records: bytearray, partition: TopicPartition = PARTITION) -> bool:
    try:
        refused.require_in_turn(partition, records)
    except ProtocolError as error:
        return (error.code, error.message) != (NOT_LEADER.code, NOT_LEADER.message)
    return True


def test_successors_are_refused_until_the_refused_one_was_taken() -> None:
    refused = RefusedBatches()
    refused.refused(PARTITION, batch(10), NOT_LEADER)
    assert not is_in_turn(refused, batch(12))
    refused.refused(PARTITION, batch(12), NOT_LEADER)
    assert not is_in_turn(refused, batch(14, 5))
    refused.refused(PARTITION, batch(14, 5), NOT_LEADER)
    assert not is_in_turn(refused, batch(19))
    for again in (10, 12):
        assert is_in_turn(refused, batch(again))
    refused.appended(PARTITION, batch(10))
    assert not refused
    assert is_in_turn(refused, batch(19))


@pytest.mark.parametrize(
    "other",
    [
        batch(13),
        batch(12, producer_id=8),
        batch(12, epoch=1),
        batch(-1, producer_id=-1, epoch=-1),
        bytearray(b"no batch at all"),
    ],
)
def test_others_are_not_concerned(other: bytearray) -> None:
    refused = RefusedBatches()
    refused.refused(PARTITION, batch(10), NOT_LEADER)
    assert is_in_turn(refused, other)
    refused.appended(PARTITION, batch(0, producer_id=8))
    assert refused


@pytest.mark.parametrize("other", [TopicPartition("topic", 4), TopicPartition("another", 3)])
def test_other_partitions_are_not_concerned(other: TopicPartition) -> None:
    refused = RefusedBatches()
    refused.refused(PARTITION, batch(10), NOT_LEADER)
    assert is_in_turn(refused, batch(12), other)
    refused.appended(other, batch(10))
    assert not is_in_turn(refused, batch(12))


def test_what_is_refused_for_good_holds_nobody_back() -> None:
    refused = RefusedBatches()
    refused.refused(PARTITION, batch(10), NOT_LEADER)
    refused.refused(PARTITION, batch(10), ProtocolError(ErrorCode.MESSAGE_TOO_LARGE))
    assert not refused
    refused.refused(PARTITION, batch(-1, producer_id=-1, epoch=-1), NOT_LEADER)
    assert not refused


def test_names_that_no_topic_can_have_are_not_remembered() -> None:
    refused = RefusedBatches()
    refused.refused(TopicPartition("t" * 20_000, 0), batch(10), NOT_LEADER)
    assert not refused


def test_each_refusal_is_an_error_of_its_own() -> None:
    """One that is raised again and again would hold on to every request that it was raised for."""
    refused = RefusedBatches()
    refused.refused(PARTITION, batch(10), NOT_LEADER)
    errors = []
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            refused.require_in_turn(PARTITION, batch(12))
        errors.append(caught.value)
    assert len({id(error) for error in (NOT_LEADER, *errors)}) == 3


def test_refusals_of_many_producers_are_bounded() -> None:
    refused = RefusedBatches()
    for partition in range(REFUSALS_MAX + 1):
        refused.refused(TopicPartition("topic", partition), batch(0), NOT_LEADER)
    assert is_in_turn(refused, batch(2), TopicPartition("topic", 0))
    assert not is_in_turn(refused, batch(2), TopicPartition("topic", 1))
