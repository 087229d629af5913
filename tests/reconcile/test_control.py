"""Claims and wishes: who may run a route, and what its administrators want of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.reconcile.control import (
    Claim,
    Pause,
    Rest,
    Resumption,
    RouteWishes,
    claim_key,
    digest_of,
    judge,
    pause_key,
    read_wishes,
    resumption_record,
)
from mirrormaker.reconcile.halts import Halt, Release
from mirrormaker.reconcile.pauses import find_pause, pause_records, require_resumable, resume_records
from mirrormaker.topology.model import CopyMode, Resources, RouteName
from tests.reconcile.test_routes import A, rerouted, selecting

ROUTE = RouteName("a")
RESUMPTION = Resumption(release=Release(at_ms=9, by="ops@jfk"))
PAUSE = Pause(at_ms=1, by="ops@jfk", reason="maintenance")


def claim(generation: int = 2, digest: str = "x", daemon: str = "one") -> Claim:
    return Claim(generation=generation, digest=digest, daemon=daemon, host="jfk", at_ms=5)


@pytest.mark.parametrize(
    ("found", "rest", "claims"),
    [
        (None, None, True),
        (claim(), None, False),
        (claim(daemon="other"), None, False),
        (claim(generation=1, digest="y", daemon="other"), None, True),
        (claim(generation=3, digest="x", daemon="other"), Rest.SUPERSEDED, False),
        (claim(generation=3, digest="x"), Rest.SUPERSEDED, False),
        (claim(digest="y"), None, True),
        (claim(digest="y", daemon="other"), Rest.SUPERSEDED, False),
    ],
)
def test_the_newest_file_runs_a_route_and_one_generation_is_one_file(
    found: Claim | None, rest: Rest | None, claims: bool
) -> None:
    verdict = judge(ROUTE, claim(), RouteWishes(claim=found))
    assert (verdict.rest, verdict.claims) == (rest, claims)
    assert (verdict.reason is None) == (rest is None)


@pytest.mark.parametrize(
    ("found", "rest"),
    [
        (claim(generation=3, digest="y"), None),
        (claim(generation=3, digest="y", daemon="other"), Rest.SUPERSEDED),
        (replace(claim(generation=3, digest="y"), at_ms=3), Rest.SUPERSEDED),
    ],
)
def test_a_worker_goes_on_while_the_newer_file_of_its_own_daemon_is_on_the_way(
    found: Claim, rest: Rest | None
) -> None:
    verdict = judge(ROUTE, claim(), RouteWishes(claim=found), worker_since_ms=4)
    assert (verdict.rest, verdict.claims) == (rest, False)


def test_a_pause_holds_for_whoever_may_run_the_route() -> None:
    assert judge(ROUTE, claim(), RouteWishes(pause=PAUSE)).rest is Rest.PAUSED
    newer = RouteWishes(pause=PAUSE, claim=claim(generation=3))
    assert judge(ROUTE, claim(), newer).rest is Rest.SUPERSEDED


def test_processes_of_a_route_may_have_bounds_of_their_own_and_nothing_else() -> None:
    small = rerouted(A, resources=Resources(buffer_bytes=1 << 20), commit_interval_ms=7)
    assert digest_of(small.route) == digest_of(A.route)
    for other in (
        rerouted(A, copy=CopyMode.DEEP),
        selecting(A, include=("planes",)),
        rerouted(A, buckets=4),
    ):
        assert digest_of(other.route) != digest_of(A.route)


def test_wishes_come_back_out_of_the_records_as_they_were() -> None:
    part = replace(RESUMPTION, topics=frozenset({"planes"}), partition=7)
    records: list[tuple[Document, Document]] = [
        (dict(claim_key(ROUTE)), asdict(claim())),
        (dict(pause_key(ROUTE, "flights")), asdict(PAUSE)),
        (dict(pause_key(RouteName("b"), None)), asdict(PAUSE)),
        resumption_record(ROUTE, RESUMPTION),
        resumption_record(RouteName("c"), part),
    ]
    assert read_wishes(records) == {
        ROUTE: RouteWishes(claim=claim(), resumption=RESUMPTION, topics={"flights": PAUSE}),
        RouteName("c"): RouteWishes(resumption=part),
        RouteName("b"): RouteWishes(pause=PAUSE),
    }


def test_records_of_other_kinds_and_claims_that_are_none_are_passed_over() -> None:
    records: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"route": "a"}, {"generation": "seven"}),
        ({"route": "a", "wish": "dance"}, {}),
        ({"route": "a", "wish": "resume"}, {"at_ms": "soon"}),
        ({"topology": "x"}, {}),
        ({"route": 7}, asdict(claim())),
    ]
    assert read_wishes(records) == {}
    told_by_hand = read_wishes([({"route": "a", "wish": "pause", "topic": None}, {})])
    assert told_by_hand[ROUTE].pause == Pause(at_ms=0, by="somebody")


def test_a_partition_of_what_pauses_as_a_whole_is_released_where_it_stands_and_else_the_pause_is_told() -> (
    None
):
    source = TopicPartition("planes", 1)
    trouble = Trouble(
        kind=TroubleKind.SOURCE_GAP, source=source, position=0, resume_at=5, problem="0 to 4 are gone"
    )
    halt = Halt(trouble=trouble, at_ms=1, by="d", stops_route=False, digest="x")
    named = replace(RESUMPTION, topics=frozenset({"planes"}), partition=1)
    for wishes, paused in (
        (RouteWishes(pause=PAUSE), "the route 'a' is paused as a whole"),
        (RouteWishes(topics={"planes": PAUSE}), "the topic 'planes' is paused as a whole"),
    ):
        with pytest.raises(ConfigurationError, match=paused):
            require_resumable(ROUTE, wishes, named)
        standing = replace(wishes, halts={source: halt})
        assert [key["halt"] for key, _ in resume_records(ROUTE, standing, named)] == [
            {"topic": "planes", "partition": 1}
        ]
        assert paused in str(find_pause(ROUTE, standing, named))
        assert find_pause(ROUTE, standing, RESUMPTION) is None
    other = RouteWishes(topics={"flights": PAUSE})
    assert (find_pause(ROUTE, other, named), resume_records(ROUTE, other, named)) == (None, [])


def test_resuming_takes_back_what_is_paused_and_nothing_else() -> None:
    assert resume_records(ROUTE, RouteWishes(), RESUMPTION) == []
    topics = RouteWishes(topics={"flights": PAUSE, "planes": PAUSE})
    assert resume_records(ROUTE, topics, replace(RESUMPTION, topics=frozenset({"planes"}))) == [
        (pause_key(ROUTE, "planes"), None)
    ]
    both = replace(topics, pause=PAUSE)
    assert {key["topic"] for key, _ in resume_records(ROUTE, both, RESUMPTION)} == {
        None,
        "flights",
        "planes",
    }
    with pytest.raises(ConfigurationError, match="paused as a whole"):
        resume_records(ROUTE, both, replace(RESUMPTION, topics=frozenset({"planes"})))
    assert pause_records(ROUTE, [], PAUSE) == [(pause_key(ROUTE, None), asdict(PAUSE))]
