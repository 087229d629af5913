"""Settings of the chaos tests: `CHAOS_SECONDS` is how long each scenario goes on (60, those of a whole
cluster and of each delivery of a mirror 600), `CHAOS_SEED` repeats the choices of a failed run, whose seed is
in its report. What the machine makes of them may differ.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.disturbance import Disturbance
from tests.conftest import cluster_spec
from tests.node.transactions import UNVERIFIED

CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "60"))
LONG_SECONDS = float(os.environ.get("CHAOS_SECONDS", "600"))
AFTERMATH_SECONDS = 180
"""What a scenario may take beside the chaos itself: to start, to catch up, to check."""
SESSION_TIMEOUT_MS = 2_000
NODE_SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "log.segment.bytes": 1_000_000,
    "num.partitions": 4,
    **UNVERIFIED,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAOS_SECONDS + AFTERMATH_SECONDS))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """What every random choice of a scenario comes from; a failure tells its seed."""
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
    request.node.add_report_section("setup", "seed", f"repeat with CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def disturbance(chance: random.Random) -> Disturbance:
    """The clock of a scenario."""
    return Disturbance(chance, seconds=CHAOS_SECONDS)


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that may be taken away."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def node(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A cluster of one node."""
    with EmbeddedCluster(cluster_spec(own_zookeeper, tmp_path, "node", settings=NODE_SETTINGS)) as cluster:
        yield cluster


@pytest.fixture
def other_node(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Another cluster of one node."""
    with EmbeddedCluster(cluster_spec(own_zookeeper, tmp_path, "other", settings=NODE_SETTINGS)) as cluster:
        yield cluster
