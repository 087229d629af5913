from __future__ import annotations

from broker.types import BrokerId
from mirrormaker.flow.certainty import RECHECK_MS, Certainty
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from tests.flow.test_machine import build_batch, destination_of, source_of

SOURCE = source_of(0)
DESTINATION = destination_of(SOURCE)


def test_nothing_is_fetched_or_sent_while_it_is_in_doubt_whose_the_partitions_are() -> None:
    is_in_doubt = True
    machine = FlowMachine(FlowConfig(), Hooks(admissions=(Certainty(lambda: is_in_doubt),)))
    machine.assign([Assignment(source=SOURCE, destinations=(DESTINATION,), bucket=0, position=0)])
    machine.set_leaders({DESTINATION: BrokerId(1)})
    for key in machine.ready(1_000).producers:
        machine.set_producer(key, ProducerIdentity(7, 0))
    batch = build_batch(0, 3)
    machine.fetched(
        [FetchedPartition(source=SOURCE, offset=0, records=batch, source_end=3)], len(batch), now_ms=1_000
    )
    ready = machine.ready(1_000)
    assert (ready.requests, ready.wake_at_ms) == ([], 1_000 + RECHECK_MS)
    assert machine.plan_fetch([SOURCE], 1, 1_000).positions == []
    is_in_doubt = False
    assert [position.offset for position in machine.plan_fetch([SOURCE], 1, 1_100).positions] == [3]
    (request,) = machine.ready(1_100).requests
    assert request.bytes == len(batch)


def test_it_is_asked_once_for_all_partitions_of_a_fetch() -> None:
    asked = 0

    def is_in_doubt() -> bool:
        nonlocal asked
        asked += 1
        return False

    sources = [source_of(number) for number in range(3)]
    machine = FlowMachine(FlowConfig(), Hooks(admissions=(Certainty(is_in_doubt),)))
    machine.assign(
        [
            Assignment(source=source, destinations=(destination_of(source),), bucket=0, position=0)
            for source in sources
        ]
    )
    machine.set_leaders({destination_of(source): BrokerId(1) for source in sources})
    for key in machine.ready(1_000).producers:
        machine.set_producer(key, ProducerIdentity(7, 0))
    asked = 0
    assert len(machine.plan_fetch(sources, 1, 1_001).positions) == len(sources)
    assert asked == 1
