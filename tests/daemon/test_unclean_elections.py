"""Sources whose leaders are elected uncleanly, again and again, with and without a mirror at work: whatever
its delivery, what the destination lacks or has beside what the source has in the end is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.audits import audit, found
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, wait_until
from tests.daemon.test_failure_policies import notes
from tests.daemon.test_mirror import address, produce

NODES = (1, 2, 3)
ROUNDS = 6
UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 3,
    "replica.fetch.backoff.ms": 100,
    "replica.lag.time.max.ms": 1500,
    "zookeeper.session.timeout.ms": 2000,
}


class Source:
    """Three nodes, each of which may be away; what was written to them is numbered."""

    def __init__(self, cluster: EmbeddedCluster, chance: Random) -> None:
        self.cluster = cluster
        self.written = 0
        self._chance = chance
        self._admin = AdminClient({"bootstrap.servers": address(cluster), "log_level": 0})

    def create(self) -> None:
        def is_made() -> bool:
            """The controller may hear only later of a node that is ready."""
            try:
                self._admin.create_topics([NewTopic("flights", 1, 3)])["flights"].result(PATIENCE_SECONDS)
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        wait_until(is_made, "the topic is made")
        wait_until(lambda: self._in_sync() == set(NODES), "all have it")

    def write(self) -> None:
        first = self.written
        self.written += self._chance.randint(5, 60)
        produce(self.cluster, "flights", range(first, self.written), 1, acks=1)

    def _partition(self) -> tuple[int, set[int]]:
        try:
            found = self._admin.list_topics("flights", timeout=5).topics["flights"].partitions.get(0)
        except KafkaException:
            return -1, set()
        return (-1, set()) if found is None else (found.leader, set(found.isrs))

    def _in_sync(self) -> set[int]:
        return self._partition()[1]

    def leave_leader_alone(self) -> int:
        """The others end; who leads goes on, and what is written from now on nobody else has."""
        leader, _ = self._partition()
        for node in NODES:
            if node != leader:
                self.cluster.kill_node(node)
        wait_until(lambda: self._partition() == (leader, {leader}), "it leads alone")
        return leader

    def replace(self, leader: int) -> None:
        """It ends, the others come, and one of them is elected."""
        self.cluster.kill_node(leader)
        others = [node for node in NODES if node != leader]
        self._chance.shuffle(others)
        for node in others[: self._chance.randint(1, 2)]:
            self.cluster.start_node(node)
        wait_until(lambda: self._partition()[0] not in (-1, leader), "another leads")

    def settle(self) -> None:
        """All are there, and have the same."""
        for node in NODES:
            if node not in self.cluster.pids:
                self.cluster.start_node(node)
        wait_until(lambda: self._in_sync() == set(NODES), "all are in sync")


def numbers(cluster: EmbeddedCluster, topic: str) -> list[int]:
    """What is in a topic, in its order."""
    return list(_numbers(cluster, topic))


def _numbers(cluster: EmbeddedCluster, topic: str) -> Iterator[int]:
    reader = Consumer({"bootstrap.servers": address(cluster), "group.id": "r", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = reader.poll(PATIENCE_SECONDS)
            assert message is not None
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            assert error is None, error
            yield int(message.value() or b"")
    finally:
        reader.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_what_is_copied_of_a_source_with_unclean_elections_is_what_it_has_and_what_it_is_told_to_have_lost(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str, seed: int
) -> None:
    chance = Random(seed)
    source, destination = Source(cluster("jfk", brokers=3, settings=UNCLEAN), chance), cluster("aggregate")
    source.create()
    policies = {"source_truncated": "skip_and_record"}
    running = mirror(source.cluster, destination, on=policies, delivery=delivery)
    running.start()
    source.write()
    running.wait_copied()
    for _ in range(ROUNDS):
        leader = source.leave_leader_alone()
        source.write()
        if chance.random() < 0.8:
            running.wait_copied()
        is_away = chance.random() < 0.5
        if is_away:
            assert running.stop() == 0
        source.replace(leader)
        source.write()
        if chance.random() < 0.5:
            source.settle()
            source.write()
        if is_away:
            running.start()
        source.settle()
        running.wait_copied()
    source.write()
    running.wait_copied()
    assert running.stop() == 0
    there, copied = numbers(source.cluster, "flights"), numbers(destination, "jfk.flights")
    noted = [note for _, note in notes(destination)]
    assert {note["reason"] for note in noted} <= {"source_truncated"}, noted  # every process ended well
    told = sum(end - first for first, end in (note["lost"] for note in noted))
    assert len(set(copied)) == len(copied)
    assert set(there) <= set(copied)
    assert [number for number in copied if number in set(there)] == there
    assert len(set(copied) - set(there)) == told
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["problem"]) == (0, [], None), options
        assert route["outcomes"].get("lost_at_source", 0) == told, options
