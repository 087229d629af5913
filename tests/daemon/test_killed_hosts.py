"""Daemons on two hosts with one file: one is killed while commands are at work and while differences are
repaired; commands are killed too. What is left half done is ended by the other daemon, or by the same command
when it is run again.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from tests.daemon.audits import audit, found
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.failover_pair import KILLED
from tests.daemon.killed_mirrors import PARTITIONS, TOPIC, SteadyWriter, create_topic, numbers_at
from tests.daemon.test_mirror import _count, create, produce
from tests.daemon.test_planning import DAY, WEEK, partitions_of, plan, setting
from tests.daemon.test_workers import Daemon

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
AUDITS, WRITES_MAX, ROUNDS, RECORDS = 3, 40, 8, 30
SECONDS = 3 * PATIENCE_SECONDS


@contextmanager
def killed_in_turn(daemons: Sequence[Daemon]) -> Iterator[None]:
    """Each daemon is killed and started again once it is at work, one after the other and all over again."""
    ending = threading.Event()
    failures: list[BaseException] = []

    def kill() -> None:
        try:
            for daemon in cycle(daemons):
                daemon.wait_for(lambda daemon=daemon: is_at_work(daemon), "at work")
                if ending.is_set():
                    return
                daemon.process.kill()
                daemon.start()
        except BaseException as failure:  # noqa: BLE001 raised where it belongs
            failures.append(failure)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    assert not failures, failures


def is_at_work(daemon: Daemon) -> bool:
    routes = daemon.told()["routes"].values()
    return bool(routes) and all(route["state"] == "running" for route in routes)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_audit_tells_of_no_difference_whoever_is_killed_while_it_reads(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create_topic(source)
    daemons = [Daemon(mirror(*clusters, delivery=delivery)) for _ in range(2)]
    for daemon in daemons:
        daemon.start()
    file = daemons[0].process.file
    produce(source, TOPIC, range(100), PARTITIONS)
    daemons[0].process.wait_copied()
    with SteadyWriter(source, 100) as writer, killed_in_turn(daemons):
        for _ in range(AUDITS):
            for options in ((), ("--deep",)):
                code, route = audit(file, *options, seconds=SECONDS)
                told = (code, found(route), route["problem"])
                assert told == (0, [], None), (options, told, route["outcomes"])
    daemons[0].process.wait_copied()
    numbers = numbers_at(destination)
    assert numbers.keys() == set(range(writer.written))
    if delivery == "exactly_once":
        assert set(numbers.values()) == {1}


class World:
    """Source topics whose copies lack something, more of them each round."""

    def __init__(self, clusters: Clusters, folder: Path) -> None:
        self.source, self.destination = clusters
        self.file = folder / "world.yaml"
        self._rounds = 0

    def write(self, **route: Any) -> Path:
        """The file; `orders` is asked for."""
        declared = {"orders": {"partitions": 2, "config": {"retention.ms": int(DAY)}}}
        topology = {
            "clusters": {
                "jfk": {"bootstrap": [str(at) for at in self.source.bootstrap]},
                "aggregate": {
                    "bootstrap": [str(at) for at in self.destination.bootstrap],
                    "topics": declared,
                },
            },
            "routes": [
                {
                    "from": "jfk",
                    "to": "aggregate",
                    "topics": {"include": ["flights.*"]},
                    "refresh_interval_ms": 300,
                    "commit_interval_ms": 100,
                    **route,
                }
            ],
            "data_dir": "data",
            "defaults": {"heartbeats": False},
        }
        self.file.write_text(yaml.safe_dump(topology))
        return self.file

    def disturb(self) -> list[str]:
        """One topic has no copy, one too few partitions and another setting at its copy; their names."""
        self._rounds += 1
        fresh, grown = f"flights-{self._rounds}", f"flights-{self._rounds}-grown"
        create(self.source, fresh, 2, **{"retention.ms": DAY})
        create(self.destination, f"jfk.{grown}", 1, **{"retention.ms": DAY})
        create(self.source, grown, 3, **{"retention.ms": WEEK})
        return [fresh, grown]

    def is_copied(self, topics: Sequence[str]) -> bool:
        """Whether the records of these are there."""
        return self.is_mended(topics) and all(
            _count(self.destination, f"jfk.{topic}", 2) >= RECORDS for topic in topics
        )

    def is_mended(self, topics: Sequence[str]) -> bool:
        """Whether copies are as their topics are."""
        return all(
            partitions_of(self.destination, f"jfk.{topic}") == partitions_of(self.source, topic)
            and setting(self.destination, f"jfk.{topic}", "retention.ms")
            == setting(self.source, topic, "retention.ms")
            for topic in topics
        )


@pytest.fixture
def world(clusters: Clusters, tmp_path: Path) -> World:
    return World(clusters, tmp_path)


def killed_at_write(number: int, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of `mirrormaker`, killed in place of one of its writes, if it has so many."""
    line = [sys.executable, "-m", "tests.daemon.killed_command", str(number), *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_an_apply_that_is_killed_at_any_write_is_ended_by_the_same_command(world: World) -> None:
    file = world.write()
    saved = file.with_suffix(".plan")
    for number in count(1):
        topics = world.disturb()
        held = f"flights-held-{number}"
        for cluster, topic in ((world.source, held), (world.destination, f"jfk.{held}")):
            create(cluster, topic, 1)
            produce(cluster, topic, range(3), 1)
        assert plan(file, "--out", str(saved))[0] == 2
        command = ("apply", str(file), "--plan", str(saved), "--force")
        killed = killed_at_write(number, *command)
        assert killed.returncode in (0, KILLED), killed.stderr
        again = mirrormaker(*command)
        assert again.returncode == 0, (killed.stderr, again.stdout, again.stderr)
        code, told = plan(file)
        assert (code, told["steps"]) == (0, []), killed.stderr
        assert world.is_mended(topics)
        if killed.returncode == 0:
            break
        assert number < WRITES_MAX
    assert number > 4


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_a_daemon_is_killed_at_the_other_one_ends(
    world: World, mirror: MirrorFactory, delivery: str
) -> None:
    """Whichever of its writes it is killed in place of; one that has not so many is killed at rest."""
    file = world.write(delivery=delivery)
    topology = yaml.safe_load(file.read_text())
    other = file.with_name("other.yaml")
    other.write_text(yaml.safe_dump(topology | {"data_dir": "other-data"}))
    left = Daemon(mirror.of_file(other))
    left.start()
    left.wait_for(lambda: is_at_work(left), "at work")
    killed_at: list[int] = []
    for number in range(1, ROUNDS + 1):
        with killed_daemon(file, number) as killed:
            here = Daemon(MirrorProcess(file, file.with_suffix(".log"), killed))
            wait_until(
                lambda here=here, killed=killed: killed.poll() is not None or is_at_work(here),
                "killed, or at work",
                SECONDS,
            )
            topics = world.disturb()
            for topic in topics:
                produce(world.source, topic, range(RECORDS), 2)
            wait_until(
                lambda topics=topics, killed=killed: killed.poll() is not None or world.is_copied(topics),
                "killed, or copied by somebody",
                SECONDS,
            )
            killed_at += [number] if killed.returncode == KILLED else []
        left.wait_for(lambda topics=topics: world.is_mended(topics), "mended")
        left.process.until(lambda topics=topics: _are_copied(left, topics), f"copied, after {number}")
    assert killed_at, "it comes to write"
    code, told = plan(other)
    assert (code, told["steps"]) == (0, [])
    for options in ((), ("--deep",)):
        code, route = audit(other, *options, seconds=SECONDS)
        assert (code, found(route)) == (0, []), (options, route["outcomes"])
        assert route["outcomes"].get("pending", 0) == 0
    assert left.process.stop() == 0


@contextmanager
def killed_daemon(file: Path, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that is killed in place of one of its writes."""
    command = [sys.executable, "-m", "tests.daemon.killed_command", str(number), "run", str(file)]
    with file.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _are_copied(daemon: Daemon, topics: Sequence[str]) -> bool:
    """Whether the daemon has copied all that is in these."""
    partitions = daemon.told()["routes"]["jfk-to-aggregate"]["partitions"]
    own = {name: each for name, each in partitions.items() if name.rpartition("-")[0] in topics}
    return len(own) == 5 and all(each["committed"] >= each["source_end"] for each in own.values())
