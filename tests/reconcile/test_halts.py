"""Partitions that stand: their records, how they stop a route, how they are released."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.reconcile.control import Claim, Rest, Resumption, RouteWishes, judge, read_wishes
from mirrormaker.reconcile.halts import Halt, Release, halt_key, halt_value, read_halt, release_records
from mirrormaker.reconcile.pauses import name_resumed, resume_records
from mirrormaker.topology.model import RouteName

ROUTE = RouteName("a")
SOURCE = TopicPartition("flights", 2)
RELEASE = Release(at_ms=9, by="ops@jfk")
HALT = Halt(
    trouble=Trouble(
        kind=TroubleKind.SOURCE_GAP, source=SOURCE, position=5, resume_at=10, problem="gone", lost=(5, 10)
    ),
    at_ms=7,
    by="one",
    stops_route=False,
    digest="x",
)
STOPPING = replace(HALT, stops_route=True)
CLAIM = Claim(generation=1, digest="x", daemon="one", host="jfk", at_ms=1)


@pytest.mark.parametrize(
    "halt",
    [
        HALT,
        STOPPING,
        replace(HALT, released=RELEASE),
        replace(HALT, trouble=replace(HALT.trouble, kind=TroubleKind.TOPIC_RECREATED, topic_id="a-b")),
    ],
)
def test_a_halt_comes_back_out_of_its_record_as_it_was(halt: Halt) -> None:
    assert read_wishes([(halt_key(ROUTE, SOURCE), halt_value(halt))]) == {
        ROUTE: RouteWishes(halts={SOURCE: halt})
    }


def test_a_record_that_is_not_understood_is_no_halt() -> None:
    assert read_halt(SOURCE, {**halt_value(HALT), "reason": "earthquake"}) is None
    assert read_halt(SOURCE, {}) is None


@pytest.mark.parametrize(
    ("halt", "rest"),
    [
        (HALT, None),
        (STOPPING, Rest.FAILED),
        (replace(STOPPING, digest="y"), None),
        (replace(STOPPING, released=RELEASE), None),
    ],
)
def test_a_route_rests_while_a_halt_stops_it_as_the_file_says_it(halt: Halt, rest: Rest | None) -> None:
    verdict = judge(ROUTE, CLAIM, RouteWishes(claim=CLAIM, halts={SOURCE: halt}))
    assert verdict.rest is rest
    assert (verdict.reason is None) == (rest is None)


def test_what_is_released_is_what_was_asked_for_and_only_once() -> None:
    other = TopicPartition("planes", 0)
    wishes = RouteWishes(
        halts={SOURCE: HALT, other: replace(HALT, trouble=replace(HALT.trouble, source=other))}
    )

    def named(topics: list[str], partition: int | None = None) -> list[str | None]:
        resumption = Resumption(release=RELEASE, topics=frozenset(topics), partition=partition)
        return [name_resumed(key) for key, _ in resume_records(ROUTE, wishes, resumption)]

    assert named([]) == ["flights-2", "planes-0"]
    assert named(["planes"]) == ["planes-0"]
    assert named(["flights"], 2) == ["flights-2"]
    assert named(["flights"], 0) == []
    assert release_records(ROUTE, {SOURCE: replace(HALT, released=RELEASE)}, RELEASE) == []
