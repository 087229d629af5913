"""Loops without a partition of their own help with the one that asks for most."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.spare_loops import MORE, SpareLoops

HEARTBEATS, BUSY, OTHER = (TopicPartition(topic, 0) for topic in ("__heartbeats", "flights", "weather"))


def machine_of(*sources: TopicPartition) -> FlowMachine:
    machine = FlowMachine(FlowConfig(fetch_partition_bytes=1000))
    machine.assign(
        Assignment(source=source, destinations=(source,), bucket=0, position=0) for source in sources
    )
    return machine


def test_they_move_to_the_partition_whose_answers_are_full_and_stay_while_another_asks_for_little_more() -> (
    None
):
    machine = machine_of(HEARTBEATS, BUSY)
    loops = SpareLoops(machine.partitions)
    few = {1: [BUSY, HEARTBEATS]}
    loops.spread(few)
    assert loops.read == {1: HEARTBEATS}
    assert not loops.move()
    machine.partitions[BUSY].fetch_bytes = 1000 * MORE
    assert loops.move()
    loops.spread(few)
    assert loops.read == {1: BUSY}
    machine.partitions[HEARTBEATS].fetch_bytes = 1000 * MORE + 1
    assert not loops.move()
    machine.partitions[HEARTBEATS].fetch_bytes = 1000 * MORE * MORE
    assert loops.move()


def test_they_leave_a_partition_that_went_elsewhere() -> None:
    machine = machine_of(BUSY, OTHER)
    loops = SpareLoops(machine.partitions)
    loops.spread({1: [BUSY], 2: [OTHER]})
    assert loops.read == {1: BUSY, 2: OTHER}
    loops.spread({2: [BUSY, OTHER]})
    assert loops.read == {2: OTHER}
    machine.release([OTHER])
    loops.spread({2: [BUSY]})
    assert loops.read == {2: BUSY}
    machine.release([BUSY])
    assert not loops.move()
