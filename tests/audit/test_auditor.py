"""Topics that an audit is to look at, and that no source has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.types import TopicPartition
from mirrormaker.audit import auditor
from mirrormaker.audit.auditor import AuditOrder, audit_routes
from mirrormaker.audit.findings import Findings
from mirrormaker.audit.outcome import PartitionAudit, RouteAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.topology.model import RouteSpec, Topology
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
