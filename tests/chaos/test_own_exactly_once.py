"""Our transactional producer and our consumer, copying from topic to topic; they and the nodes are killed."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from pathlib import Path

from broker.child_process import ChildProcess
from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.producer import Producer, ProducerSettings
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.types import TopicPartition
from tests.chaos.disturbance import Disturbance
from tests.chaos.exactly_once_copier import DESTINATION, READING, SOURCE
from tests.conftest import cluster_spec

COUNT = 20_000
PARTITIONS = 4
COPIERS = 2
SETTINGS = {
    "zookeeper.session.timeout.ms": 2_000,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
}


class Copiers:
    """Processes that copy; one that was killed is replaced by another with the same transactional id."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path) -> None:
        self._addresses = ",".join(map(str, cluster.bootstrap))
        self._directory = directory
        self._running = {number: self._start(number) for number in range(COPIERS)}

    def replace(self, number: int) -> None:
        self._running.pop(number).kill()
        self._running[number] = self._start(number)

    def replace_ended(self) -> None:
        """Those that gave up: because another took their place, or a coordinator was away too long."""
        for number, copier in list(self._running.items()):
            if copier.has_exited():
                self.replace(number)

    def close(self) -> None:
        for copier in self._running.values():
            copier.kill()

    def _start(self, number: int) -> ChildProcess:
        module = "tests.chaos.exactly_once_copier"
        command = [sys.executable, "-m", module, self._addresses, f"copier-{number}"]
        return ChildProcess.start(f"copier {number}", command, self._directory / f"copier-{number}.log")


async def fill(cluster: EmbeddedCluster) -> None:
    async with Cluster(cluster.bootstrap) as client:
        for name in (SOURCE, DESTINATION):
            topic = NewTopic(name=name, partitions=PARTITIONS, replication_factor=3)
            await Admin(client).create_topic(topic)
        async with Producer(client, settings=ProducerSettings(batch_bytes=1_000)) as producer:
            for number in range(COUNT):
                await producer.send(SOURCE, b"%06d" % number, partition=number % PARTITIONS)


async def read_copy(cluster: EmbeddedCluster, copiers: Copiers) -> dict[int, list[bytes]]:
    """The copy by partition, once it has as many records as there are."""
    values: dict[int, list[bytes]] = defaultdict(list)
    async with Cluster(cluster.bootstrap) as client, Consumer(client, settings=READING) as consumer:
        consumer.assign([TopicPartition(DESTINATION, number) for number in range(PARTITIONS)])
        while sum(map(len, values.values())) < COUNT:
            copiers.replace_ended()
            for record in await consumer.take(1_000):
                values[record.partition].append(record.value or b"")
    return values


def test_every_record_is_copied_once_and_in_order_whoever_is_killed(
    own_zookeeper: EmbeddedZooKeeper, disturbance: Disturbance, tmp_path: Path
) -> None:
    spec = cluster_spec(own_zookeeper, tmp_path, "nodes", brokers=3, settings=SETTINGS)
    with EmbeddedCluster(spec) as cluster:
        asyncio.run(fill(cluster))
        copiers = Copiers(cluster, tmp_path)
        try:
            for _ in disturbance:
                copiers.replace_ended()
                if disturbance.chance.random() < 0.7:
                    copiers.replace(disturbance.chance.randrange(COPIERS))
                else:
                    victim = disturbance.chance.choice([1, 2, 3])
                    cluster.kill_node(victim)
                    disturbance.pause(0.2, 3.0)
                    cluster.start_node(victim)
            values = asyncio.run(read_copy(cluster, copiers))
        finally:
            copiers.close()
    expected = {
        number: [b"%06d" % value for value in range(number, COUNT, PARTITIONS)]
        for number in range(PARTITIONS)
    }
    assert values == expected
