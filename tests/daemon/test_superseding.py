"""Routes that another daemon runs by a newer file stay known as such until they have found out again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.daemon import Daemon
from mirrormaker.superseding import SupersededRoutes
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Topology

REASON = "the daemon d on h runs it by generation 2 of the topology, this file is 1"
SUPERSEDED = {"state": "superseded", "error": REASON, "control_problem": None}


def topology(folder: Path, route: str = "{name: a, from: jfk, to: lga, topics: {include: [t]}}") -> Topology:
    file = folder / "topology.yaml"
    file.write_text(
        f"clusters: {{jfk: {{bootstrap: ['a:1']}}, lga: {{bootstrap: ['b:1']}}}}\nroutes: [{route}]\n"
    )
    return load_topology(file)


def told(state: str, problem: str | None = None) -> Mapping[str, Mapping[str, Any]]:
    return {"a": {"state": state, "error": problem, "control_problem": problem}}


@pytest.mark.parametrize("routes", [{}, told("starting"), told("stopped"), told("failed", "no node")])
def test_a_route_that_has_not_found_out_again_is_as_it_was(
    tmp_path: Path, routes: Mapping[str, Mapping[str, Any]]
) -> None:
    superseded, file = SupersededRoutes(), topology(tmp_path)
    assert superseded.take(file, routes) == {}
    assert superseded.take(file, {"a": SUPERSEDED}) == {"a": REASON}
    assert superseded.take(file, routes) == superseded.take(file, {}) == {"a": REASON}


@pytest.mark.parametrize("state", ["running", "paused", "standing by", "failed"])
def test_a_route_that_found_that_it_may_run_is_superseded_no_more(tmp_path: Path, state: str) -> None:
    superseded, file = SupersededRoutes(), topology(tmp_path)
    superseded.take(file, {"a": SUPERSEDED})
    assert superseded.take(file, told(state)) == superseded.take(file, {}) == {}


def test_a_route_that_the_file_does_not_run_any_more_is_none_of_them(tmp_path: Path) -> None:
    superseded = SupersededRoutes()
    superseded.take(topology(tmp_path), {"a": SUPERSEDED})
    off = topology(tmp_path, "{name: a, from: jfk, to: lga, enabled: false, topics: {include: [t]}}")
    assert superseded.take(off, {}) == {}


def test_an_edit_lets_no_daemon_forget_who_runs_its_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology(tmp_path)
    daemon = Daemon(tmp_path / "topology.yaml")
    routes = {"a": SUPERSEDED}
    monkeypatch.setattr(daemon, "_describe_standing", lambda: routes)
    monkeypatch.setattr(daemon, "_run_routes", lambda loaded: routes.clear())
    daemon.apply(daemon.live.loaded)
    assert daemon._superseding() == {"a": REASON}
