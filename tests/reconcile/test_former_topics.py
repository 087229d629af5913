"""Topics that were copied before a process began: found in the ledger, less those that somebody gave up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.cluster import Cluster
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.reconcile.former_topics import FormerTopics, settled_deletions
from mirrormaker.topology.model import RouteName, RouteTo, TransformSpec
from mirrormaker.topology.naming import compile_naming
from tests.plan.worlds import JFK, route

ROUTE = RouteName("jfk-to-aggregate")


def lane(topic: str, to: str, cluster: str | None = "id of jfk") -> LaneId:
    return LaneId(cluster, topic, "some id", 0, to, 0)


LANES = (
    lane("flights", "jfk.flights"),
    lane("flights-here", "jfk.flights-here"),
    lane("flights-of-another-route", "all"),
    lane("flights-routed", "late"),
    lane("flights-of-another-cluster", "jfk.flights-of-another-cluster", "id of lga"),
    lane("weather", "jfk.weather"),
)


def find(*, is_known: bool = True, problem: ErrorCode | None = None) -> frozenset[str] | None:
    async def refresh(_: object) -> Any:
        if problem is not None:
            raise ProtocolError(problem, "topic __mirrormaker_skipped")
        return SimpleNamespace(partitions=lambda _: ())

    ledger = SimpleNamespace(is_known=is_known, view=SimpleNamespace(lanes=dict.fromkeys(LANES)))
    source, destination = SimpleNamespace(cluster_id="id of jfk"), SimpleNamespace(refresh=refresh)
    former = FormerTopics(cast(Cluster, source), cast(Cluster, destination), cast(RouteLedger, ledger))
    late = TransformSpec(step=RouteTo(to="late"), topics=("flights-routed",))
    asked = replace(route(), transforms=(late,))
    return asyncio.run(former.find(asked, compile_naming(JFK, asked.topics), {"flights-here"}))


def test_topics_that_the_route_takes_and_has_copied_are_found_in_the_ledger() -> None:
    assert find() == {"flights", "flights-routed"}


@pytest.mark.parametrize(
    "asked", [{"is_known": False}, {"problem": ErrorCode.TOPIC_AUTHORIZATION_FAILED}], ids=str
)
def test_while_the_ledger_or_the_notes_do_not_tell_nothing_is_known(asked: Any) -> None:
    assert find(**asked) is None


def note(reason: str, at_ms: int, *, topic: str = "flights", of: str = ROUTE, partition: int = -1) -> Any:
    key = {"route": of, "topic": topic, "partition": partition, "offset": 0}
    return key, {"reason": reason, "problem": "", "at_ms": at_ms, "resumed_at": 0, "lost": None}


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], set()),
        ([note("topic_deleted", 1)], {"flights"}),
        ([note("topic_deleted", 1), note("topic_recreated", 2, partition=0)], set()),
        ([note("topic_recreated", 2, partition=0), note("topic_deleted", 3)], {"flights"}),
        ([note("topic_deleted", 1), note("source_gap", 2, partition=0)], {"flights"}),
        ([note("topic_deleted", 1), note("topic_recreated", 2, topic="weather")], {"flights"}),
        ([note("topic_deleted", 1, of="lga-to-aggregate")], set()),
        ([({"odd": 1}, {"reason": "topic_deleted"})], set()),
    ],
)
def test_a_deletion_is_settled_by_its_note_until_the_topic_comes_again(
    notes: Any, expected: set[str]
) -> None:
    assert settled_deletions(ROUTE, notes) == expected
