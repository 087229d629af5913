"""Batches that come after one that was refused for now wait for it to be sent again."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.replication.refused_batches import PRODUCERS_MAX, RefusedBatches
from tests.storage.samples import build

NOT_LEADER = ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def batch(sequence: int, count: int = 2, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return build([b"v"] * count, producer=(producer_id, epoch, sequence))


def is_in_turn(refused: RefusedBatches, records: bytearray) -> bool:
    try:
        refused.require_in_turn(records)
    except ProtocolError as error:
        return error is not NOT_LEADER
    return True


def test_successors_are_refused_until_the_refused_one_was_taken() -> None:
    refused = RefusedBatches()
    refused.refused(batch(10), NOT_LEADER)
    assert not is_in_turn(refused, batch(12))
    refused.refused(batch(12), NOT_LEADER)
    assert not is_in_turn(refused, batch(14, 5))
    refused.refused(batch(14, 5), NOT_LEADER)
    assert not is_in_turn(refused, batch(19))
    for again in (10, 12):
        assert is_in_turn(refused, batch(again))
    refused.appended(batch(10))
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
    refused.refused(batch(10), NOT_LEADER)
    assert is_in_turn(refused, other)


def test_what_is_refused_for_good_holds_nobody_back() -> None:
    refused = RefusedBatches()
    refused.refused(batch(10), NOT_LEADER)
    refused.refused(batch(10), ProtocolError(ErrorCode.MESSAGE_TOO_LARGE))
    assert not refused
    refused.refused(batch(-1, producer_id=-1, epoch=-1), NOT_LEADER)
    assert not refused


def test_refusals_of_many_producers_are_bounded() -> None:
    refused = RefusedBatches()
    for producer_id in range(PRODUCERS_MAX + 1):
        refused.refused(batch(0, producer_id=producer_id), NOT_LEADER)
    assert is_in_turn(refused, batch(2, producer_id=0))
    assert not is_in_turn(refused, batch(2, producer_id=1))
