"""What a lane should have of a batch, and what records of it count as where the destination lacks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.records.batch import read_header
from broker.records.builder import BatchBuilder
from mirrormaker.audit.entries import Entry
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range
from mirrormaker.flow.transit import PartitionSteps
from mirrormaker.flow.ways import ways_of
from mirrormaker.ledger.page import Page
from mirrormaker.steps.topic_steps import compile_steps
from mirrormaker.topology.model import PartitionPolicy, RecordErrorPolicy
from mirrormaker.topology.naming import compile_naming
from tests.topology.files import load_route

CARRIED = 77
"""Producer id of a mirror that writes to the source."""
WHOLE = Range(0, 10)


def batch(producer_id: int) -> Entry:
    """Ten records."""
    builder = BatchBuilder(size_max=1000, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    for number in range(WHOLE.next):
        builder.append(number, None, b"%d" % number)
    built = builder.build()
    return Entry(memoryview(built), read_header(built), WHOLE.next)


def known(*, is_placed: bool) -> Pass:
    """That offsets 2 and 3 were copied, and the others up to 5 were not."""
    page = Page(0)
    page.add_run(2, 100 if is_placed else None, 2)
    page.cover(6)
    return Pass([page])


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize(
    ("producer_id", "said", "outcome"),
    [
        (CARRIED, {"carried_ids": {CARRIED}}, Outcome.RETURNED),
        (1, {"notes": [WHOLE]}, Outcome.NOTED),
        (1, {"copied_to": 0}, Outcome.PENDING),
    ],
)
def test_what_the_ledger_has_a_copy_of_should_be_there_whatever_else_is_said_of_it(
    producer_id: int, said: Mapping[str, Any], outcome: Outcome, is_placed: bool
) -> None:
    def outcomes(**more: Any) -> list[Outcome | None]:
        return [item.outcome for item in Expectation(**said, **more).items(batch(producer_id), WHOLE)]

    assert outcomes() == [outcome] * 10
    places = known(is_placed=is_placed)
    assert outcomes(known=places) == [outcome] * 2 + [None] * 2 + [outcome] * 6
    by_function = outcomes(known=places, has_function=True)
    assert by_function == [outcome] * 2 + [Outcome.BY_FUNCTION] * 2 + [outcome] * 6


@pytest.mark.parametrize(
    ("policy", "settled"),
    [(RecordErrorPolicy.PARK, Outcome.PARKED), (RecordErrorPolicy.FAIL, Outcome.NOTED)],
)
def test_what_no_step_can_process_is_parked_only_where_no_note_and_no_position_says_otherwise(
    tmp_path: Path, policy: RecordErrorPolicy, settled: Outcome
) -> None:
    route = load_route(tmp_path, "topics: {include: [orders]}, transforms: [{drop: {fields: [secret]}}]")
    naming = compile_naming(route.source, route.topics)
    compiled = compile_steps(route, naming, "orders")
    lanes = ways_of(route, naming, compiled.topic, ()).lanes(0, lambda _: 1)
    expected = Expectation(
        steps=PartitionSteps(compiled, lanes, PartitionPolicy.SAME, 0),
        on_record_error=policy,
        notes=[Range(2, 4)],
        copied_to=7,
    )
    assert expected.items(batch(1), WHOLE) == []
    assert expected.outcomes == {settled: 5, Outcome.NOTED: 2, Outcome.PENDING: 3} | (
        {Outcome.NOTED: 7} if settled is Outcome.NOTED else {}
    )
