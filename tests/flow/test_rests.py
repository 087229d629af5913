"""What ends a partition's rest in front of something that the source does not give, or that cannot cross."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode, ProtocolError
from mirrormaker.flow.exchange import FetchedPartition
from mirrormaker.flow.facts import Fact, PartitionRecovered, SourceFailed
from mirrormaker.flow.standing import HALTED, UNREADABLE, standing_of
from mirrormaker.topology.model import CopyMode, FailurePolicies
from tests.flow.test_batch_limits import SOURCE, TAKEN_BYTES, World, batch_of

END = 500
GARBAGE = bytearray(b"\x00" * 8 + b"\x00\x00\x00\x40" + b"\xff" * 64)
OVERSIZE = batch_of(TAKEN_BYTES * 2)
NO_ROOM = FetchedPartition(source=SOURCE, offset=0, records=bytearray(), source_end=END)
NOT_WANTED = FetchedPartition(source=SOURCE, offset=0, records=bytearray(), source_end=END, filtered_to=1)
GONE = FetchedPartition(source=SOURCE, offset=0, records=bytearray(), source_end=0)
DAMAGED = FetchedPartition(source=SOURCE, offset=0, records=GARBAGE, source_end=END)
TOO_LARGE = FetchedPartition(source=SOURCE, offset=0, records=OVERSIZE, source_end=END)


def resting_before(answer: FetchedPartition) -> World:
    """It is known how large batches may be."""
    world = World(FailurePolicies(), CopyMode.AUTO)
    world.told = TAKEN_BYTES
    world.limits.configure(world.main.topic, TAKEN_BYTES)
    world.serve()
    fetch(world, answer)
    return world


def fetch(world: World, answer: FetchedPartition) -> list[Fact]:
    """Once the partition is fetched again; what comes of it."""
    world.now_ms = max(world.now_ms, world.machine.partitions[SOURCE].fetch_not_before_ms)
    assert [each.offset for each in world.machine.plan_fetch([SOURCE], 1, world.now_ms).positions] == [0]
    world.machine.fetched([answer], len(answer.records), world.now_ms)
    return world.machine.ready(world.now_ms).facts


@pytest.mark.parametrize("met", [DAMAGED, TOO_LARGE], ids=["damage", "obstacle"])
def test_an_answer_that_had_no_room_for_what_it_rests_before_ends_nothing(met: FetchedPartition) -> None:
    """As while others have a backlog, and it is asked for last."""
    world = resting_before(met)
    partition = world.machine.partitions[SOURCE]
    waits = []
    for failures in range(1, 5):
        assert partition.source_failures == failures
        assert standing_of(partition).state == (UNREADABLE if met is DAMAGED else HALTED)
        waits.append(partition.fetch_not_before_ms - world.now_ms)
        assert fetch(world, NO_ROOM) == []
        assert fetch(world, met) == []
    assert waits == [waits[0] << doubled for doubled in range(4)]


@pytest.mark.parametrize(
    "code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_nor_does_it_where_the_node_itself_cannot_read_what_is_there(code: ErrorCode) -> None:
    world = resting_before(NO_ROOM)
    partition = world.machine.partitions[SOURCE]
    for failures in range(1, 4):
        world.machine.source_failed(SOURCE, ProtocolError(code), world.now_ms)
        told = world.machine.ready(world.now_ms).facts
        assert [type(fact) for fact in told] == [SourceFailed][failures - 1 :]
        assert fetch(world, NO_ROOM) == []
        assert (partition.source_failures, standing_of(partition).state) == (failures, UNREADABLE)
    assert fetch(world, GONE) == [PartitionRecovered(source=SOURCE, failures=3, at_source=True)]


@pytest.mark.parametrize("answer", [NOT_WANTED, GONE], ids=["not wanted", "gone"])
@pytest.mark.parametrize("met", [DAMAGED, TOO_LARGE], ids=["damage", "obstacle"])
def test_a_source_that_has_nothing_there_any_more_ends_it(
    met: FetchedPartition, answer: FetchedPartition
) -> None:
    world = resting_before(met)
    assert fetch(world, answer) == [PartitionRecovered(source=SOURCE, failures=1, at_source=True)]
    partition = world.machine.partitions[SOURCE]
    assert (partition.obstacle, partition.source_problem, partition.source_failures) == (None, None, 0)


def test_a_refusal_is_over_with_the_first_answer_that_has_none() -> None:
    world = resting_before(NO_ROOM)
    refusal = ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    world.machine.source_failed(SOURCE, refusal, world.now_ms)
    (told,) = world.machine.ready(world.now_ms).facts
    assert isinstance(told, SourceFailed)
    assert fetch(world, NO_ROOM) == [PartitionRecovered(source=SOURCE, failures=1, at_source=True)]
