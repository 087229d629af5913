"""What a plan tells of routes by the control topic of their destination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.plan.notices import NoticeKind
from mirrormaker.plan.world import UnreachableCluster, World
from mirrormaker.reconcile.control import Claim, Pause, claim_key, digest_of, pause_key
from mirrormaker.reconcile.halts import Halt, Release, halt_key, halt_value
from mirrormaker.reconcile.wish_notices import outdated_notices, wish_notices
from mirrormaker.topology.model import RouteName
from tests.plan.worlds import AGGREGATE, JFK, cluster, route, topology, world

NAME = RouteName("jfk-to-aggregate")
FLIGHTS = topology(route())
SAME = digest_of(route())


def told(
    *records: tuple[Mapping[str, Any], Mapping[str, Any]], by: str | None = None
) -> list[tuple[Any, str]]:
    seen = world(cluster(JFK), replace(cluster(AGGREGATE), control=records))
    return [(notice.kind, notice.line) for notice in wish_notices(FLIGHTS, seen, by)]


@pytest.mark.parametrize(
    ("generation", "digest", "daemon", "here", "expected"),
    [
        (2, SAME, "one", None, "runs it by generation 2 of the topology, this file is 1"),
        (2, SAME, "one", "other", "runs it by generation 2 of the topology, this file is 1"),
        (1, SAME, "one", "other", None),
        (1, "x", "one", "other", "runs it by another file of the same generation 1"),
        (1, "x", "one", "one", None),
        (1, "x", "one", None, None),
    ],
)
def test_a_daemon_that_runs_a_route_by_another_file_is_told(
    generation: int, digest: str, daemon: str, here: str | None, expected: str | None
) -> None:
    claim = Claim(generation=generation, digest=digest, daemon=daemon, host="jfk", at_ms=5)
    found = told((claim_key(NAME), asdict(claim)), by=here)
    if expected is None:
        assert found == []
    else:
        ((kind, line),) = found
        assert kind is (NoticeKind.OUTDATED if generation > 1 else NoticeKind.DAEMON)
        assert line.startswith("jfk-to-aggregate: the daemon one on jfk ")
        assert expected in line


def test_a_file_that_is_older_than_what_the_daemon_here_has_in_force_is_outdated() -> None:
    newer = replace(FLIGHTS, generation=3)
    (notice,) = outdated_notices(FLIGHTS, newer)
    assert (notice.kind, notice.line) == (
        NoticeKind.OUTDATED,
        "generation: is 1, older than 3, which is in force here",
    )
    assert not list(outdated_notices(newer, FLIGHTS))
    assert not list(outdated_notices(newer, newer))


def test_pauses_and_partitions_that_stand_are_told() -> None:
    source = TopicPartition("flights", 2)
    trouble = Trouble(
        kind=TroubleKind.SOURCE_GAP, source=source, position=5, resume_at=10, problem="gone", lost=(5, 10)
    )
    halt = Halt(trouble=trouble, at_ms=7, by="one", stops_route=False, digest="x")
    whole, one = Pause(at_ms=1, by="ops@jfk", reason="a move"), Pause(at_ms=1, by="ops@jfk")
    assert told(
        (pause_key(NAME, None), asdict(whole)),
        (pause_key(NAME, "flights"), asdict(one)),
        (halt_key(NAME, source), halt_value(halt)),
    ) == [
        (NoticeKind.PAUSED, "jfk-to-aggregate: is paused by ops@jfk: a move"),
        (NoticeKind.PAUSED, "jfk-to-aggregate: flights: is paused by ops@jfk"),
        (NoticeKind.HALTED, "jfk-to-aggregate: flights-2: stands: source_gap: gone"),
    ]
    released = replace(halt, released=Release(at_ms=9, by="ops@jfk"))
    assert told((halt_key(NAME, source), halt_value(released))) == []


def test_nothing_is_told_of_a_route_whose_destination_is_away() -> None:
    assert (
        list(
            wish_notices(
                FLIGHTS,
                World(
                    clusters={
                        JFK: cluster(JFK),
                        AGGREGATE: UnreachableCluster(name=AGGREGATE, problem="away"),
                    }
                ),
                None,
            )
        )
        == []
    )
