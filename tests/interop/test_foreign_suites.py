"""Other projects' own tests against our nodes; which of them they do not pass is in
ops/foreign_suites.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import accepts, free_ports
from broker.types import HostPort
from ops.foreign_suites import load
from tests.conftest import cluster_spec
from tests.interop import franz_go_suite, kafka_python_suite
from tests.interop.conftest import go_program

pytestmark = pytest.mark.timeout(1800)
SUITES = load()
WANTED_SETTINGS = {
    "num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
}
"""What the suites want of every broker; the sessions of some groups are short."""


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostPort]:
    """A node as suites for one broker want it: its id is 0."""
    directory = tmp_path_factory.mktemp("lone-node")
    address = HostPort("127.0.0.1", free_ports(1)[0])
    settings = {
        **WANTED_SETTINGS,
        "broker.id": 0,
        "listeners": f"PLAINTEXT://{address}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "zookeeper.connect": zookeeper.connect_string("lone-node"),
        "log.dirs": str(directory / "data"),
    }
    (directory / "node.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "broker.cli", "start", str(directory / "node.yaml")]
    process = ChildProcess.start("lone node", command, directory / "node.log")
    try:
        process.wait_until(lambda: accepts(address), timeout_ms=30_000)
        yield address
    finally:
        process.stop(timeout_ms=30_000)


@pytest.fixture(scope="module")
def three_nodes(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HostPort, ...]]:
    """Nodes that keep every partition three times, the coordinators' own too."""
    directory = tmp_path_factory.mktemp("three-nodes")
    spec = cluster_spec(zookeeper, directory, "three-nodes", brokers=3, settings=WANTED_SETTINGS)
    with EmbeddedCluster(spec) as cluster:
        yield cluster.bootstrap


def test_kafka_pythons_own_tests_pass(node: HostPort, tmp_path: Path) -> None:
    suite = SUITES["kafka-python"]
    outcome = kafka_python_suite.run(kafka_python_suite.fetch(tmp_path), node)
    assert {name: said for name, said in outcome.failed.items() if name not in suite.fails} == {}
    assert set(outcome.failed) == set(suite.fails)
    assert outcome.skipped == set(suite.skips)
    assert len(outcome.passed) > 30


@pytest.fixture(scope="module")
def franz_go_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests that franz-go brings, as a program."""
    return go_program(tmp_path_factory.mktemp("go") / "tests", "test", "-c", franz_go_suite.PACKAGE)


def test_franz_gos_own_tests_pass_on_its_own_broker(franz_go_tests: Path, tmp_path: Path) -> None:
    """What the next test tells of a node is then due to the node."""
    with franz_go_suite.kfake(go_program(tmp_path / "kfake", "build", "./kfake")) as broker:
        outcome = franz_go_suite.run(franz_go_tests, [broker])
    assert outcome.failed == {}
    assert outcome.skipped < set(SUITES["franz-go"].skips)
    assert len(outcome.passed) > 400


def test_franz_gos_own_tests_pass(node: HostPort, franz_go_tests: Path) -> None:
    _expect_all_that_apply(franz_go_tests, [node])


def test_franz_gos_own_tests_pass_on_three_nodes(
    three_nodes: tuple[HostPort, ...], franz_go_tests: Path
) -> None:
    _expect_all_that_apply(franz_go_tests, three_nodes)


def _expect_all_that_apply(franz_go_tests: Path, brokers: Sequence[HostPort]) -> None:
    suite = SUITES["franz-go"]
    outcome = franz_go_suite.run(franz_go_tests, brokers, without=suite.fails)
    assert outcome.failed == {}
    assert outcome.skipped == set(suite.skips)
    assert len(outcome.passed) > 400


def test_franz_gos_groups_keep_every_record_on_three_nodes_while_connections_break(
    three_nodes: tuple[HostPort, ...], franz_go_tests: Path
) -> None:
    outcome = franz_go_suite.run_with_breaking_connections(franz_go_tests, three_nodes)
    assert outcome.failed == {}
    assert outcome.skipped == set()
    assert "TestGroupETL" in outcome.passed
