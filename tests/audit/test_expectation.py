"""What a lane should have of a batch, and what records of it count as where the destination lacks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.records.batch import read_header
from broker.records.builder import BatchBuilder
from mirrormaker.audit.entries import Entry
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import Page

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
