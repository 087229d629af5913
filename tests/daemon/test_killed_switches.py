"""Commands that switch a failover group, killed at their writes and run again; routes of every delivery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirrormaker
from tests.daemon.failover_pair import TOPIC, group_file
from tests.daemon.switch_drill import SIDES, Drill, all_at
from tests.daemon.test_mirror import create

pytestmark = pytest.mark.long
WRITES_MAX, PARTS = 40, 3
ROUTES: dict[str, dict[str, Any]] = {
    "exactly once": {"delivery": "exactly_once"},
    "at most once": {"delivery": "at_most_once"},
    "several workers": {"resources": {"workers": 2}},
    "exactly once by several workers": {"delivery": "exactly_once", "resources": {"workers": 2}},
}


@pytest.fixture
def route() -> dict[str, Any]:
    """What all routes of the group have."""
    return {}


@pytest.fixture
def drill(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path, route: dict[str, Any]
) -> Iterator[Drill]:
    """At home, with a daemon at work."""
    clusters = {"primary": cluster("primary"), "standby": cluster("standby")}
    create(clusters["primary"], TOPIC, 1)
    running = mirror.of_file(group_file(tmp_path, clusters, **route))
    running.start()
    drill = Drill(clusters, running)
    drill.begin()
    yield drill
    assert running.stop() == 0


@pytest.mark.timeout(1200)
def test_a_switch_that_is_killed_at_any_write_is_ended_by_the_same_command(drill: Drill) -> None:
    for number in range(1, WRITES_MAX):
        killed = [drill.switch(verb, number) for verb in SIDES]
        if not any(killed):
            break
    assert 8 < number < WRITES_MAX
    drill.end()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_a_group_of_every_delivery_switches_killed_or_not_and_has_every_record_once(drill: Drill) -> None:
    drill.switch("failover", kill_at=0)
    drill.switch("failback", kill_at=4)
    drill.switch("failover", kill_at=6)
    drill.end()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("choice", ["copy", "report"])
@pytest.mark.parametrize("first", range(1, PARTS + 1))
def test_a_forced_switch_that_is_killed_at_any_write_loses_nothing_and_finds_the_tail(
    drill: Drill, choice: str, first: int
) -> None:
    """All writes, in so many tests."""
    primary = drill.clusters["primary"]
    assert isinstance(primary, EmbeddedCluster)
    for number in range(first, WRITES_MAX, PARTS):
        drill.write(3)
        drill.wait_whole()
        primary.kill_node(1)
        killed = [drill.command("failover", number, "--force", stage="away")]
        drill.write(3)
        primary.start_node(1)
        drill.at = "primary"
        drill.write(2)  # by somebody who has not heard of it
        if choice == "report":
            drill.left |= {drill.written - 2, drill.written - 1}
        killed.append(drill.command("failback", number, "--tail", choice))
        drill.wait_whole()
        if not any(killed):
            break
    assert 10 < number < WRITES_MAX
    for name, each in drill.clusters.items():
        assert sorted(all_at(each)) == drill.wanted(name)
    for options in ([], ["--deep"]):
        audited = mirrormaker("audit", str(drill.file), *options)
        assert audited.returncode == 0, audited.stdout
