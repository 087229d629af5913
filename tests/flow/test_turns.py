"""What is decoded, or handed to functions, goes a turn of the event loop at a time; nothing of it differs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.client.aborted import AbortedTransaction
from broker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Codec
from broker.records.record import Record
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import DeepReason, Frame
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig, Remainder
from mirrormaker.flow.intake import TURN_BYTES, TURN_NS_PER_BYTE, IntakeConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from tests.flow.test_deep_intake import config, numbers_of
from tests.flow.test_intake import build, records_of

SOURCES = [TopicPartition("orders", number) for number in range(3)]


def large(base_offset: int, *, flags: int = 0, producer_id: int = 77) -> bytearray:
    """A batch of ten records that takes a turn."""
    size = TURN_BYTES // 10
    return build(base_offset, 10, codec=Codec.NONE, size=size, flags=flags, producer_id=producer_id)


def marker(offset: int, producer_id: int) -> bytearray:
    flags = CONTROL_FLAG | TRANSACTIONAL_FLAG
    return build(offset, 1, codec=Codec.NONE, flags=flags, producer_id=producer_id)


@pytest.fixture
def machine() -> FlowMachine:
    machine = FlowMachine(FlowConfig(deep=True))
    machine.assign(
        Assignment(source=source, destinations=(source._replace(topic="a.orders"),), bucket=0, position=0)
        for source in SOURCES
    )
    machine.set_leaders({source._replace(topic="a.orders"): BrokerId(0) for source in SOURCES})
    for number, key in enumerate(machine.ready(0).producers):
        machine.set_producer(key, ProducerIdentity(number, 0))
    return machine


def turns(machine: FlowMachine, *answers: FetchedPartition) -> list[list[int]]:
    """Take the answers in; after each turn, the positions."""
    positions, size = [], sum(len(answer.records) for answer in answers)
    remainder: Remainder | None = machine.fetched(answers, size, 0)
    while True:
        positions.append([machine.partitions[source].position for source in SOURCES])
        if remainder is None:
            return positions
        remainder = machine.take_on(remainder, 0)


def test_a_producer_that_aborts_and_then_commits_has_its_records_copied_in_a_later_turn(
    machine: FlowMachine,
) -> None:
    """Its marker was seen in the turn before."""
    aborted = build(0, producer_id=1, flags=TRANSACTIONAL_FLAG) + marker(3, 1) + large(4)
    committed = build(14, producer_id=1, flags=TRANSACTIONAL_FLAG) + marker(17, 1) + large(18)
    again = build(28, producer_id=1, flags=TRANSACTIONAL_FLAG) + large(31)
    open_still = build(41, producer_id=1, flags=TRANSACTIONAL_FLAG) + marker(44, 1) + build(45)
    answer = FetchedPartition(
        source=SOURCES[0],
        offset=0,
        records=aborted + committed + again + open_still,
        source_end=48,
        aborted=(AbortedTransaction(1, 0), AbortedTransaction(1, 28)),
    )
    assert len(turns(machine, answer)) > 3
    (lane,) = machine.partitions[SOURCES[0]].lanes
    offsets = [int(record.key[4:]) for chunk in lane.queue for record in records_of(chunk) if record.key]
    assert offsets == [*range(4, 17), *range(18, 28), *range(31, 41), *range(45, 48)]


def test_a_turn_is_for_all_partitions_of_an_answer(machine: FlowMachine) -> None:
    answers = [
        FetchedPartition(source=source, offset=0, records=large(0), source_end=10) for source in SOURCES
    ]
    assert turns(machine, *answers) == [[10, 0, 0], [10, 10, 0], [10, 10, 10]]


class Slow:
    """A function that takes its time with every record, and drops every fifth."""

    def __init__(self, turn_part: int) -> None:
        self.calls = 0
        self._ns = -(-TURN_BYTES * TURN_NS_PER_BYTE // turn_part)

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        self.calls += 1
        return [] if record.offset % 5 == 4 else [(0, record)]

    def called_ns(self) -> int:
        return self.calls * self._ns


@pytest.mark.parametrize(("turn_part", "most"), [(1, 1), (7, 7), (1_000, 100)])
def test_a_slow_function_ends_the_turn_within_a_batch_and_is_asked_once_of_each_record(
    turn_part: int, most: int
) -> None:
    answer, at, position, numbers, deep = build(0, 20) + build(20, 80), 0, 0, [], 0
    steps = Slow(turn_part)
    bounds: IntakeConfig = config(
        steps=steps, called_ns=steps.called_ns, deep_reason=DeepReason.TRANSFORMED, turn_bytes=TURN_BYTES
    )
    while True:
        before = steps.calls
        intake = take_in(answer[at:], position, bounds, Frame(len(answer)))
        assert 0 < steps.calls - before <= most
        numbers += numbers_of(intake.chunks)[0]
        deep += intake.deep.total()
        position = intake.position
        if intake.left_at is None:
            break
        at += intake.left_at
    assert (position, steps.calls, deep) == (100, 100, 2)
    assert numbers == [number for number in range(100) if number % 5 != 4]
