import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from broker.child_process import EmbeddedError
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ConfigurationError
from broker.loopback import accepts, free_ports
from tests.conftest import START_TIMEOUT_MS, until


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), fsync=False) as server:
        yield server


def spec(zookeeper: EmbeddedZooKeeper, directory: Path, *, port: int | None = None) -> ClusterSpec:
    return ClusterSpec(
        name=directory.name,
        zookeeper_connect=zookeeper.connect_string(directory.name),
        port=port if port is not None else free_ports(1)[0],
        directory=directory,
        settings={"zookeeper.session.timeout.ms": 2000},
        start_timeout_ms=START_TIMEOUT_MS,
    )


def is_open(cluster: EmbeddedCluster) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(cluster.bootstrap[0]) == 0


def test_a_cluster_comes_up_ready_and_goes_down_clean(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    cluster = EmbeddedCluster(spec(zookeeper, tmp_path / "jfk"))
    cluster.start()
    try:
        assert is_open(cluster)
        assert set(cluster.pids) == {1}
        assert cluster.dead_nodes() == {}
        assert cluster.stop_node(1) == 0
        assert not is_open(cluster)
    finally:
        cluster.stop()
    assert (tmp_path / "jfk" / "node-1" / "meta.properties").exists()


def test_a_killed_node_comes_back_under_its_id(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with EmbeddedCluster(spec(zookeeper, tmp_path / "lga")) as cluster:
        cluster.kill_node(1)
        assert not is_open(cluster)
        cluster.start_node(1)
        assert is_open(cluster)


def test_a_taken_port_is_named(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=str(port)):
            EmbeddedCluster(spec(zookeeper, tmp_path / "taken", port=port)).start()


def test_a_node_that_dies_early_shows_the_end_of_its_log(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    wrong = replace(spec(zookeeper, tmp_path / "wrong"), settings={"no.such.setting": 1})
    with pytest.raises(EmbeddedError, match=r"(?s)wrong node 1 exited with 1 .*no\.such\.setting"):
        EmbeddedCluster(wrong).start()


def test_a_node_that_dies_later_is_noticed(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with EmbeddedCluster(spec(zookeeper, tmp_path / "ewr")) as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        until(lambda: bool(cluster.dead_nodes()))
        assert "zookeeper_connected" in cluster.dead_nodes()[1]
        cluster.launch_node(1)
        until(lambda: accepts(cluster.bootstrap[0]), seconds=START_TIMEOUT_MS / 1000)
        assert cluster.dead_nodes() == {}


def test_nodes_die_with_a_parent_that_is_killed(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        from broker.embedded import ClusterSpec, EmbeddedCluster
        spec = ClusterSpec(
            name="orphan",
            zookeeper_connect={zookeeper.connect_string("orphan")!r},
            port={free_ports(1)[0]},
            directory=Path({str(tmp_path)!r}),
        )
        cluster = EmbeddedCluster(spec)
        cluster.start()
        print(cluster.pids[1], flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        node = psutil.Process(int(parent.stdout.readline()))
        assert node.is_running()
        parent.kill()
    node.wait(timeout=20)


def test_internal_topics_have_as_many_replicas_as_there_are_nodes(tmp_path: Path) -> None:
    def settings(brokers: int, **overrides: object) -> dict[str, object]:
        cluster = ClusterSpec(
            name="c",
            zookeeper_connect="127.0.0.1:2181/c",
            port=9092,
            directory=tmp_path,
            brokers=brokers,
            settings=overrides,
        )
        last = cluster.node_settings(brokers - 1)
        assert yaml.safe_load(yaml.safe_dump(last)) == last
        return last

    factor = "offsets.topic.replication.factor"
    assert [settings(brokers)[factor] for brokers in (1, 2, 3, 5)] == [1, 2, 3, 3]
    assert settings(3, **{factor: 1})[factor] == 1
    third = settings(3)
    assert (third["broker.id"], third["listeners"]) == (3, "PLAINTEXT://127.0.0.1:9094")
    assert third["log.dirs"] == str(tmp_path / "node-3")
