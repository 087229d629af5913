"""A running daemon follows its file: by itself, by SIGHUP, by HTTP; and touches what has changed alone."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from mirrormaker.reconcile.running import find_daemon
from mirrormaker.state import StateDirectory
from mirrormaker.topology.loader import load_topology
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.test_mirror import (
    _count as count_records,
)
from tests.daemon.test_mirror import (
    address,
    assert_complete_and_in_order,
    consume,
    create,
    produce,
)

QUICK = {"refresh_interval_ms": 300, "commit_interval_ms": 100}


def route(name: str, include: str, **keys: object) -> dict[str, Any]:
    return {
        "name": name,
        "from": "jfk",
        "to": "aggregate",
        "topics": {"include": [include], "name": f"{name}.{{topic}}"},
        **QUICK,
        **keys,
    }


@dataclass
class Mesh:
    """A file with routes between two clusters, and the daemon on it."""

    file: Path
    mirror: MirrorProcess
    clusters: Mapping[str, str]
    port: int

    def text(self, *routes: Mapping[str, Any], generation: int = 1) -> str:
        return yaml.safe_dump(
            {
                "generation": generation,
                "clusters": {name: {"bootstrap": [at]} for name, at in self.clusters.items()},
                "defaults": {"heartbeats": False},
                "routes": list(routes),
                "data_dir": "data",
            }
        )

    def write(self, *routes: Mapping[str, Any], generation: int = 1) -> None:
        """As an editor does: aside, then over it."""
        aside = self.file.with_suffix(".new")
        aside.write_text(self.text(*routes, generation=generation))
        aside.replace(self.file)

    def hang_up(self) -> None:
        assert self.mirror.process is not None
        os.kill(self.mirror.process.pid, signal.SIGHUP)

    def told(self) -> dict[str, Any]:
        """The picture of itself that the daemon writes."""
        file = self.file.parent / "data/daemon/state.json"
        if not file.exists():
            return {"routes": {}, "topology": {}}
        picture: dict[str, Any] = json.loads(file.read_text())
        return picture

    def wait_copied(self, name: str, records: int) -> dict[str, Any]:
        """Until the route at work has copied so many records since it started."""
        told: dict[str, Any] = {}

        def holds() -> bool:
            told.clear()
            told.update(self.told()["routes"].get(name, {}))
            return int(told.get("counts", {}).get("records", 0)) >= records

        wait_until(holds, f"{name} has copied {records}")
        return told

    def ask(self, path: str, body: str | None = None, **headers: str) -> tuple[int, str, Mapping[str, str]]:
        """Status, body and headers of an answer; a POST when there is a body."""
        request = Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else body.encode(),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        wait_until(self._is_listening, "the port open")
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)

    def _is_listening(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@pytest.fixture
def mesh(clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path, mirror: MirrorFactory) -> Mesh:
    source, destination = clusters
    file = tmp_path / "mesh.yaml"
    (port,) = free_ports(1)
    process = mirror.of_file(file, options=("--http", str(port)))
    return Mesh(file, process, {"jfk": address(source), "aggregate": address(destination)}, port)


def test_what_changes_in_the_file_is_changed_and_nothing_else_is_touched(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    for topic in ("flights", "planes", "weather"):
        create(source, topic, 2)
        produce(source, topic, range(100), 2)
    mesh.write(route("kept", "flights"), route("changed", "planes"), route("gone", "weather"))
    mesh.mirror.start()
    before = {name: mesh.wait_copied(name, 100) for name in ("kept", "changed", "gone")}
    small = {"buffer_bytes": 1 << 20, "partition_buffer_bytes": 1 << 18, "fetch_partition_bytes": 1 << 16}
    mesh.write(
        route("kept", "flights"),
        route("changed", "planes", resources=small, commit_interval_ms=50),
        route("new", "weather"),
        generation=2,
    )
    wait_until(lambda: mesh.told()["topology"]["generation"] == 2, "the file followed")
    mesh.wait_copied("new", 100)
    for topic in ("flights", "planes", "weather"):
        produce(source, topic, range(100, 200), 2)
    for name in ("kept", "changed"):
        after = mesh.wait_copied(name, 200)
        assert after["group_generation"] == before[name]["group_generation"]
        assert after["started_ms"] == before[name]["started_ms"]
    mesh.wait_copied("new", 200)
    assert "gone" not in mesh.told()["routes"]
    assert count_records(destination, "gone.weather", 2) == 100
    for name, topic in (("kept", "flights"), ("changed", "planes"), ("new", "weather")):
        assert_complete_and_in_order(messages := consume(destination, f"{name}.{topic}", 2), 200)
        assert len(messages) == 200
    assert mesh.mirror.stop() == 0


def test_a_route_takes_further_topics_up_while_those_it_has_are_copied_on(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    for topic in ("flights", "planes"):
        create(source, topic, 2)
        produce(source, topic, range(100), 2)
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    before = mesh.wait_copied("a", 100)
    mesh.write(route("a", "flights|planes"))
    mesh.hang_up()
    after = mesh.wait_copied("a", 200)
    assert after["started_ms"] == before["started_ms"]
    mesh.write(route("a", "planes"))
    mesh.hang_up()
    wait_until(
        lambda: set(mesh.told()["routes"]["a"]["partitions"]) == {"planes-0", "planes-1"}, "flights given up"
    )
    produce(source, "planes", range(100, 200), 2)
    assert mesh.wait_copied("a", 300)["started_ms"] == before["started_ms"]
    for topic, count in (("flights", 100), ("planes", 200)):
        assert len(consume(destination, f"a.{topic}", 2)) == count
    assert mesh.mirror.stop() == 0


def test_a_route_that_leads_elsewhere_starts_anew_and_goes_on_where_it_was(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    produce(source, "flights", range(100), 2)
    mesh.write(route("a", "flights"), route("b", "flights"))
    mesh.mirror.start()
    before = {name: mesh.wait_copied(name, 100) for name in ("a", "b")}
    elsewhere = route("a", "flights")
    elsewhere["topics"]["name"] = "elsewhere.{topic}"
    mesh.write(elsewhere, route("b", "flights"))
    mesh.hang_up()
    wait_until(
        lambda: mesh.told()["routes"].get("a", {}).get("started_ms") not in (None, before["a"]["started_ms"]),
        "started anew",
    )
    produce(source, "flights", range(100, 200), 2)
    wait_until(lambda: count_records(destination, "elsewhere.flights", 2) == 100, "the rest goes elsewhere")
    assert mesh.wait_copied("b", 200)["started_ms"] == before["b"]["started_ms"]
    assert count_records(destination, "a.flights", 2) == 100
    assert mesh.mirror.stop() == 0


def test_a_file_with_errors_changes_nothing_and_is_told_everywhere_until_it_is_mended(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, _ = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    before = mesh.wait_copied("a", 10)
    mesh.file.write_text(mesh.text(route("a", "flights"), route("b", "planes", to="agregate")))
    wait_until(lambda: mesh.told()["topology"]["problem"] is not None, "the errors told")
    shown = mirrormaker("status", str(mesh.file))
    assert shown.returncode == 0
    assert "the file is not in force: generation 1" in shown.stdout
    assert "there is no cluster 'agregate'; did you mean 'aggregate'?" in " ".join(shown.stdout.split())
    assert '"topology_refused"' in mesh.mirror.log.read_text()
    metrics = mesh.ask("/metrics")[1]
    assert "mirrormaker_topology_refused 1.0" in metrics
    assert "mirrormaker_topology_reload_failures_total 1.0" in metrics
    produce(source, "flights", range(10, 20), 1)
    assert mesh.wait_copied("a", 20)["started_ms"] == before["started_ms"]
    mesh.write(route("a", "flights"))
    wait_until(lambda: mesh.told()["topology"]["problem"] is None, "mended")
    assert "mirrormaker_topology_refused 0.0" in mesh.ask("/metrics")[1]
    mesh.write(route("a", "flights"), generation=2)
    wait_until(lambda: mesh.told()["topology"]["generation"] == 2, "followed")
    mesh.write(route("other", "planes"), generation=1)
    wait_until(lambda: mesh.told()["topology"]["problem"] is not None, "an older file refused")
    assert "generation: 1 is older than 2" in mesh.told()["topology"]["problem"]
    told = json.loads(mirrormaker("status", str(mesh.file), "--output", "json").stdout)
    assert [(each["name"], each["state"]) for each in told["routes"]] == [("a", "running")], (
        "what is in force"
    )
    assert mesh.mirror.stop() == 0


def test_the_port_shows_state_and_metrics_and_takes_topologies(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, _ = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    mesh.wait_copied("a", 10)
    mesh.mirror.wait_copied()
    wait_until(lambda: mesh.ask("/health/ready")[0] == 200, "ready")
    assert json.loads(mesh.ask("/health")[1]) == {"live": True, "ready": True}
    (told,) = json.loads(mesh.ask("/status")[1])["routes"]
    assert (told["name"], told["state"], told["lag"]["messages"]) == ("a", "running", 0)
    (told,) = json.loads(mesh.ask("/status?route=a&topic=flights")[1])["routes"]
    assert [(each["topic"], each["end"]) for each in told["partitions"]] == [("flights", 10)]
    assert mesh.ask("/status?route=b")[0] == mesh.ask("/status?topic=flights")[0] == 400
    metrics = mesh.ask("/metrics")[1].splitlines()
    for line in (
        'mirrormaker_records_total{route="a"} 10.0',
        'mirrormaker_route_state{route="a",state="running"} 1.0',
        'mirrormaker_partition_lag_messages{partition="0",route="a",topic="flights"} 0.0',
    ):
        assert line in metrics
    status, text, headers = mesh.ask("/topology")
    assert (status, text) == (200, mesh.file.read_text())
    newer = mesh.text(route("a", "flights"), route("b", "planes"), generation=2)
    status, answer, _ = mesh.ask("/topology", newer, If_Match='"0000000000000000"')
    assert status == 412
    status, answer, _ = mesh.ask("/topology", newer, If_Match=headers["ETag"])
    assert status == 200
    assert json.loads(answer)["routes"] == {
        "started": ["b"],
        "changed": [],
        "restarted": [],
        "stopped": [],
        "kept": ["a"],
    }
    assert mesh.file.read_text() == newer
    for body, problem in (
        ("routes: [", f"{mesh.file}:1: not YAML"),
        (mesh.text(route("a", "flights")), "is older than 2, which is in force"),
        (newer.replace("data_dir: data", "data_dir: other"), "stays"),
    ):
        status, answer, _ = mesh.ask("/topology", body)
        assert status == 400
        assert problem in json.loads(answer)["problems"][0]
    assert mesh.file.read_text() == newer
    assert mesh.ask("/reload", "")[0] == 200
    assert mesh.ask("/reload", "", Origin="https://attacker.example")[0] == 403
    assert mesh.ask("/nothing")[0] == 404
    assert mesh.mirror.stop() == 0


def test_a_daemon_is_met_where_an_edit_says_though_it_stays_where_it_is(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    wait_until(lambda: mesh.told()["routes"].get("a", {}).get("state") == "running", "running")
    before = mesh.file.read_text()
    for other in ("others/data", "elsewhere"):
        mesh.file.write_text(before.replace("data_dir: data", f"data_dir: {other}"))
        wait_until(lambda: find_daemon(load_topology(mesh.file)) is not None, "met there")
        told = json.loads(mirrormaker("status", str(mesh.file), "--output", "json").stdout)
        assert told["routes"][0]["state"] == "running"
        assert "data_dir: stays" in told["topology"]["problem"]
        second = mirrormaker("run", str(mesh.file))
        assert (second.returncode, second.stdout) == (1, "")
        assert f"{other}/daemon: another daemon is running on this data_dir" in second.stderr
        found = find_daemon(load_topology(mesh.file))
        assert found is not None
        assert found.daemon_id == directory_of(mesh, "data").daemon_id()
    assert not directory_of(mesh, "others/data").is_locked()
    mesh.file.write_text(before)
    wait_until(lambda: mesh.told()["topology"]["problem"] is None, "in force again")
    wait_until(lambda: not directory_of(mesh, "elsewhere").is_locked(), "left")
    mesh.file.write_text(before.replace("data_dir: data", "data_dir: elsewhere"))
    wait_until(lambda: directory_of(mesh, "elsewhere").is_locked(), "met there again")
    assert mesh.mirror.stop() == 0
    told = json.loads(mirrormaker("status", str(mesh.file), "--output", "json").stdout)
    assert (told["topology"], told["routes"][0]["state"]) == (None, "stopped")
    mesh.mirror.start()
    wait_until(lambda: find_daemon(load_topology(mesh.file)) is not None, "at work there")
    assert not directory_of(mesh, "data").is_locked()
    assert mesh.mirror.stop() == 0


def directory_of(mesh: Mesh, data_dir: str) -> StateDirectory:
    return StateDirectory(mesh.file.parent / data_dir)


@pytest.mark.long
def test_a_daemon_killed_amid_changes_starts_as_the_file_says_and_nothing_is_lost(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    create(source, "flights", 3)
    turns, share = 4, 3000
    bounds = [{"produce_bytes": size, "fetch_partition_bytes": size} for size in (4096, 16384)]
    for turn in range(turns):
        mesh.write(route("a", "flights", resources=bounds[turn % 2]), generation=2 * turn + 1)
        mesh.mirror.start()
        numbers = range(turn * share, turn * share + share)
        produce(source, "flights", numbers, 3, **{"batch.size": 1000, "compression.type": "snappy"})
        wait_until(lambda: count_records(destination, "a.flights", 3) > 0, "a first step")
        wait_until(lambda: mesh.told()["routes"].get("a", {}).get("state") == "running", "running")
        text = mesh.text(
            route("a", "flights", resources=bounds[1 - turn % 2]),
            route(f"b-{turn}", "planes"),
            generation=2 * turn + 2,
        )
        wait_until(lambda: mesh.ask("/topology", text)[0] == 200, "taken")  # noqa: B023
        mesh.mirror.kill()
        assert mesh.file.read_text() == text
    mesh.mirror.start()
    wait_until(lambda: set(mesh.told()["routes"]) == {"a", f"b-{turns - 1}"}, "the routes of the last file")
    wait_until(lambda: count_records(destination, "a.flights", 3) >= turns * share, "all copied")
    mesh.mirror.wait_copied()
    assert_complete_and_in_order(consume(destination, "a.flights", 3), turns * share)
    assert mesh.mirror.stop() == 0
