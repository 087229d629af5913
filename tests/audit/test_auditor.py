"""Topics that an audit is to look at, and that no source has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.types import TopicPartition
from mirrormaker.audit import auditor
from mirrormaker.audit.auditor import AuditOrder, audit_routes
from mirrormaker.audit.findings import Difference, DifferenceKind, Findings
from mirrormaker.audit.outcome import PartitionAudit, RouteAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.topology.model import RouteSpec, Topology
from tests.audit.views import ONE, OTHER, TO, exactly_once_view, lane
from tests.topology.files import CLUSTERS, load

ROUTES = """\
routes:
  - {name: first, from: a, to: b, topics: {include: ["t[.].*"]}}
  - {name: second, from: b, to: c, topics: {include: ["t[.].*", "a[.].*"]}}
  - {name: third, from: c, to: a, topics: {include: [other]}}
"""


@pytest.mark.parametrize(
    ("topics", "problems"),
    [
        ((), [None, None, None]),
        (("t.x",), [None, None]),
        (("t.x", "a.t.x"), [None, None]),
        (("t.nope",), ["cluster 'a' has no topic 't.nope'", "cluster 'b' has no topic 't.nope'"]),
        (("t.x", "a.nope"), [None, "cluster 'b' has no topic 'a.nope'"]),
    ],
)
def test_a_topic_that_no_source_has_is_not_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...], problems: list[str | None]
) -> None:
    topology = load(tmp_path, CLUSTERS + ROUTES)
    monkeypatch.setattr(auditor, "_audit_route", _audited({"a": "t.x", "b": "a.t.x", "c": "other"}))
    audits = asyncio.run(audit_routes(topology, AuditOrder(topics=topics)))
    assert [audit.problem for audit in audits] == problems


def _audited(there: dict[str, str]) -> object:
    """Audits of routes whose sources have one topic each."""

    async def audit_route(_: Topology, route: RouteSpec, order: AuditOrder) -> RouteAudit:
        topic = there[route.source]
        taken = [topic] if not order.topics or topic in order.topics else []
        return RouteAudit(
            route=route.name,
            source=route.source,
            destination=route.destination,
            is_deep=False,
            partitions=[
                PartitionAudit(source=TopicPartition(each, 0), window=Range(0, 0), findings=Findings())
                for each in taken
            ],
        )

    return audit_route


@pytest.mark.parametrize(
    ("is_deep", "untold", "are_kept", "problem"),
    [
        (True, {}, True, None),
        (False, {"untold_destinations": {TO.topic}}, True, None),
        (True, {"untold_destinations": {"other"}}, True, None),
        (True, {"untold_destinations": {TO.topic}}, False, "aggregate jfk.flights"),
        (True, {"untold_sources": {"flights"}}, False, "jfk flights"),
    ],
)
def test_where_settings_are_not_told_what_differs_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
    is_deep: bool,
    untold: dict[str, Any],
    are_kept: bool,
    problem: str | None,
) -> None:
    """Compaction would be all there is to it, or times that the log gives records."""

    async def partition(source: TopicPartition, *_: object) -> PartitionAudit:
        findings = Findings(records=2, equal=1)
        if source == ONE:
            findings.add(
                Difference(
                    kind=DifferenceKind.MISSING,
                    source=source,
                    source_offset=0,
                    destination=TO,
                    destination_offset=0,
                )
            )
        return PartitionAudit(source=source, window=Range(0, 2), findings=findings)

    reading = SimpleNamespace(partition=partition, bytes=0)
    monkeypatch.setattr(auditor, "LedgerAudit", lambda _: reading)
    monkeypatch.setattr(auditor, "DeepAudit", lambda *_: reading)
    view = replace(exactly_once_view({ONE: lane((0, 0, 2)), OTHER: lane((0, 2, 2))}, 4), **untold)
    audit = RouteAudit(route=view.route.name, source="jfk", destination="aggregate", is_deep=is_deep)  # type: ignore[arg-type]
    asyncio.run(auditor._audit_partitions(view, cast("Any", None), AuditOrder(is_deep=is_deep), audit))
    assert audit.has_differences == are_kept
    assert (audit.findings.records, audit.findings.equal) == (4, 2)
    told = "settings of 1 topics that differ are not told: "
    assert audit.problem == (None if problem is None else told + problem)
