"""What a lane should have of a batch, and what records of it count as where the destination lacks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.records.batch import read_header
from broker.records.builder import BatchBuilder
from mirrormaker.audit.entries import Entry
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.transit import PartitionSteps
from mirrormaker.flow.ways import LaneMap, ways_of
from mirrormaker.ledger.page import Page
from mirrormaker.steps.topic_steps import TopicSteps, compile_steps
from mirrormaker.topology.model import FailurePolicies, PartitionPolicy, RecordErrorPolicy
from mirrormaker.topology.naming import compile_naming
from tests.audit.views import ONE, exactly_once_view, lane
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


def lanes_of_steps(folder: Path, dropped: str = "fields") -> tuple[TopicSteps, LaneMap]:
    """A step that no record of a batch can be put through, but for `headers`, and dead letters."""
    transforms = f"transforms: [{{drop: {{{dropped}: [secret]}}}}]"
    route = load_route(folder, f"topics: {{include: [orders]}}, {transforms}, on: {{record_error: park}}")
    naming = compile_naming(route.source, route.topics)
    compiled = compile_steps(route, naming, "orders")
    return compiled, ways_of(route, naming, compiled.topic, ()).lanes(0, lambda _: 1)


def test_what_no_step_can_process_is_noted_or_still_to_come_where_there_are_no_letters(
    tmp_path: Path,
) -> None:
    compiled, lanes = lanes_of_steps(tmp_path)
    steps = PartitionSteps(compiled, lanes, PartitionPolicy.SAME, 0)
    expected = Expectation(steps=steps, notes=[Range(2, 4)], copied_to=7)
    assert expected.items(batch(1), WHOLE) == []
    assert expected.meets_errors
    assert expected.outcomes == {Outcome.NOTED: 7, Outcome.PENDING: 3}


def test_what_is_not_expected_is_told_once_though_it_was_read_by_a_pass_before(tmp_path: Path) -> None:
    compiled, lanes = lanes_of_steps(tmp_path)
    steps = PartitionSteps(compiled, lanes, PartitionPolicy.SAME, 0)
    expected = Expectation(steps=steps, told_to=6)
    assert expected.items(batch(1), WHOLE) == []
    assert expected.outcomes == {Outcome.NOTED: 4}
    returned = Expectation(returned=[Range(2, 8)], told_to=6)
    assert len(returned.items(batch(1), WHOLE)) == 4
    assert returned.outcomes == {Outcome.RETURNED: 2}


def test_what_no_step_can_process_is_due_as_a_letter_unless_a_note_stands_for_it_or_it_was_copied_before(
    tmp_path: Path,
) -> None:
    compiled, lanes = lanes_of_steps(tmp_path)
    assert lanes.parked_lane is not None
    policies = FailurePolicies(record_error=RecordErrorPolicy.PARK)

    def expected(lane: int, **more: Any) -> list[tuple[int, Outcome | None]]:
        expectation = Expectation(
            lane=lane,
            steps=PartitionSteps(compiled, lanes, PartitionPolicy.SAME, 0),
            letters=Aside(policies=policies, parked_lane=lanes.parked_lane),
            notes=[Range(4, 6)],
            copied_to=8,
            **more,
        )
        return [(item.offset, item.outcome) for item in expectation.items(batch(1), WHOLE)]

    copied = known(is_placed=True)
    noted, due = [(4, Outcome.NOTED), (5, Outcome.NOTED)], [(6, None), (7, None)]
    rest = [*noted, *due, (8, Outcome.PENDING), (9, Outcome.PENDING)]
    assert expected(0) == []
    assert expected(lanes.parked_lane) == [(each, None) for each in range(4)] + rest
    assert expected(lanes.parked_lane, copied=[copied]) == [(0, None), (1, None), *rest]
    as_letters = expected(lanes.parked_lane, copied=[copied], parked=[copied])
    assert as_letters == [(each, None) for each in range(4)] + rest


def test_what_steps_can_process_by_now_is_there_as_its_letter_and_as_a_copy_where_it_was_copied_since(
    tmp_path: Path,
) -> None:
    compiled, lanes = lanes_of_steps(tmp_path, "headers")
    assert lanes.parked_lane is not None
    policies = FailurePolicies(record_error=RecordErrorPolicy.PARK)
    parked, copied = known(is_placed=True), lane((3, 200, 1))

    def expected(lane: int) -> list[int]:
        expectation = Expectation(
            lane=lane,
            steps=PartitionSteps(compiled, lanes, PartitionPolicy.SAME, 0),
            letters=Aside(policies=policies, parked_lane=lanes.parked_lane),
            copied=[*copied, parked],
            parked=[parked],
        )
        return [item.offset for item in expectation.items(batch(1), WHOLE)]

    assert expected(lanes.parked_lane) == [2, 3]
    assert expected(0) == [0, 1, 3, 4, 5, 6, 7, 8, 9], "no copy is due of 2"


def test_of_a_topic_that_no_step_is_for_no_letters_are_due(tmp_path: Path) -> None:
    """The route parks what its steps cannot process, of another topic."""
    steps = "{drop: {fields: [secret]}, topics: [orders]}"
    route = load_route(
        tmp_path, f"topics: {{include: [.*]}}, transforms: [{steps}], on: {{record_error: park}}"
    )
    naming = compile_naming(route.source, route.topics)
    lanes = ways_of(route, naming, naming.destination_of(ONE.topic), ()).lanes(0, lambda _: 1)
    view = replace(exactly_once_view({ONE: lane((0, 0, 2))}, 2), route=route, lanes={ONE: lanes})
    expectations = Expectations(view)
    due = {number: expectations.of(ONE, to, number) for number, to in view.data_lanes(ONE)}
    found = {number: len(each.items(batch(1), WHOLE)) for number, each in due.items()}
    assert found == {0: 10, lanes.parked_lane: 0}
