"""A long way and small batches: the window binds, and what waits before it is put together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from broker.errors import ErrorCode
from broker.records.batch import iterate_batches
from broker.records.reader import read_records
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FlowConfig,
    Gathering,
    ProduceAnswer,
    ProduceCommand,
)
from mirrormaker.flow.lane import BATCHES_REMEMBERED, LaneState
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.window_watch import RELEASE_SPAN_MS, WindowWatch
from tests.flow.test_machine import SIZE_MAX, build_batch

SOURCE, COPY = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
LOOK_MS, STEP_MS = 250, 10
PIECE_BYTES = 64 << 10
BATCH_RECORDS = 5
CONFIG = FlowConfig(bound=Gathering(batch_bytes=PIECE_BYTES, answer_bytes=PIECE_BYTES, linger_ms=30))


@dataclass
class LongWay:
    """A machine with one partition, and a destination that answers a round trip later, or more slowly."""

    round_trip_ms: int = 150
    answers_after_ms: int = 150
    batches_each_step: int = 5
    now_ms: int = 0
    fetched_ms: int = 0
    produced: int = 0
    machine: FlowMachine = field(default_factory=lambda: FlowMachine(CONFIG))
    watch: WindowWatch = field(default_factory=WindowWatch)
    under_way: deque[tuple[int, ProduceCommand]] = field(default_factory=deque)
    arrived: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine.set_leaders({COPY: BrokerId(1)})
        self.machine.assign([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)])
        for key in self.machine.ready(0).producers:
            self.machine.set_producer(key, ProducerIdentity(1, 0))

    @property
    def partition(self) -> Partition:
        return self.machine.partitions[SOURCE]

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // STEP_MS):
            self.now_ms += STEP_MS
            self.produced += self.batches_each_step * BATCH_RECORDS
            self._fetch()
            self._answer()
            for command in self.machine.ready(self.now_ms).requests:
                self.under_way.append((self.now_ms + self.answers_after_ms, command))
            if self.now_ms % LOOK_MS == 0:
                partitions = self.machine.partitions.values()
                found = self.watch.look(partitions, PIECE_BYTES, self.round_trip_ms, self.now_ms)
                self.machine.gather(partition.source for partition in found)

    def _fetch(self) -> None:
        plan = self.machine.plan_fetch([SOURCE], 1, self.now_ms)
        if plan.linger_ms and self.now_ms - self.fetched_ms < plan.linger_ms:
            return  # there is never as much as is worth to be sent at once
        self.fetched_ms = self.now_ms
        for position in plan.positions:
            records = bytearray()
            for offset in range(position.offset, self.produced, BATCH_RECORDS):
                if len(records) < position.max_bytes:
                    records += build_batch(offset, BATCH_RECORDS)
            answer = FetchedPartition(
                source=SOURCE, offset=position.offset, records=records, source_end=self.produced
            )
            self.machine.fetched([answer], len(records), self.now_ms)

    def _answer(self) -> None:
        while self.under_way and self.under_way[0][0] <= self.now_ms:
            _, command = self.under_way.popleft()
            for _, records in command.parts():
                for at, header in iterate_batches(records):
                    batch = memoryview(records)[at : at + header.size]
                    self.arrived += [
                        int(record.value or b"") for record in read_records(batch, header, size_max=SIZE_MAX)
                    ]
            self.machine.answered(command, {COPY: ProduceAnswer(ErrorCode.NONE)}, self.now_ms)


def test_small_batches_are_gathered_where_the_window_binds_and_all_arrive_once_in_order() -> None:
    way = LongWay()
    way.run(500)
    assert len(way.arrived) <= 5 * BATCH_RECORDS * 4, "five batches a round trip"
    way.run(4_000)
    assert way.partition.is_bound
    assert way.watch.bound == 1
    assert way.arrived == list(range(len(way.arrived)))
    assert len(way.arrived) > way.produced * 0.9


@pytest.mark.parametrize(
    ("answers_after_ms", "batches_each_step"),
    [(600, 5), (150, 0)],
    ids=["it is the destination that is slow", "there is nothing to send"],
)
def test_batches_stay_as_they_are_where_bigger_ones_would_not_help(
    answers_after_ms: int, batches_each_step: int
) -> None:
    way = LongWay(answers_after_ms=answers_after_ms, batches_each_step=batches_each_step)
    way.run(4_000)
    assert not way.partition.is_bound


def test_gathering_ends_once_the_source_has_few_batches() -> None:
    way = LongWay()
    way.run(2_000)
    assert way.partition.is_bound
    way.batches_each_step = 0
    way.run(2 * RELEASE_SPAN_MS + LOOK_MS)
    assert not way.partition.is_bound
    assert way.watch.bound == 0
    assert way.arrived == list(range(way.produced))


def full_of_little(number: int) -> Partition:
    partition = Partition(TopicPartition("t", number), [TopicPartition("copy", number)], 0, 0, SIZE_MAX)
    (lane,) = partition.lanes
    lane.enter(LaneState.COPYING)
    for index in range(BATCHES_REMEMBERED + 1):
        records = build_batch(index * BATCH_RECORDS, BATCH_RECORDS)
        lane.queue.append(
            Chunk(
                records=records,
                batches=1,
                frame=Frame(len(records)),
                first_offset=index * BATCH_RECORDS,
                next_offset=(index + 1) * BATCH_RECORDS,
                first_timestamp=0,
                max_timestamp=0,
                count=BATCH_RECORDS,
                size=len(records),
            )
        )
    lane.sent = BATCHES_REMEMBERED
    return partition


def test_what_binds_some_partitions_of_a_route_binds_all_that_are_full_of_little() -> None:
    watch, first, second, third = WindowWatch(), *map(full_of_little, range(3))

    def look(now_ms: int, *partitions: Partition) -> list[Partition]:
        first.copied_chunks = BATCHES_REMEMBERED * now_ms // 150
        found = watch.look(partitions, PIECE_BYTES, 150, now_ms)
        for partition in found:
            partition.is_bound = True
        return found

    assert look(0, first) == []
    assert look(LOOK_MS, first, second) == []
    assert look(2 * LOOK_MS, first, second) == [first, second]
    assert look(3 * LOOK_MS, first, second, third) == []
    assert look(4 * LOOK_MS, first, second, third) == [third], "though the way is full by now"
