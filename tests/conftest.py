"""What every package's tests may use: one ZooKeeper for a whole run, and clusters of real nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from hypothesis import settings as hypothesis_settings

from broker.child_process import ChildProcess
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports_in_a_row, lasting_ports
from tests.programs import end_server, start_program

# Timings are of the machine. The same examples every time: a failure is of the change, and not of the draw.
hypothesis_settings.register_profile("same", deadline=None, derandomize=True)
hypothesis_settings.register_profile("new", deadline=None, print_blob=True)  # make fuzz
hypothesis_settings.load_profile("same")

TEST_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "zookeeper.session.timeout.ms": 6000,
}
"""What makes nodes quick enough for tests."""
START_TIMEOUT_MS = 120_000
"""How long a server may take to start on a machine that is busy with other things."""


def _own_ports() -> range:
    """The part of the ports that this one of several test processes chooses from: no other takes a port that
    a node is about to listen on, or comes back to.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = lasting_ports()
    size = len(ports) // workers
    return ports[worker * size : (worker + 1) * size]


OWN_PORTS = _own_ports()

for options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):  # a third less work in all where jobs are small
    os.environ.setdefault(options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_exception_interact(call: pytest.CallInfo[object]) -> None:
    """What Spark's JVM answers to a test that has run out of time is not the answer to the next one."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or call.excinfo is None or not call.excinfo.errisinstance(pytest.fail.Exception):
        return
    gateway = pyspark.SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests go first: one of several test processes then runs all of them, in one Spark, and the
    others do not wait for it in the end. That Spark starts is not counted to the time of the first.
    """
    items.sort(key=lambda item: "spark" not in item.path.parts)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """What commands are forked off ends with the run."""
    yield
    end_server()


class ClusterFactory(Protocol):
    """Starts clusters that end with the test."""

    def __call__(
        self, name: str = "cluster", *, brokers: int = 1, settings: Mapping[str, object] | None = None
    ) -> EmbeddedCluster:
        """A running cluster of real nodes, below a chroot of its own; its files are under `tmp_path/name`."""
        ...


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper for the whole run (of each process of it); every user takes a chroot of its own."""
    port = free_ports_in_a_row(1, among=OWN_PORTS)
    with EmbeddedZooKeeper(
        tmp_path_factory.mktemp("zookeeper"), port=port, fsync=False, timeout_ms=START_TIMEOUT_MS
    ) as server:
        yield server


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ClusterFactory]:
    """Starts real nodes as child processes on free ports; all of them end with the test."""
    with contextlib.ExitStack() as stack:

        def start(
            name: str = "cluster", *, brokers: int = 1, settings: Mapping[str, object] | None = None
        ) -> EmbeddedCluster:
            spec = cluster_spec(zookeeper, tmp_path, name, brokers=brokers, settings=settings)
            return stack.enter_context(EmbeddedCluster(spec, forked))

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
        port=free_ports_in_a_row(brokers, among=OWN_PORTS),
        directory=directory / name,
        brokers=brokers,
        settings={**TEST_SETTINGS, **(settings or {})},
        start_timeout_ms=START_TIMEOUT_MS,
    )


def forked(name: str, command: Sequence[str], log: Path) -> ChildProcess:
    """Start a node as embedded clusters do, in half of the time: `launch` of one."""
    with log.open("ab") as output:
        return ChildProcess(name, start_program("broker", *command[3:], output=output.fileno()), log)


def until(condition: Callable[[], bool], what: str = "", *, seconds: float = 30) -> None:
    """Return once `condition` holds; fails with `what` when it does not in time. Asking is given half of the
    time, as it may be a command: the rest is for what is waited for.
    """
    asked = time.monotonic()
    deadline = asked + seconds
    while not condition():
        answered = time.monotonic()
        assert answered < deadline, f"not within {seconds} s: {what}"
        time.sleep(max(0.01, answered - asked))
        asked = time.monotonic()
