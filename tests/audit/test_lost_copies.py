"""What of the copies of a lane the destination has no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_runs import Pass, passes_of
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import Page
from tests.audit.views import ONE, TO, exactly_once_view, lane

ABSENT: Mapping[str, Any] = {"to_ends": {}, "to_starts": {}, "to_reached": {}}
AGAIN = lane((0, 0, 10), (0, 10, 10))
"""Copied twice, as after a seek."""


def judged(known: list[Pass], end: int, **changes: Any) -> Findings:
    view = replace(exactly_once_view({ONE: known}, end), **changes)
    return asyncio.run(LedgerAudit(view).partition(ONE, ())).findings


@pytest.mark.parametrize(
    ("start", "equal", "gone"), [(0, 10, 0), (5, 10, 0), (10, 10, 0), (14, 6, 4), (20, 0, 10)]
)
def test_records_that_were_copied_twice_are_gone_with_their_last_copies(
    start: int, equal: int, gone: int
) -> None:
    findings = judged(AGAIN, 20, to_starts={TO: start})
    assert (findings.records, findings.equal, findings.has_differences) == (10, equal, False)
    assert findings.outcomes[Outcome.GONE_AT_DESTINATION] == gone


@pytest.mark.parametrize(
    ("starts", "equal", "gone"),
    [((0, 0), 10, 0), ((0, 2), 10, 0), ((4, 2), 6, 4), ((10, 0), 2, 8), ((10, 2), 0, 10)],
)
def test_a_record_that_was_parked_and_copied_after_all_is_gone_with_the_last_of_both(
    starts: tuple[int, int], equal: int, gone: int
) -> None:
    """As letters expire."""
    letters = TopicPartition("jfk.flights.dead-letters", 0)
    places = dict(zip((TO, letters), starts, strict=True))
    view = exactly_once_view({ONE: lane((0, 0, 4), (6, 4, 4), (4, 8, 2))}, 10)
    findings = judged(
        view.passes[ONE, TO],
        10,
        lanes={ONE: replace(view.lanes[ONE], destinations=(TO, letters), parked_lane=1)},
        passes={**view.passes, (ONE, letters): lane((4, 0, 2))},
        indexes={**view.indexes, letters: DestinationIndex(lane((4, 0, 2)))},
        letter_topics=frozenset({letters.topic}),
        to_starts=places,
        to_ends={TO: 10, letters: 2},
        to_reached={TO: 10, letters: 2},
    )
    assert (findings.records, findings.equal, findings.has_differences) == (10, equal, False)
    assert findings.outcomes[Outcome.GONE_AT_DESTINATION] == gone


def test_records_whose_last_copies_the_destination_lost_are_missing_though_their_first_ones_are_deleted() -> (
    None
):
    findings = judged(AGAIN, 15, to_starts={TO: 10}, to_reached={TO: 15})
    assert [(each.source_offset, each.destination_offset, each.count) for each in findings.differences] == [
        (5, 15, 5)
    ]
    assert (findings.records, findings.equal) == (10, 5)
    assert findings.outcomes[Outcome.GONE_AT_DESTINATION] == 0


def test_of_a_partition_that_is_not_there_each_record_is_missing_once_and_the_first_is_named() -> None:
    findings = judged(AGAIN, 20, **ABSENT)
    assert [(each.source_offset, each.count) for each in findings.differences] == [(0, 10)]
    assert (findings.records, findings.equal) == (10, 0)
    page = Page(0)
    for run in ((2, 0, 2), (6, 2, 2), (9, 4, 1)):
        page.add_run(*run)
    findings = judged(passes_of([page]), 5, windows={ONE: Range(5, 10)}, **ABSENT)
    assert [(each.source_offset, each.count) for each in findings.differences] == [(6, 2), (9, 1)]
    assert (findings.records, findings.equal) == (3, 0)
