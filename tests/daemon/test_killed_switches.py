"""Commands that switch a failover group, killed at each of their writes and run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, MirrorProcess, mirrormaker
from tests.daemon.test_carried_groups import read
from tests.daemon.test_failover import (
    KILLED,
    TOPIC,
    Clusters,
    group_file,
    kill_at_write,
    records_at,
    wait_count,
)
from tests.daemon.test_mirror import create, produce

WRITES_MAX = 40
SIDES = {"failover": "standby", "failback": "primary"}


@pytest.fixture
def clusters(cluster: ClusterFactory) -> Clusters:
    return {"primary": cluster("primary"), "standby": cluster("standby")}


class Drill:
    """A group that is switched there and back while records are written and read where it is at work."""

    def __init__(self, clusters: Clusters, running: MirrorProcess) -> None:
        self.clusters = clusters
        self.file = running.file
        self.at = "primary"
        self.written = 0
        self.had: list[int] = []

    def switch(self, verb: str, kill_at: int) -> bool:
        """Switch, killed at one of the writes and run again; whether it was killed."""
        self.write(6)
        self.read(4)
        killed = kill_at_write(kill_at, verb, self.file)
        again = mirrormaker(verb, str(self.file), "orders", "--output", "json", "--timeout", "30")
        where = f"{verb} {killed.stderr}{again.stderr}"
        if again.returncode:
            assert f"is at {SIDES[verb]!r} already" in again.stderr, where
        else:
            told = json.loads(again.stdout)
            assert (told["cluster"], told["stage"], told["fenced"]) == (SIDES[verb], "settled", []), where
        self.at = SIDES[verb]
        self.read(self.written - len(self.had))
        assert self.had == list(range(self.written)), where
        return killed.returncode == KILLED

    def write(self, count: int) -> None:
        """At the side that is at work."""
        produce(self.clusters[self.at], TOPIC, range(self.written, self.written + count), 1)
        self.written += count

    def read(self, count: int) -> None:
        """The same, by the group."""
        start = None if self.had else 0
        self.had += read(self.clusters[self.at], "readers", TOPIC, count, start=start)

    def end(self) -> None:
        """Both sides have every record once."""
        for each in self.clusters.values():
            wait_count(each, self.written)
            assert records_at(each) == list(range(self.written))


@pytest.fixture
def drill(clusters: Clusters, mirror: MirrorFactory, tmp_path: Path) -> Iterator[Drill]:
    """At home, with a daemon at work."""
    create(clusters["primary"], TOPIC, 1)
    running = mirror.of_file(group_file(tmp_path, clusters))
    running.start()
    produce(clusters["primary"], TOPIC, range(0), 1)
    yield Drill(clusters, running)
    assert running.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_switch_that_is_killed_at_any_write_is_ended_by_the_same_command(drill: Drill) -> None:
    for number in range(1, WRITES_MAX):
        killed = [drill.switch(verb, number) for verb in SIDES]
        if not any(killed):
            break
    assert 8 < number < WRITES_MAX
    drill.end()
