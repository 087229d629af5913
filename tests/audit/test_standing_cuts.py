"""Partitions that stand because their source lost what had been copied."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from broker.types import TopicPartition
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.standing_cuts import standing_cuts, standing_doubts
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.reconcile.halts import Halt, Release, halt_key, halt_value
from mirrormaker.topology.model import RouteName
from tests.audit.views import ONE, exactly_once_view, lane

ROUTE = RouteName("a")
UNKNOWN = Trouble(
    kind=TroubleKind.SOURCE_TRUNCATED, source=ONE, position=9, resume_at=9, problem="another log"
)


def halt(trouble: Trouble, released: Release | None = None) -> Halt:
    return Halt(trouble=trouble, at_ms=7, by="one", stops_route=False, digest="x", released=released)


def test_what_was_lost_is_known_or_in_doubt_until_it_is_released() -> None:
    known, done, gap = (TopicPartition("flights", number) for number in (11, 12, 13))
    halts = [
        halt(UNKNOWN),
        halt(replace(UNKNOWN, source=known, resume_at=4, lost=(4, 9))),
        halt(replace(UNKNOWN, source=done), Release(at_ms=9, by="ops@jfk")),
        halt(replace(UNKNOWN, source=gap, kind=TroubleKind.SOURCE_GAP)),
    ]
    control = [(halt_key(ROUTE, each.trouble.source), halt_value(each)) for each in halts]
    cuts = standing_cuts(control, ROUTE)
    assert {source: (cut.at, cut.truncation.lost) for source, cut in cuts.items()} == {
        known: (4, Range(4, 9))
    }
    assert standing_doubts(control, ROUTE) == {ONE: "another log"}
    assert standing_doubts(control, RouteName("b")) == {}


def test_an_audit_by_the_ledger_says_that_it_cannot_tell_what_the_source_lost() -> None:
    view = exactly_once_view({ONE: lane((0, 0, 9))}, 9)
    sure = asyncio.run(LedgerAudit(view).partition(ONE, ()))
    assert sure.problem is None
    doubtful = asyncio.run(LedgerAudit(replace(view, doubts={ONE: "another log"})).partition(ONE, ()))
    assert doubtful.problem is not None
    assert "another log" in doubtful.problem
