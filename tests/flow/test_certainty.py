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
