"""What `status` shows where no daemon of its file tells."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.errors import ConfigurationError
from broker.loopback import free_ports
from mirrormaker.clusters import open_cluster
from mirrormaker.report import render_json, render_text
from mirrormaker.state import STATE_VERSION, StateDirectory
from mirrormaker.status import load_for_status, read_status
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterSpec
from tests.conftest import ClusterFactory
from tests.daemon.conftest import mirrormaker, wait_until
from tests.daemon.test_mirror import address, create, produce
from tests.storage.samples import ManualClock

IN_FORCE = """\
clusters:
  jfk: {bootstrap: ["source:1"]}
  aggregate: {bootstrap: ["destination:2"]}
routes:
  - {from: jfk, to: aggregate, topics: {include: [flights]}}
"""


def test_a_file_with_errors_is_shown_by_the_daemon_that_follows_it_and_by_no_other(tmp_path: Path) -> None:
    followed, stranger = tmp_path / "followed.yaml", tmp_path / "stranger.yaml"
    for file in (followed, stranger):
        file.write_text(IN_FORCE.replace("include", "inclde"))
    directory = StateDirectory(tmp_path / "data")
    with directory.locked():
        directory.keep_topology(IN_FORCE)
        directory.write(
            {"version": STATE_VERSION, "topology": {"file": str(followed), "problem": "a misspelt key"}}
        )
        assert [route.name for route in load_for_status(followed).routes] == ["jfk-to-aggregate"]
        with pytest.raises(ConfigurationError, match="did you mean 'include'"):
            load_for_status(stranger)


@pytest.mark.parametrize(
    ("age_ms", "problem"),
    [
        (None, "it has told nothing yet"),
        (9_999, None),
        (61_500, "it has told nothing for 61 s: what is told of it is older"),
    ],
)
def test_a_daemon_that_has_told_nothing_for_long_is_told_of(
    tmp_path: Path, age_ms: int | None, problem: str | None
) -> None:
    file, clock = tmp_path / "mesh.yaml", ManualClock()
    file.write_text(IN_FORCE)
    topology, directory = load_topology(file), StateDirectory(tmp_path / "data")
    with directory.locked():
        if age_ms is not None:
            directory.write({"version": STATE_VERSION, "at_ms": clock.now_ms() - age_ms})
        status = asyncio.run(read_status(topology, clock, routes=()))
        shown = io.StringIO()
        render_text(status, shown)
        assert render_json(status)["daemon_problem"] == problem
        assert shown.getvalue().splitlines()[1:] == (
            [] if problem is None else [f"the daemon here: {problem}"]
        )
    assert asyncio.run(read_status(topology, clock, routes=())).daemon_problem is None


@pytest.mark.parametrize(
    ("told", "shown"), [("starting", "pausing"), ("running", "pausing"), ("paused", "paused")]
)
def test_a_route_that_is_to_pause_is_pausing_until_it_rests(tmp_path: Path, told: str, shown: str) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(IN_FORCE.replace("source:1", f"127.0.0.1:{free_ports(1)[0]}"))
    state = {"routes": {"jfk-to-aggregate": {"state": told, "pause": {"at_ms": 1, "by": "ops"}}}}
    status = asyncio.run(read_status(load_topology(file), ManualClock(), state))
    assert [route.state for route in status.routes] == [shown]


def test_a_destination_that_is_away_is_told_also_where_no_daemon_runs(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    source = cluster("jfk")
    create(source, "flights", 1)
    file = tmp_path / "mesh.yaml"
    (port,) = free_ports(1)
    reached = IN_FORCE.replace("source:1", address(source)).replace("destination:2", f"127.0.0.1:{port}")
    file.write_text(reached)
    problem = f"cluster 'aggregate': no node can be reached: 127.0.0.1:{port}"

    def is_told() -> bool:  # on a busy machine the time that an answer may take can be over first
        shown = mirrormaker("status", str(file))
        (route,) = json.loads(mirrormaker("status", str(file), "--output", "json").stdout)["routes"]
        assert route["lag"]["messages"] == 0
        return f"jfk-to-aggregate: {problem}" in shown.stdout and route["problem"].startswith(problem)

    wait_until(is_told, "the destination told as away")


def test_routes_from_one_cluster_ask_it_on_the_same_connections(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    for topic in ("flights", "planes"):
        create(source, topic, 1)
    produce(source, "planes", range(5), 1)
    file = tmp_path / "mesh.yaml"
    reached = IN_FORCE.replace("source:1", address(source)).replace("destination:2", address(destination))
    file.write_text(reached + "  - {name: planes, from: jfk, to: aggregate, topics: {include: [planes]}}\n")
    opened: list[str] = []

    def open_and_count(spec: ClusterSpec) -> AbstractAsyncContextManager[Cluster]:
        opened.append(spec.name)
        return open_cluster(spec)

    monkeypatch.setattr("mirrormaker.status.open_cluster", open_and_count)
    status = asyncio.run(read_status(load_topology(file), ManualClock()))
    told = [(route.name, route.lag and route.lag.messages) for route in status.routes]
    assert told == [("jfk-to-aggregate", 0), ("planes", 5)]
    assert opened.count("jfk") == 1


def test_one_route_and_one_topic_of_it_may_be_asked_for(cluster: ClusterFactory, tmp_path: Path) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    for topic in ("flights", "planes"):
        create(source, topic, 2)
    produce(source, "planes", range(5), 1)
    file = tmp_path / "mesh.yaml"
    (port,) = free_ports(1)
    reached = IN_FORCE.replace("source:1", address(source)).replace("destination:2", address(destination))
    reached = reached.replace("[flights]", "[flights, planes]")
    away = "  - {from: away, to: aggregate, topics: {include: [x]}}\n"
    reached = reached.replace("routes:", f"  away: {{bootstrap: ['127.0.0.1:{port}']}}\nroutes:") + away
    file.write_text(reached)

    def ask(*asked: str) -> dict[str, Any]:
        (route,) = json.loads(mirrormaker("status", str(file), *asked, "--output", "json").stdout)["routes"]
        assert route["name"] == "jfk-to-aggregate", "nobody waits for the route that cannot be asked"
        return dict(route)

    assert (len(ask("jfk-to-aggregate")["partitions"]), ask("jfk-to-aggregate")["lag"]["messages"]) == (4, 5)
    flights = ask("jfk-to-aggregate", "--topic", "flights")
    assert ({each["topic"] for each in flights["partitions"]}, flights["lag"]["messages"]) == ({"flights"}, 0)
    shown = mirrormaker("status", str(file), "jfk-to-aggregate", "--topic", "planes").stdout.splitlines()
    assert [line.split()[0] for line in shown if line.startswith("planes-")] == ["planes-0", "planes-1"]
    refused = mirrormaker("status", str(file), "jfk-to-agregate")
    assert (refused.returncode, refused.stderr) == (
        1,
        "there is no route 'jfk-to-agregate'; did you mean 'jfk-to-aggregate'?\n",
    )
    refused = mirrormaker("status", str(file), "--topic", "planes")
    assert (refused.returncode, refused.stderr) == (1, "--topic needs a ROUTE\n")
