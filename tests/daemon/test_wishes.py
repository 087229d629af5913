"""Pauses, seeks, and the one file that runs a route: heeded by every daemon, on real clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from mirrormaker.reconcile.control import CONTROL_TOPIC
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_mirror import create, produce, producer
from tests.daemon.test_planning import partitions_of, setting
from tests.daemon.test_reconciling import Mesh, count_records, mesh, route

__all__ = ["mesh"]


def other_mesh(mesh: Mesh, mirror: MirrorFactory, name: str) -> Mesh:
    """A second daemon with a file and a data_dir of its own, between the same clusters."""
    folder = mesh.file.parent / name
    folder.mkdir()
    file = folder / "mesh.yaml"
    (port,) = free_ports(1)
    return Mesh(file, mirror.of_file(file, options=("--http", str(port))), mesh.clusters, port)


def state(mesh: Mesh, name: str = "a") -> str | None:
    told: str | None = mesh.told()["routes"].get(name, {}).get("state")
    return told


def test_a_paused_route_rests_in_every_daemon_until_it_is_resumed_and_may_be_moved_meanwhile(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    produce(source, "flights", range(100), 2)
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    mesh.wait_copied("a", 100)
    file = str(mesh.file)
    busy = mirrormaker("seek", file, "a", "--to", "earliest")
    assert (busy.returncode, busy.stdout) == (1, "")
    assert "is at work in 1 processes: pause it first" in busy.stderr
    assert mirrormaker("pause", file, "a", "--reason", "new disks").returncode == 0
    wait_until(lambda: state(mesh) == "paused", "paused")
    produce(source, "flights", range(100, 150), 2)
    mesh.mirror.kill()
    shown = mirrormaker("status", file)
    assert "a: paused by " in shown.stdout
    assert ": new disks" in shown.stdout
    mesh.mirror.start()
    wait_until(lambda: mesh.told().get("pid") == mesh.mirror.pid and state(mesh) == "paused", "still paused")
    told = json.loads(mirrormaker("status", file, "--output", "json").stdout)["routes"][0]
    assert (told["state"], told["pause"]["reason"], told["lag"]["messages"]) == ("paused", "new disks", 50)
    moved = mirrormaker("seek", file, "a", "--to", "10", "--partition", "1")
    assert (moved.returncode, moved.stdout) == (0, "flights\t1\t10\n")
    assert count_records(destination, "a.flights", 2) == 100
    alone = mirrormaker("resume", file, "a", "--topic", "flights", "--partition", "1")
    assert (alone.returncode, alone.stdout) == (1, "")
    assert "the route 'a' is paused as a whole: resume it without naming" in alone.stderr
    assert mirrormaker("resume", file, "a").stdout == "a\n"
    wait_until(lambda: count_records(destination, "a.flights", 2) == 100 + 25 + 65, "copied from there on")
    assert mirrormaker("resume", file, "a").stderr == "nothing was noted as paused\n"
    assert mesh.mirror.stop() == 0
    moved = mirrormaker("seek", file, "a", "--to", "earliest")
    assert (moved.returncode, moved.stdout) == (0, "flights\t0\t0\nflights\t1\t0\n"), "it has just ended"


def test_a_pause_is_told_whatever_text_somebody_wrote_as_its_reason(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    mesh.write(route("a", "flights"))
    mesh.mirror.start()
    wait_until(lambda: state(mesh) == "running", "running")
    somebody = producer(destination)
    somebody.produce(
        CONTROL_TOPIC, b'{"reason": "half \\ud800"}', b'{"route": "a", "wish": "pause", "topic": null}'
    )
    assert somebody.flush(PATIENCE_SECONDS) == 0
    wait_until(lambda: state(mesh) == "paused", "paused")
    for _ in range(2):  # told by the daemon, and without one by the destination
        shown = mirrormaker("status", str(mesh.file))
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "a: paused by somebody" in shown.stdout
        assert ": half \\ud800" in shown.stdout
        mesh.mirror.kill()


def test_a_paused_topic_rests_and_the_others_of_its_route_go_on(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    for topic in ("flights", "planes"):
        create(source, topic, 1)
        produce(source, topic, range(10), 1)
    mesh.write(route("a", "flights|planes"))
    mesh.mirror.start()
    before = mesh.wait_copied("a", 20)
    status, answer, _ = mesh.ask("/routes/a/pause?topic=planes&reason=too+loud", "")
    assert (status, json.loads(answer)) == (200, {"paused": ["planes"]})
    wait_until(lambda: set(mesh.told()["routes"]["a"]["partitions"]) == {"flights-0"}, "planes given up")
    for topic in ("flights", "planes"):
        produce(source, topic, range(10, 20), 1)
    assert mesh.wait_copied("a", 30)["started_ms"] == before["started_ms"]
    assert count_records(destination, "a.planes", 1) == 10
    assert "a: planes is paused by " in mirrormaker("status", str(mesh.file)).stdout
    assert mesh.ask("/routes/a/pause?topic=plains", "")[0] == 400
    assert mesh.ask("/routes/b/pause", "")[0] == 404
    assert mesh.ask("/routes/a/seek?to=earliest", "")[0] == 409
    assert mirrormaker("resume", str(mesh.file), "a", "--topic", "planes").stdout == "planes\n"
    assert mesh.wait_copied("a", 40)["started_ms"] == before["started_ms"]
    assert count_records(destination, "a.planes", 1) == 20
    assert mesh.ask("/routes/a/pause", "")[0] == 200
    wait_until(lambda: state(mesh) == "paused", "paused")
    status, answer, _ = mesh.ask("/routes/a/seek?to=latest&topic=planes&partition=0", "")
    assert (status, json.loads(answer)["positions"]) == (
        200,
        [{"topic": "planes", "partition": 0, "offset": 20}],
    )
    assert mesh.ask("/routes/a/seek?to=yesterday", "")[0] == 400
    assert mesh.mirror.stop() == 0


def test_the_daemon_with_the_newest_file_runs_a_route_and_the_others_give_way(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    produce(source, "flights", range(100), 2)
    mesh.write(route("a", "flights"), generation=2)
    mesh.mirror.start()
    mesh.wait_copied("a", 100)
    other = other_mesh(mesh, mirror, "other")
    other.write(route("a", "flights"), generation=1)
    assert "! a: the daemon " in mirrormaker("plan", str(other.file)).stdout
    refused = mirrormaker("run", str(other.file))
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "runs it by generation 2 of the topology, this file is 1" in refused.stderr
    other.write(route("a", "flights|planes"), generation=2)
    refused = mirrormaker("run", str(other.file))
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "by another file of the same generation 2: raise 'generation'" in refused.stderr
    other.write(route("a", "flights|planes"), generation=3)
    other.mirror.start()
    wait_until(lambda: state(mesh) == "superseded", "the older one gives way")
    assert "runs it by generation 3" in mesh.told()["routes"]["a"]["error"]
    wait_until(lambda: len(other.told()["routes"].get("a", {}).get("partitions", ())) == 2, "taken over")
    produce(source, "flights", range(100, 200), 2)
    wait_until(lambda: count_records(destination, "a.flights", 2) == 200, "copied on")
    mesh.write(route("a", "flights|planes"), generation=3)
    wait_until(lambda: state(mesh) == "running", "the same file: both of them run it")
    other.mirror.kill()
    produce(source, "flights", range(200, 300), 2)
    wait_until(lambda: count_records(destination, "a.flights", 2) == 300, "taken over from the killed one")
    assert mesh.mirror.stop() == 0


def ask_for_topic(mesh: Mesh, name: str, config: Mapping[str, str], *, generation: int) -> None:
    """Write a file by which the destination should have this topic."""
    topology = yaml.safe_load(mesh.text(route("a", "flights"), generation=generation))
    topology["clusters"]["aggregate"]["topics"] = {name: {"config": dict(config)}}
    mesh.file.write_text(yaml.safe_dump(topology))


def told_of_destination(mesh: Mesh) -> Mapping[str, Any]:
    """How the topics that the file asks for there stand; empty before they were looked at."""
    told: Mapping[str, Any] = mesh.told().get("clusters", {}).get("aggregate", {})
    return told


@pytest.mark.long
def test_topics_that_files_ask_for_are_kept_by_the_newest_file_alone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, mirror: MirrorFactory
) -> None:
    _, destination = clusters
    ask_for_topic(mesh, "orders", {"segment.ms": "3600000"}, generation=1)
    mesh.mirror.start()
    wait_until(lambda: partitions_of(destination, "orders") > 0, "made")
    other = other_mesh(mesh, mirror, "other")
    ask_for_topic(other, "orders", {"segment.ms": "7200000"}, generation=2)
    other.mirror.start()
    wait_until(
        lambda: "runs it by generation 2" in str(told_of_destination(mesh).get("problem")),
        "the older one leaves the topic alone",
    )
    wait_until(lambda: setting(destination, "orders", "segment.ms") == "7200000", "the newer one has its way")
    assert "aggregate: its topics are not compared: " in mirrormaker("status", str(mesh.file)).stdout
    ask_for_topic(mesh, "orders", {"segment.ms": "1800000"}, generation=3)
    wait_until(lambda: setting(destination, "orders", "segment.ms") == "1800000", "the newest one now")
    wait_until(lambda: told_of_destination(mesh) == {"problem": None, "drift": []}, "and that is told")


def test_a_topic_that_a_file_asks_for_is_made_where_the_route_into_it_makes_none(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    topology = yaml.safe_load(mesh.text(route("a", "flights")))
    topology["clusters"]["aggregate"]["topics"] = {"a.flights": {"partitions": 3}}
    topology["routes"][0]["sync"] = {"topics": False}
    mesh.file.write_text(yaml.safe_dump(topology))
    mesh.mirror.start()
    wait_until(lambda: partitions_of(destination, "a.flights") == 3, "made")
    produce(source, "flights", range(20), 1)
    wait_until(lambda: count_records(destination, "a.flights", 3) == 20, "copied")
    assert mesh.mirror.stop() == 0


@pytest.mark.long
def test_daemons_whose_destination_is_away_start_and_find_out_later(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    mesh.write(route("a", "flights"), generation=2)
    mesh.mirror.start()
    wait_until(lambda: state(mesh) == "running", "running")
    assert mesh.mirror.stop() == 0
    destination.stop_node(1)
    older = other_mesh(mesh, mirror, "older")
    older.write(route("a", "flights"))
    older.mirror.start()
    wait_until(lambda: state(older) == "failed", "the destination is away")
    destination.start_node(1)
    wait_until(lambda: state(older) == "superseded", "an older file all the same")
    assert older.mirror.stop() == 0


def test_a_route_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "jfk": {"bootstrap": ["127.0.0.1:1"]},
                    "aggregate": {"bootstrap": ["127.0.0.1:2"]},
                },
                "routes": [route("flights", "flights")],
            }
        )
    )
    for verb in (["pause"], ["resume"], ["seek", "--to", "latest"]):
        done = mirrormaker(verb[0], str(file), "fligths", *verb[1:])
        assert done.returncode == 1
        assert done.stderr == "there is no route 'fligths'; did you mean 'flights'?\n"
    assert mirrormaker("seek", str(file), "flights", "--to", "then").returncode == 1
