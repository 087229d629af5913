"""What the ledger knows of the lanes of a route."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_lanes import read_lanes, severed_from
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.ledger.current_lanes import lane_between
from mirrormaker.ledger.lane_id import page_record
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.view import LedgerView
from tests.audit.views import ONE, TO, exactly_once_view


@pytest.mark.parametrize("has_ids", [True, False])
def test_what_has_come_to_a_topic_that_was_made_anew_is_still_to_be_copied_though_the_source_tells_no_ids(
    has_ids: bool,
) -> None:
    """While it stands for that. Of the former one ten records had been copied."""
    former, now = (TopicId(UUID(int=each)) if has_ids else NO_TOPIC_ID for each in (1, 2))
    source: Any = SimpleNamespace(cluster_id="jfk", topics={ONE.topic: SimpleNamespace(topic_id=former)})
    page = Page(0)
    page.add_run(0, 0, 10)
    page.cover(10)
    ledger = LedgerView()
    ledger.apply(*map(encode_document, page_record(lane_between(source, ONE, TO), page)))
    source.topics[ONE.topic].topic_id = now
    view = exactly_once_view({ONE: []}, 10)
    passes, severed, indexes = read_lanes(
        ledger, view.route, source, view.lanes, [TO], severed_from({}, [ONE])
    )
    view = replace(
        view,
        passes=passes,
        severed=severed,
        indexes=indexes,
        made_anew=frozenset({ONE}),
        positions={ONE: 0},
        windows={ONE: Range(0, 12)},
    )
    audited = asyncio.run(LedgerAudit(view).partition(ONE, ()))
    assert (audited.problem, audited.findings.equal) == (None, 0)
    lost = {} if has_ids else {Outcome.LOST_AT_SOURCE: 10}
    assert +audited.findings.outcomes == {Outcome.PENDING: 12, **lost}
