"""Who takes back what is said of a topic, and who only reads."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.client.backoff import Backoff
from broker.errors import ConnectionFailedError
from mirrormaker.flow import topic_silence
from mirrormaker.flow.bandwidth.statements import MemberName, Statement
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.reconcile import claim_board
from mirrormaker.reconcile.claim_board import RELEASE_MS, ClaimBoard
from mirrormaker.reconcile.limit_board import LimitBoard
from mirrormaker.reconcile.topic_owners import TopicOwners
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import ClusterName, RouteName
from tests.client.running import until
from tests.conftest import ClusterFactory

ONE, OTHER = RouteName("one"), RouteName("other")
STATEMENT = Statement(destination=ClusterName("hub"), member=MemberName("d/1"), number=1, heard={}, stakes={})


class _Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    monotonic_ms = now_ms


def board_of(clock: _Clock, *, others: tuple[RouteName, ...] = ()) -> ClaimBoard:
    topology = parse_topology("clusters: {hub: {bootstrap: ['a:1']}}\nroutes: []\n", Path("t.yaml"))
    spec = topology.clusters[ClusterName("hub")]
    return ClaimBoard(spec, "d", clock, lambda: None, lambda route: route in others)


def view_of(**owners: str) -> TopicOwners:
    view = TopicOwners()
    for topic, route in owners.items():
        value: dict[str, Any] = {"route": route, "daemon": "e", "at_ms": 1}
        view.apply(encode_document({"topic": topic}), encode_document(value))
    return view


@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_the_claim_of_a_route_that_the_file_lacks_is_taken_back_unless_others_run_it(
    others: tuple[RouteName, ...],
) -> None:
    board = board_of(_Clock(), others=others)
    board.ask({}, {ONE: frozenset()}, [ONE])
    records = board._records(view_of(planes=OTHER))
    assert records == ([] if others else [({"topic": "planes"}, None)])


def test_a_daemon_that_stands_back_says_nothing_of_what_its_routes_do_not_ask_for_any_more() -> None:
    clock, view = _Clock(), view_of(planes=ONE, flights=OTHER)
    board = board_of(clock)
    for ask in (lambda: board.ask({}, {ONE: frozenset()}, [ONE, OTHER]), board.stand_back):
        clock.ms += RELEASE_MS + 1
        ask()
        assert board._records(view) == []
    board.ask({}, {ONE: frozenset()}, [ONE, OTHER])
    assert board._records(view) == [({"topic": "planes"}, None)]


def test_what_was_taken_back_and_is_claimed_again_has_its_time_again() -> None:
    clock = _Clock()
    board = board_of(clock)
    board.ask({}, {ONE: frozenset()}, [ONE])
    assert board._records(view_of(planes=ONE)) == []
    clock.ms += RELEASE_MS + 1
    assert board._records(view_of(planes=ONE)) == [({"topic": "planes"}, None)]
    assert board._records(view_of(planes=ONE)) == []


class _FailingClock(_Clock):
    """Stands for anything that ends an agreement."""

    fails = False

    def monotonic_ms(self) -> int:
        if self.fails:
            raise ConnectionFailedError("lost")
        return self.ms


def test_each_time_that_daemons_cannot_agree_is_told_once(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_board, "RETRY_BACKOFF", Backoff(initial_ms=1, max_ms=1))
    clock = _FailingClock()
    address = cluster("hub").bootstrap[0]
    text = f"clusters: {{hub: {{bootstrap: ['{address}']}}}}\nroutes: []\n"
    topology = parse_topology(text, Path("t.yaml"))
    board = ClaimBoard(topology.clusters[ClusterName("hub")], "d", clock, lambda: None, lambda _: False)

    async def main() -> None:
        with capture_logs() as logs:
            running = asyncio.create_task(board.run())
            try:
                for count, topic in enumerate(("planes", "flights"), start=1):
                    clock.fails = False
                    board.ask({topic: ONE}, {}, [ONE])
                    await until(lambda topic=topic: topic in board.owners)  # type: ignore[misc]
                    clock.fails = True
                    board.ask({}, {}, [ONE])
                    await until(lambda: board._failures > 1)
                    assert [log["event"] for log in logs].count("claims_not_shared") == count
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["claims", "limits"])
def test_a_destination_that_answers_no_more_is_told_of_and_that_it_does_again(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also while there is nothing to write."""
    monkeypatch.setattr(topic_silence, "LOOK_INTERVAL_MS", 300)
    there = cluster("hub")
    text = f"clusters: {{hub: {{bootstrap: ['{there.bootstrap[0]}']}}}}\nroutes: []\n"
    spec = parse_topology(text, Path("t.yaml")).clusters[ClusterName("hub")]
    claims = ClaimBoard(spec, "d", _Clock(), lambda: None, lambda _: False)
    limits = LimitBoard(spec, "d", _Clock(), lambda: None)
    board, pid = claims if kind == "claims" else limits, there.pids[1]

    async def main() -> None:
        with capture_logs() as logs:

            def told() -> list[str]:
                return [log["event"] for log in logs if log["event"].endswith("shared")]

            running = asyncio.create_task(board.run())
            try:
                claims.ask({"planes": ONE}, {}, [ONE])
                limits.tell([STATEMENT])
                await until(lambda: bool(claims.owners or limits.heard))
                os.kill(pid, signal.SIGSTOP)
                await until(lambda: told() == [f"{kind}_not_shared"])
                os.kill(pid, signal.SIGCONT)
                await until(lambda: told() == [f"{kind}_not_shared", f"{kind}_shared"])
            finally:
                os.kill(pid, signal.SIGCONT)
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())
