"""Source offsets that neither a page nor a note tells of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from broker.types import TopicPartition
from mirrormaker.audit import untold_records
from mirrormaker.audit.entries import Entry
from mirrormaker.audit.findings import DifferenceKind, Findings, Outcome
from mirrormaker.audit.lane_runs import Pass, passes_of
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.ranges import Range, total
from mirrormaker.audit.untold_records import UntoldRecords
from mirrormaker.ledger.page import Page
from mirrormaker.topology.model import Delivery
from tests.audit.views import ONE, TO, exactly_once_view, lane


async def outcomes(_: UntoldRecords, __: object, within: Range) -> dict[int, Outcome | TopicPartition]:
    """Every third offset is a marker, every third of a record that a filter lets go."""
    return {each: TO if each % 3 else Outcome.LEFT_OUT for each in range(*within) if each % 3 != 2}


def test_only_records_that_were_due_are_missing_and_what_is_not_looked_at_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UntoldRecords, "_outcomes", outcomes)
    monkeypatch.setattr(untold_records, "STRETCHES_READ_MAX", 2)
    monkeypatch.setattr(untold_records, "STRETCH_READ_MAX", 6)
    known = lane((0, 0, 3), (6, 3, 3), (18, 6, 3), (24, 9, 1))
    view = exactly_once_view({ONE: known}, 10)
    audit: PartitionAudit = asyncio.run(LedgerAudit(view).partition(ONE, ()))
    told: list[Any] = [(each.source_offset, each.destination_offset) for each in audit.findings.differences]
    assert told == [(4, 3), (10, 6), (13, 6)]
    assert audit.findings.outcomes[Outcome.LEFT_OUT] == 6
    assert audit.findings.outcomes[Outcome.UNRECORDED] == 6
    assert audit.problem is not None
    assert "6 offsets" in audit.problem


def test_at_most_once_what_was_lost_is_told_where_nobody_else_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UntoldRecords, "_outcomes", outcomes)
    view = exactly_once_view({ONE: lane((0, 0, 3), (6, 3, 3))}, 6)
    findings = Findings()
    asyncio.run(UntoldRecords(view).count_lost(ONE, [Range(3, 6)], findings))
    assert +findings.outcomes == {Outcome.LOST: 1, Outcome.LEFT_OUT: 2}


@pytest.mark.parametrize(
    ("known", "end", "pending"),
    [
        (lane((0, 0, 3), (12, 6, 3)), 9, 3),  # between the two, where three records have room
        (lane((0, 0, 3), (12, 3, 3)), 9, 0),  # there is none
        (lane((0, 0, 3), (12, 10, 3)), 13, 3),
        (lane((0, 0, 3), (12, 4, 3)), 9, 1),
    ],
)
@pytest.mark.parametrize("is_lossy", [True, False])
def test_what_may_stand_behind_an_open_transaction_is_neither_lost_nor_missing(
    monkeypatch: pytest.MonkeyPatch, known: list[Pass], end: int, pending: int, is_lossy: bool
) -> None:
    """Of nine offsets that no page tells of, those of three records are due."""
    monkeypatch.setattr(UntoldRecords, "_outcomes", outcomes)
    delivery = Delivery.AT_MOST_ONCE if is_lossy else Delivery.EXACTLY_ONCE
    view = exactly_once_view({ONE: known}, end)
    view = replace(view, route=replace(view.route, delivery=delivery), to_ends={TO: 3})
    findings = asyncio.run(LedgerAudit(view).partition(ONE, ())).findings
    assert findings.outcomes[Outcome.PENDING] == pending
    left = findings.outcomes[Outcome.LOST] if is_lossy else findings.differing[DifferenceKind.MISSING]
    assert left == 3 - pending


@pytest.mark.parametrize(("last", "outcome"), [(8, Outcome.LEFT_OUT), (7, Outcome.PENDING)])
def test_the_last_offset_alone_is_still_to_come_only_where_it_is_a_record(
    monkeypatch: pytest.MonkeyPatch, last: int, outcome: Outcome
) -> None:
    monkeypatch.setattr(UntoldRecords, "_outcomes", outcomes)
    view = replace(exactly_once_view({ONE: lane((0, 0, last))}, last), windows={ONE: Range(0, last + 1)})
    findings = asyncio.run(LedgerAudit(view).partition(ONE, ())).findings
    assert +findings.outcomes == {outcome: 1}


def test_the_last_offsets_of_partitions_are_looked_at_over_one_connection_and_of_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(untold_records, "LAST_READ_MAX", 3)
    read: list[tuple[TopicPartition, str]] = []

    async def entries(reader: LogReader) -> AsyncGenerator[Entry]:
        read.append((reader._partition, reader.lane))
        for each in ():
            yield each

    monkeypatch.setattr(LogReader, "entries", entries)
    sources = [TopicPartition("flights", number) for number in range(4)]
    view = exactly_once_view({each: lane((0, 2 * each.partition, 2)) for each in sources}, 8)
    view = replace(view, windows=dict.fromkeys(sources, Range(0, 3)))

    async def judge() -> list[Outcome]:
        audit = LedgerAudit(view)
        found = [await audit.partition(each, ()) for each in sources]
        return [outcome for each in found for outcome in +each.findings.outcomes]

    assert asyncio.run(judge()) == [Outcome.LEFT_OUT] * 3 + [Outcome.PENDING]
    assert [partition for partition, _ in read] == sources[:3]
    assert len({name for _, name in read}) == 1


@pytest.mark.timeout(60)
def test_very_many_records_that_may_stand_behind_an_open_transaction_are_told_in_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a place of its own."""
    count = 20_000
    monkeypatch.setattr(UntoldRecords, "_outcomes", outcomes)
    page = Page(0)
    for number in range(count):
        page.add_run(3 * number, 2 * number, 1)
    page.cover(3 * count)
    view = replace(exactly_once_view({ONE: passes_of([page])}, 2 * count), to_ends={TO: 3})
    findings = Findings()
    holes = [Range(0, 3 * count)]
    monkeypatch.setattr(untold_records, "STRETCH_READ_MAX", holes[0].length)
    due = asyncio.run(UntoldRecords(view).due(ONE, holes, findings))
    assert findings.outcomes[Outcome.PENDING] == count - 1
    assert sum(map(total, due.records.values())) == 1, "room for it can be read"
