"""What becomes of logs without a role."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.replication.retired_logs import Retirement
from broker.replication.strays import fate
from broker.types import BrokerId, LeaderEpoch, TopicId

SAME, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def topic(*replicas: int, topic_id: TopicId = SAME) -> TopicZnode:
    return TopicZnode(topic_id=topic_id, partitions={0: tuple(map(BrokerId, replicas))})


def in_sync(*isr: int) -> PartitionStateZnode:
    leader, epoch = BrokerId(isr[0] if isr else -1), LeaderEpoch(3)
    return PartitionStateZnode(
        controller_epoch=1, leader=leader, leader_epoch=epoch, isr=tuple(map(BrokerId, isr))
    )


@pytest.mark.parametrize(
    ("topic_id", "found", "state", "expected"),
    [
        (SAME, topic(2, 3), in_sync(2), Retirement.DELETED),
        (SAME, topic(2, 3), in_sync(2, 3), Retirement.DELETED),
        (SAME, topic(1, 2), in_sync(2), None),
        (SAME, topic(2, 3), in_sync(1), None),
        (SAME, topic(2, 3), in_sync(2, 1), None),
        (SAME, topic(2, 3), in_sync(4), Retirement.SET_ASIDE),
        (SAME, topic(2, 3), in_sync(), Retirement.SET_ASIDE),
        (SAME, topic(2, 3), None, Retirement.SET_ASIDE),
        (SAME, None, None, Retirement.SET_ASIDE),
        (SAME, None, in_sync(2), Retirement.SET_ASIDE),
        (SAME, topic(2, 3, topic_id=OTHER), in_sync(2), Retirement.SET_ASIDE),
        (SAME, topic(1, 2, topic_id=OTHER), in_sync(1), Retirement.SET_ASIDE),
        (None, topic(1, 2), in_sync(2), None),
        (None, topic(2, 3), in_sync(2), Retirement.SET_ASIDE),
    ],
)
def test_only_what_others_certainly_have_is_deleted(
    topic_id: TopicId | None,
    found: TopicZnode | None,
    state: PartitionStateZnode | None,
    expected: Retirement | None,
) -> None:
    how, reason = fate(BrokerId(1), 0, topic_id, found, state)
    assert how is expected
    assert reason


def test_a_partition_that_the_topic_does_not_have_is_set_aside() -> None:
    assert fate(BrokerId(1), 7, SAME, topic(1, 2), in_sync(1))[0] is Retirement.SET_ASIDE


def test_the_reason_names_what_is_there_now() -> None:
    reasons: Sequence[str] = [
        fate(BrokerId(1), 0, SAME, topic(2, 3), in_sync(2))[1],
        fate(BrokerId(1), 0, SAME, topic(2, 3, topic_id=OTHER), None)[1],
    ]
    assert "[2, 3]" in reasons[0]
    assert str(OTHER) in reasons[1]
