"""A topic that takes smaller batches than it is known to: what it takes crosses, by itself where it must."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.batch_limits import CLOSED_BYTES, BatchLimits, SplittingRemedies
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig, ProduceAnswer
from mirrormaker.flow.hooks import Hooks, KafkaRemedies
from mirrormaker.flow.intake import UNBOUNDED
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.transit import RouteTransit
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.topology.model import (
    ClusterName,
    CopyMode,
    DropParts,
    FailurePolicies,
    FailurePolicy,
    RecordErrorPolicy,
    RouteName,
    RouteSpec,
    TopicSelection,
    TransformSpec,
)

SOURCE = TopicPartition("flights", 0)
TAKEN_BYTES = 1_000


def batch_of(*sizes: int) -> bytearray:
    builder = BatchBuilder(Codec.NONE, size_max=1 << 20)
    for size in sizes:
        builder.append(1, b"key", b"v" * size)
    return builder.build()


def chunk_of(*sizes: int) -> Chunk:
    records = batch_of(*sizes)
    return Chunk(
        records=records,
        batches=1,
        frame=Frame(len(records)),
        first_offset=0,
        next_offset=len(sizes),
        first_timestamp=1,
        max_timestamp=1,
        count=len(sizes),
        size=len(records),
    )


class World:
    """One partition; its destination takes batches of `taken`, at first of `TAKEN_BYTES`, and says `told`, at
    first nothing.
    """

    def __init__(
        self, on: FailurePolicies, copy: CopyMode, transforms: tuple[TransformSpec, ...] = (), lane: int = 0
    ) -> None:
        """`lane`: the one that leads there."""
        self.limits = limits = BatchLimits()
        route = RouteSpec(
            name=RouteName("r"),
            source=ClusterName("jfk"),
            destination=ClusterName("aggregate"),
            topics=TopicSelection(include=("flights",)),
            copy=copy,
            on=on,
            transforms=transforms,
        )
        transit = RouteTransit(route, limits)
        self.machine = FlowMachine(
            FlowConfig(), Hooks(remedies=SplittingRemedies(limits, KafkaRemedies()), transit=transit)
        )
        lanes = transit.ways("flights").lanes(0, lambda topic: 1).destinations
        self.machine.assign([Assignment(source=SOURCE, destinations=lanes, bucket=0, position=0)])
        self.machine.set_leaders(dict.fromkeys(lanes, BrokerId(0)))
        self.main = lanes[lane]
        self.arrived: list[tuple[int, int]] = []
        """First source offset and records of each batch of that lane."""
        self.now_ms = 0
        self.is_refused = False
        self.taken = TAKEN_BYTES
        self.told: int | None = None

    def copy_all(self, batch: bytearray, end: int) -> None:
        partition = self.machine.partitions[SOURCE]
        for _ in range(50):
            self.now_ms += 1_000
            if partition.position < end and partition.may_fetch(self.now_ms):
                answer = FetchedPartition(
                    source=SOURCE, offset=partition.position, records=bytearray(batch), source_end=end
                )
                self.machine.fetched([answer], len(batch), self.now_ms)
            self.serve()

    def serve(self) -> None:
        ready = self.machine.ready(self.now_ms)
        for key in ready.producers:
            self.machine.set_producer(key, ProducerIdentity(1, 0))
        self.is_refused = False
        for command in ready.requests:
            answers = {lane.destination: self.answer(lane, chunk) for lane, chunk in command.entries}
            self.machine.answered(command, answers, self.now_ms)
        for topic in tuple(self.limits.suspects):
            if self.limits.configure(topic, self.told):
                self.machine.takes_larger(topic)

    def answer(self, lane: Lane, chunk: Chunk) -> ProduceAnswer:
        if lane.destination != self.main:
            return ProduceAnswer(ErrorCode.NONE, 0)
        if self.is_refused:  # as brokers do with what follows a batch that they lack
            return ProduceAnswer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if chunk.size > self.taken:
            self.is_refused = True
            return ProduceAnswer(ErrorCode.MESSAGE_TOO_LARGE)
        self.arrived.append((chunk.first_offset, chunk.count))
        return ProduceAnswer(ErrorCode.NONE, 0)


@pytest.mark.parametrize("policy", [FailurePolicy.PAUSE_PARTITION, FailurePolicy.SKIP_AND_RECORD])
def test_a_record_that_is_larger_than_half_of_what_was_refused_crosses_by_itself(
    policy: FailurePolicy,
) -> None:
    world = World(FailurePolicies(oversize=policy), CopyMode.AUTO)
    world.copy_all(batch_of(800, 150), 2)
    assert world.arrived == [(0, 1), (1, 1)]
    assert world.machine.partitions[SOURCE].obstacle is None
    assert not world.machine.counts.left_out


def test_of_a_batch_that_is_refused_only_what_is_too_large_by_itself_is_left_out() -> None:
    world = World(FailurePolicies(oversize=FailurePolicy.SKIP_AND_RECORD), CopyMode.AUTO)
    world.copy_all(batch_of(10, 1_200, 800), 3)
    assert world.arrived == [(0, 1), (2, 1)]
    assert world.machine.counts.left_out.total() == 1


def test_where_nothing_is_split_a_batch_crosses_though_one_twice_as_large_was_refused() -> None:
    world = World(FailurePolicies(not_shallow=FailurePolicy.SKIP_AND_RECORD), CopyMode.SHALLOW)
    world.copy_all(batch_of(700, 500), 2)
    assert (world.arrived, world.machine.counts.left_out.total()) == ([], 1)
    second = batch_of(400, 400)
    second[:8] = (2).to_bytes(8, "big")
    world.copy_all(second, 4)
    assert world.arrived == [(2, 2)]
    assert world.machine.counts.left_out.total() == 1


@pytest.mark.parametrize("policy", [FailurePolicy.PAUSE_PARTITION, FailurePolicy.SKIP_AND_RECORD])
def test_dead_letters_are_split_by_what_their_own_topic_takes_and_one_that_is_too_large_is_an_obstacle(
    policy: FailurePolicy,
) -> None:
    on = FailurePolicies(oversize=policy, record_error=RecordErrorPolicy.PARK)
    refusing = TransformSpec(step=DropParts(fields=("a",)))  # no value is JSON
    world = World(on, CopyMode.AUTO, (refusing,), lane=1)
    world.copy_all(batch_of(500, 500, 1_200, 20), 4)
    obstacle = world.machine.partitions[SOURCE].obstacle
    if policy is FailurePolicy.SKIP_AND_RECORD:
        assert (world.arrived, obstacle) == ([(0, 1), (1, 1), (3, 1)], None)
    else:
        assert world.arrived == [(0, 1), (1, 1)]
        assert obstacle is not None
        assert (obstacle.kind, obstacle.position) == (TroubleKind.OVERSIZE, 2)


@pytest.mark.parametrize("policy", [FailurePolicy.FAIL, FailurePolicy.SKIP_AND_RECORD])
@pytest.mark.parametrize("copy", [CopyMode.AUTO, CopyMode.SHALLOW])
def test_a_topic_that_a_switch_closed_for_a_while_is_waited_for(
    policy: FailurePolicy, copy: CopyMode
) -> None:
    world = World(FailurePolicies(oversize=policy), copy)
    assert world.limits.configure(world.main.topic, TAKEN_BYTES)
    world.taken = world.told = CLOSED_BYTES
    batch = batch_of(100, 150)
    world.copy_all(batch, 2)
    partition = world.machine.partitions[SOURCE]
    assert (world.arrived, partition.state, partition.obstacle) == ([], LaneState.PAUSED, None)
    assert world.limits.is_closed(world.main.topic)
    assert partition.stands_for_size

    world.taken = world.told = TAKEN_BYTES
    assert world.limits.configure(world.main.topic, TAKEN_BYTES)
    world.machine.takes_larger(world.main.topic)
    world.copy_all(batch, 2)
    assert world.arrived == [(0, 2)]
    assert not world.machine.counts.left_out


def test_a_switch_that_ends_before_the_topic_is_looked_at_leaves_nothing_out() -> None:
    """Nor where some nodes hear of its end later than others."""
    world = World(FailurePolicies(oversize=FailurePolicy.SKIP_AND_RECORD), CopyMode.SHALLOW)
    topic, chunk, limits = world.main.topic, chunk_of(100), world.limits
    assert limits.configure(topic, TAKEN_BYTES)
    for _ in range(3):
        for puzzles in (False, True):
            assert not limits.refuse(topic, chunk)
            assert limits.puzzles is puzzles
            assert limits.configure(topic, TAKEN_BYTES)
            assert limits.of([topic]).bytes_max == TAKEN_BYTES
        assert not limits.configure(topic, TAKEN_BYTES)  # it was taken meanwhile
    limits.refuse(topic, chunk)
    limits.keep(["others"])
    assert not limits.suspects


def test_what_is_refused_again_and_again_by_a_topic_that_says_it_takes_it_is_too_large() -> None:
    """As by one that compresses what it gets once more."""
    world = World(FailurePolicies(oversize=FailurePolicy.SKIP_AND_RECORD), CopyMode.AUTO)
    world.told = 5_000
    world.copy_all(batch_of(10, 1_200, 800), 3)
    assert world.arrived == [(0, 1), (2, 1)]
    assert world.machine.counts.left_out.total() == 1


def test_a_limit_that_was_lowered_is_looked_up_before_anything_is_split() -> None:
    world = World(FailurePolicies(oversize=FailurePolicy.SKIP_AND_RECORD), CopyMode.AUTO)
    assert world.limits.configure(world.main.topic, 5_000)
    world.told = TAKEN_BYTES
    world.copy_all(batch_of(800, 150, 150, 150), 4)
    assert world.arrived == [(0, 1), (1, 3)]
    assert not world.machine.counts.left_out


def refuse(limits: BatchLimits, chunk: Chunk) -> None:
    limits.refuse("a", chunk)
    limits.configure("a", None)


def test_what_was_refused_is_no_more_than_a_bound_until_it_is_doubted_or_the_topic_tells() -> None:
    limits = BatchLimits()
    assert limits.of(["a", "b"]) == (UNBOUNDED, UNBOUNDED)
    whole, split = chunk_of(800, 150), chunk_of(300)
    refuse(limits, whole)
    assert limits.of(["a", "b"]) == (whole.size - 1, whole.size // 2)
    refuse(limits, split)
    refuse(limits, whole)
    assert limits.of(["a"]) == (split.size - 1, split.size - 1)
    limits.doubt()
    assert limits.of(["a"]) == (UNBOUNDED, whole.size // 2)
    limits.configure("a", 5_000)
    limits.configure("b", 4_000)
    assert limits.of(["a", "b"]) == (4_000, 4_000)
    refuse(limits, whole)
    limits.doubt()
    assert not limits.configure("a", 5_000)
    assert limits.of(["a"]) == (5_000, whole.size // 2)
