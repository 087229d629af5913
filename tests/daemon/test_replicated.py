"""The shipped topology of clusters of three nodes: each loses one for a while, and the mirror between them
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import ClusterSpec, EmbeddedCluster
from broker.loopback import free_ports_in_a_row
from tests.conftest import OWN_PORTS
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, wait_until
from tests.daemon.test_mirror import address, assert_complete_and_in_order, consume, produce

SHIPPED = Path(__file__).parents[2] / "topologies" / "replicated.yaml"
NODES, PARTITIONS = 3, 27
"""So many that each node of the source is fetched from within a session, which ends with the node."""
TOPIC, COPY = "flights", "jfk.flights"
DURABLE = {"enable.idempotence": True}


class Replicated:
    """The topology as `mirrormaker up` runs it, on other ports."""

    def __init__(self, folder: Path, mirror: MirrorFactory) -> None:
        topology = yaml.safe_load(SHIPPED.read_text())
        self.data = folder / "data"
        self.clusters = {}
        for name, cluster in topology["clusters"].items():
            cluster["embedded"]["port"] = free_ports_in_a_row(NODES, among=OWN_PORTS)
            self.clusters[name] = self._reached(name, cluster["embedded"])
        file = folder / "replicated.yaml"
        file.write_text(yaml.safe_dump(topology | {"data_dir": str(self.data)}))
        self.process: MirrorProcess = mirror.of_file(file, verb="up")

    def _reached(self, name: str, embedded: dict[str, int]) -> EmbeddedCluster:
        """Only for its addresses: `up` starts the nodes."""
        spec = ClusterSpec(name=name, zookeeper_connect="", directory=self.data, **embedded)
        return EmbeddedCluster(spec)

    def start(self) -> None:
        self.process.start()
        wait_until(lambda: "\nready\n" in self.process.log.read_text(), "ready", 2 * PATIENCE_SECONDS)
        assert self.process.process is not None
        children = psutil.Process(self.process.process.pid).children(recursive=True)
        self._nodes = {child.cmdline()[-1]: child for child in children}

    def kill_node(self, cluster: str, broker_id: int) -> None:
        """As a crash of its process does."""
        self._nodes[str(self.data / "clusters" / cluster / f"node-{broker_id}.yaml")].kill()

    def replicas(self, cluster: str, topic: str) -> list[tuple[set[int], int]]:
        """Of each partition the replicas and the leader."""
        admin = AdminClient({"bootstrap.servers": address(self.clusters[cluster]), "log_level": 0})
        known = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions
        return [(set(partition.replicas), partition.leader) for _, partition in sorted(known.items())]

    def is_whole(self, cluster: str, topic: str) -> bool:
        """Whether every node has every record, those that were started again too."""
        admin = AdminClient({"bootstrap.servers": address(self.clusters[cluster]), "log_level": 0})
        known = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions.values()
        return all(set(partition.isrs) == {1, 2, 3} for partition in known)


@pytest.fixture
def replicated(tmp_path: Path, mirror: MirrorFactory) -> Iterator[Replicated]:
    running = Replicated(tmp_path, mirror)
    running.start()
    yield running
    assert running.process.stop() == 0


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_mirror_between_clusters_that_lose_a_node_each_loses_nothing(replicated: Replicated) -> None:
    source, destination = replicated.clusters["jfk"], replicated.clusters["aggregate"]
    admin = AdminClient({"bootstrap.servers": address(source)})
    topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(PATIENCE_SECONDS)
    produce(source, TOPIC, range(1000), PARTITIONS, **DURABLE)
    replicated.process.wait_copied()
    copies = replicated.replicas("aggregate", COPY)
    assert [replicas for replicas, _ in copies] == [{1, 2, 3}] * PARTITIONS
    replicated.kill_node("jfk", 1)
    replicated.kill_node("aggregate", copies[0][1])
    produce(source, TOPIC, range(1000, 2000), PARTITIONS, **DURABLE)
    replicated.process.wait_copied()
    assert_complete_and_in_order(consume(destination, COPY, PARTITIONS), 2000)
    wait_until(lambda: replicated.is_whole("jfk", TOPIC), "the node of the source is back")
    wait_until(lambda: replicated.is_whole("aggregate", COPY), "the node of the destination is back")
