"""Where a daemon has a say about who writes a topic; what is around it is stood in for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import SystemClock
from mirrormaker.reconcile.claim_board import ClaimBoard
from mirrormaker.topic_claims import TopicClaims
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import ClusterName, RouteName
from tests.client.running import run, until

TOPOLOGY = """
clusters:
  x: {bootstrap: ['a:1']}
  y: {bootstrap: ['b:1']}
  hub: {bootstrap: ['c:1']}
  far: {bootstrap: ['d:1']}
routes:
- {name: one, from: x, to: hub, topics: {include: ['flights.*'], name: '{topic}'}}
- {name: other, from: y, to: hub, topics: {include: ['.*-b'], name: '{topic}'}}
- {name: apart, from: x, to: far, topics: {include: ['flights.*'], name: '{topic}'}}
- {name: aside, from: y, to: far, topics: {include: ['.*-b'], name: '{topic}'}}
"""
ASKED = {
    "hub": {RouteName("one"): frozenset({"flights-b"}), RouteName("other"): frozenset[str]()},
    "far": {RouteName("apart"): frozenset({"flights-b"}), RouteName("aside"): frozenset[str]()},
}


def test_a_daemon_has_a_say_where_no_route_of_its_is_run_by_a_newer_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere topics that are new would be nobody's."""
    said: dict[str, dict[str, RouteName]] = {}

    async def rest(board: ClaimBoard) -> None:
        await asyncio.Event().wait()

    def ask(board: ClaimBoard, wanted: dict[str, RouteName], *_: object) -> None:
        said[board.spec.name] = wanted

    monkeypatch.setattr(ClaimBoard, "run", rest)
    monkeypatch.setattr(ClaimBoard, "ask", ask)
    superseded: set[RouteName] = set()
    host: Any = SimpleNamespace(
        claims={
            ClusterName(name): SimpleNamespace(all=lambda asked=asked: asked) for name, asked in ASKED.items()
        },
        decide=lambda decisions: None,
    )
    claims = TopicClaims(host, "d", lambda: None, SystemClock(), superseded=lambda: superseded)
    claims.desire(parse_topology(TOPOLOGY, Path("t.yaml")))

    async def main() -> None:
        looking = asyncio.create_task(claims.run())
        await until(lambda: said == {"hub": {"flights-b": "one"}, "far": {"flights-b": "apart"}})
        superseded.add(RouteName("aside"))
        await until(lambda: said == {"hub": {"flights-b": "one"}, "far": {}})
        looking.cancel()
        await asyncio.wait([looking])

    run(main)
