"""Stretches that are read on both sides: what is found, and how much of them is held meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest

from broker.records.batch import read_header
from broker.types import TopicPartition
from mirrormaker.audit import alignment, lane_comparison
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.entries import Entry, Repeaters
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_comparison import LaneComparison
from mirrormaker.audit.lane_runs import Pass, passes_of
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.stretch_reading import StretchReading
from mirrormaker.audit.stretches import Stretch
from mirrormaker.ledger.page import Page
from mirrormaker.topology.model import Delivery
from tests.records.samples import NOW_MS, Sample, build

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
BATCH, WINDOW, PAIRS_MAX = 10, 20, 100
HELD_MAX = 2 * (WINDOW + BATCH) + 2 * (PAIRS_MAX + BATCH)
COUNT = 2_000


class Log:
    """Records at the offsets that they have in it, read a batch at a time."""

    log_start = 0

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self.comparison: LaneComparison | None = None
        self.held_most = 0

    async def entries(self) -> AsyncGenerator[Entry]:
        for first in range(0, len(self._values), BATCH):
            assert self.comparison is not None
            self.held_most = max(self.held_most, self.comparison.held)
            values = self._values[first : first + BATCH]
            batch = build([Sample(NOW_MS + each, b"%d" % each, b"%d" % each, []) for each in values])
            batch[:8] = first.to_bytes(8)
            header = read_header(batch)
            yield Entry(memoryview(batch), header, header.next_offset)


def compare(source: Log, to: Log, known: Pass | None, counts: tuple[int, int], **terms: Any) -> Findings:
    findings = Findings()
    own = LaneTerms(source=SOURCE, destination=DESTINATION, delivery=Delivery.EXACTLY_ONCE, **terms)
    index = DestinationIndex([] if known is None else [known])
    source.comparison = to.comparison = comparison = LaneComparison(own, findings, known, index)
    stretch = Stretch(source=Range(0, counts[0]), to=Range(0, counts[1]), known=known, repeated_to=0)

    async def name() -> None:
        comparison.strangers.name({})

    reading = StretchReading(stretch, comparison, Expectation(known=known), None, Repeaters(), name)
    asyncio.run(reading.read(cast("Any", source), cast("Any", to)))
    findings.sort()
    return findings


def page(*runs: tuple[int, int, int]) -> Page:
    made = Page(runs[0][0])
    for run in runs:
        made.add_run(*run)
    made.cover(runs[-1][0] + runs[-1][2])
    return made


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "WINDOW", WINDOW)
    monkeypatch.setattr(lane_comparison, "PAIRS_MAX", PAIRS_MAX)
    monkeypatch.setattr(lane_comparison, "PAIRS_KEPT", 2 * WINDOW)


def test_records_that_differ_keep_nothing_else_in_memory() -> None:
    values = list(range(COUNT))
    source, to = Log(values), Log([values[0], 9_000, *values[2:1_000], 9_001, *values[1_001:]])
    (known,) = passes_of([page((0, 0, COUNT))])
    findings = compare(source, to, known, (COUNT, COUNT))
    told = [(each.kind.value, each.source_offset, each.destination_offset) for each in findings.differences]
    assert (told, findings.equal) == ([("altered", 1, 1), ("altered", 1_000, 1_000)], COUNT - 2)
    assert max(source.held_most, to.held_most) <= 2 * BATCH + 4


def test_records_of_others_are_let_go_and_leave_what_differs_as_it_is() -> None:
    """Ten of others before each ten of the lane; one of the lane is altered, far from the next that is."""
    values = list(range(COUNT))
    there = [
        each for first in range(0, COUNT, 10) for each in (*range(5_000, 5_010), *values[first : first + 10])
    ]
    there[15] = there[2_015] = 9_000
    source, to = Log(values), Log(there)
    (known,) = passes_of([page(*((first, 2 * first + 10, 10) for first in range(0, COUNT, 10)))])
    findings = compare(source, to, known, (COUNT, len(there)), is_exclusive=False)
    told = [(each.kind.value, each.source_offset, each.destination_offset) for each in findings.differences]
    assert told == [("altered", 5, 15), ("altered", 1_005, 2_015)]
    assert findings.outcomes == {Outcome.OTHERS: COUNT}
    assert max(source.held_most, to.held_most) <= HELD_MAX


@pytest.mark.parametrize("is_known", [True, False])
def test_what_stands_behind_the_last_record_is_named_as_it_is_read(is_known: bool) -> None:
    source, to = Log(range(10)), Log(range(COUNT))
    known = passes_of([page((0, 0, 10))])[0] if is_known else None
    findings = compare(source, to, known, (10, COUNT))
    assert [(each.kind.value, each.destination_offset, each.count) for each in findings.differences] == [
        ("unexplained", 10, COUNT - 10)
    ]
    assert findings.equal == 10
    assert to.held_most <= HELD_MAX


def test_a_stretch_that_the_ledger_lacks_meets_its_copies_however_long_it_is() -> None:
    source, to = Log(range(COUNT)), Log(range(COUNT))
    (known,) = passes_of([page((0, 0, 10)), page((COUNT - 10, COUNT - 10, 10))])
    findings = compare(source, to, known, (COUNT, COUNT))
    assert (findings.differences, findings.equal) == ([], COUNT)
    assert max(source.held_most, to.held_most) <= HELD_MAX


@pytest.mark.parametrize("is_there", [True, False])
def test_the_last_records_without_a_ledger_may_stand_behind_many_of_others(is_there: bool) -> None:
    others = range(5_000, 6_000)
    source, to = Log(range(10)), Log([*others, *(range(10) if is_there else [])])
    findings = compare(source, to, None, (10, len(others) + 10), is_exclusive=False)
    assert findings.equal == (10 if is_there else 0)
    assert [each.kind.value for each in findings.differences] == ([] if is_there else ["missing"])
    assert findings.outcomes == {Outcome.OTHERS: 1_000}
    assert to.held_most <= HELD_MAX
