"""What every package's tests may use: one ZooKeeper for the whole run, and clusters of real nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from hypothesis import settings as hypothesis_settings

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports_in_a_row

hypothesis_settings.register_profile("no deadlines", deadline=None)  # timings are of the machine
hypothesis_settings.load_profile("no deadlines")

TEST_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "zookeeper.session.timeout.ms": 6000,
}
"""What makes nodes quick enough for tests."""


class ClusterFactory(Protocol):
    """Starts clusters that end with the test."""

    def __call__(
        self, name: str = "cluster", *, brokers: int = 1, settings: Mapping[str, object] | None = None
    ) -> EmbeddedCluster:
        """A running cluster of real nodes, below a chroot of its own; its files are under `tmp_path/name`."""
        ...


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper for the whole run; every user takes a chroot of its own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), fsync=False) as server:
        yield server


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ClusterFactory]:
    """Starts real nodes as child processes on free ports; all of them end with the test."""
    with contextlib.ExitStack() as stack:

        def start(
            name: str = "cluster", *, brokers: int = 1, settings: Mapping[str, object] | None = None
        ) -> EmbeddedCluster:
            spec = cluster_spec(zookeeper, tmp_path, name, brokers=brokers, settings=settings)
            return stack.enter_context(EmbeddedCluster(spec))

        yield start


def cluster_spec(
    zookeeper: EmbeddedZooKeeper,
    directory: Path,
    name: str,
    *,
    brokers: int = 1,
    settings: Mapping[str, object] | None = None,
) -> ClusterSpec:
    """A cluster below a fresh chroot, on ports that are free now, with its files under `directory/name`."""
    return ClusterSpec(
        name=name,
        zookeeper_connect=zookeeper.connect_string(f"{name}-{uuid4().hex[:8]}"),
        port=free_ports_in_a_row(brokers),
        directory=directory / name,
        brokers=brokers,
        settings={**TEST_SETTINGS, **(settings or {})},
    )


def until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    """Return once `condition` holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
