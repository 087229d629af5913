"""Source offsets that neither a page nor a note tells of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mirrormaker.audit import untold_records
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.untold_records import UntoldRecords
from tests.audit.views import ONE, exactly_once_view, lane


async def outcomes(_: UntoldRecords, __: object, within: Range) -> dict[int, Outcome | None]:
    """Every third offset is a marker, every third of a record that a filter lets go."""
    return {each: None if each % 3 else Outcome.LEFT_OUT for each in range(*within) if each % 3 != 2}


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
    assert findings.outcomes == {Outcome.LOST: 1, Outcome.LEFT_OUT: 2, Outcome.UNRECORDED: 0}
