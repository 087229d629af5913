"""What is noted of a partition holds as long as there is nothing to say of it, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from broker.replication.partition import Assignment, LagBounds, Partition
from broker.replication.replica import Replica
from broker.server.fetch_sessions import FetchedPartition
from broker.server.quiet_partitions import QuietPartition, QuietRead
from broker.storage.free_space import FreeSpace
from broker.storage.log_config import LogConfig
from broker.types import NO_TOPIC_ID, BrokerId, LeaderEpoch
from broker.wire.messages.fetch import FetchPartition, PartitionData
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, build

LEADER, FOLLOWER, OUTSIDER = BrokerId(1), BrokerId(2), BrokerId(3)
BROKER_EPOCH = 7
LATER_MS = 1_000_000
ASSIGNMENT = Assignment(
    leader=LEADER,
    leader_epoch=LeaderEpoch(0),
    isr=(LEADER, FOLLOWER),
    replicas=(LEADER, FOLLOWER, OUTSIDER),
    partition_epoch=0,
)


def append(replica: Replica) -> None:
    replica.append(build([b"value"]), acks=1, now_ms=NOW_MS)


@pytest.fixture
def replica() -> Iterator[Replica]:
    """A partition with two records, which its in-sync follower has."""
    place = memory_place()
    log = place.log(LogConfig())
    machine = Partition(PARTITION, LEADER, log_end_offset=log.log_end_offset)
    machine.lead(ASSIGNMENT, now_ms=0)
    space = FreeSpace(str(place.path), lambda: place.disk.space(place.path), minimum=0)
    with ThreadPoolExecutor(1) as threads:
        led = Replica(log, machine, threads, free_space=space)
        append(led)
        append(led)
        led.fetched_by(FOLLOWER, 2, broker_epoch=BROKER_EPOCH, now_ms=0)
        yield led


def wanted(offset: int = 2) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=offset)


def test_a_follower_that_is_heard_again_is_caught_up_at_that_time(replica: Replica) -> None:
    question = wanted()
    noted = QuietPartition.of(replica, question, FOLLOWER)
    assert noted is not None
    assert noted.heard_again(replica, question, BROKER_EPOCH, LATER_MS)
    append(replica)
    bounds = LagBounds(time_ms=10)
    assert replica.machine.laggards(bounds, now_ms=LATER_MS + 10) == []
    assert replica.machine.laggards(bounds, now_ms=LATER_MS + 11) == [FOLLOWER]


CHANGES: dict[str, Callable[[Replica], object]] = {
    "an append": append,
    "a new log start": lambda replica: replica.log.advance_start(1),
    "another high watermark": lambda replica: setattr(replica.machine, "high_watermark", 1),
    "an ISR that was written": lambda replica: replica.machine.isr_written((LEADER,), 1, LeaderEpoch(0)),
    "a new epoch": lambda replica: replica.machine.lead(
        replace(ASSIGNMENT, leader_epoch=LeaderEpoch(1), partition_epoch=1), now_ms=0
    ),
    "another leader": lambda replica: replica.machine.follow(
        replace(ASSIGNMENT, leader=FOLLOWER, leader_epoch=LeaderEpoch(1), partition_epoch=1)
    ),
    "the end of its service": lambda replica: replica.take_offline(),
    "a new registration of the follower": lambda replica: replica.fetched_by(
        FOLLOWER, 2, broker_epoch=BROKER_EPOCH + 1, now_ms=0
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_what_was_noted(replica: Replica, change: str) -> None:
    question = wanted()
    noted = QuietPartition.of(replica, question, FOLLOWER)
    assert noted is not None
    CHANGES[change](replica)
    assert not noted.heard_again(replica, question, BROKER_EPOCH, LATER_MS)


def test_it_is_noted_of_one_question_in_one_registration(replica: Replica) -> None:
    question = wanted()
    noted = QuietPartition.of(replica, question, FOLLOWER)
    assert noted is not None
    assert not noted.heard_again(replica, wanted(), BROKER_EPOCH, LATER_MS)
    assert not noted.heard_again(replica, question, BROKER_EPOCH + 1, LATER_MS)


def test_nothing_is_noted_of_who_lacks_records_or_is_not_in_sync(replica: Replica) -> None:
    assert QuietPartition.of(replica, wanted(1), FOLLOWER) is None
    replica.fetched_by(OUTSIDER, 2, broker_epoch=BROKER_EPOCH, now_ms=0)
    assert QuietPartition.of(replica, wanted(), OUTSIDER) is None


def read_all(*, wants: FetchPartition, high_watermark: int = 2) -> FetchedPartition:
    """A client's partition that was told everything up to there."""
    found = FetchedPartition(PARTITION.topic, NO_TOPIC_ID, wants)
    found.tell(
        PartitionData(high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=0)
    )
    return found


def test_there_is_nothing_to_say_to_a_client_that_has_everything(replica: Replica) -> None:
    noted = QuietRead(replica, 2)
    assert noted.holds(replica, read_all(wants=wanted()))
    in_this_epoch = FetchPartition(fetch_offset=2, current_leader_epoch=0, last_fetched_epoch=0)
    assert noted.holds(replica, read_all(wants=in_this_epoch))


@pytest.mark.parametrize(
    "change", sorted(CHANGES.keys() - {"a new registration of the follower", "an append"})
)
def test_a_change_ends_what_was_noted_of_a_client(replica: Replica, change: str) -> None:
    noted = QuietRead(replica, 2)
    CHANGES[change](replica)
    assert not noted.holds(replica, read_all(wants=wanted()))


def test_a_client_is_told_of_records_once_they_are_committed(replica: Replica) -> None:
    noted = QuietRead(replica, 2)
    append(replica)
    assert noted.holds(replica, read_all(wants=wanted()))
    replica.fetched_by(FOLLOWER, 3, broker_epoch=BROKER_EPOCH, now_ms=0)
    assert not noted.holds(replica, read_all(wants=wanted()))


@pytest.mark.parametrize(
    "question",
    [
        FetchPartition(fetch_offset=1),
        FetchPartition(fetch_offset=3),
        FetchPartition(fetch_offset=2, current_leader_epoch=1),
        FetchPartition(fetch_offset=2, last_fetched_epoch=1),
    ],
    ids=["an earlier offset", "a later one", "another leader", "another history"],
)
def test_a_client_is_answered_that_asks_for_something_else(
    replica: Replica, question: FetchPartition
) -> None:
    assert not QuietRead(replica, 2).holds(replica, read_all(wants=question))


def test_a_client_that_was_not_told_everything_is_answered(replica: Replica) -> None:
    assert not QuietRead(replica, 2).holds(replica, read_all(wants=wanted(), high_watermark=1))
