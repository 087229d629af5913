"""Processes that meet in ZooKeeper, join, leave and are killed while records keep coming."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.consumer_connector import GroupKind
from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory, until
from tests.node.group_processes import Entry, Group, runs

PARTITIONS = 8
TOPIC = "numbers"
COUNT = 400


class Load:
    """Numbered records, all acknowledged."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        bootstrap = str(cluster.bootstrap[0])
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
        self.sent: set[str] = set()

    def create(self, topic: str, partitions: int) -> None:
        (created,) = self._admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        created.result(30)

    def send(self, count: int, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        for _ in range(count):
            value = str(len(self.sent))
            self._producer.produce(topic, value, partition=len(self.sent) % partitions)
            self.sent.add(value)
        assert self._producer.flush(30) == 0

    def is_read(self, entries: list[Entry]) -> bool:
        return {entry.value for entry in entries} == self.sent


def test_every_partition_has_one_owner_and_no_record_is_lost(cluster: ClusterFactory, tmp_path: Path) -> None:
    running = cluster()
    load = Load(running)
    load.create(TOPIC, PARTITIONS)
    group = Group(
        bootstrap=str(running.bootstrap[0]),
        zookeeper=running.spec.zookeeper_connect,
        directory=tmp_path,
        pattern="numbers.*",
    )
    with group:
        first, second = group.join(), group.join()
        until(lambda: group.is_shared_out({TOPIC: PARTITIONS}))
        load.send(COUNT)
        group.join()
        load.send(COUNT)
        until(lambda: group.is_shared_out({TOPIC: PARTITIONS}) and len(set(group.owners().values())) == 3)
        first.stop()
        load.send(COUNT)
        until(lambda: group.is_shared_out({TOPIC: PARTITIONS}))
        until(lambda: load.is_read(group.entries()))
        handed_over = Counter(entry.value for entry in group.entries())
        assert max(handed_over.values()) == 1, "nothing is read twice where partitions are handed over"

        second.kill()
        load.send(COUNT)
        load.create("numbers-too", 3)
        load.send(COUNT, "numbers-too", 3)
        until(lambda: group.is_shared_out({TOPIC: PARTITIONS, "numbers-too": 3}))
        until(lambda: load.is_read(group.entries()))
        group.join(streams=3)
        until(lambda: group.is_shared_out({TOPIC: PARTITIONS, "numbers-too": 3}))
        for member in group.living:
            member.stop()
        assert group.owners() == {}
        for partition, by_process in runs(group.entries()).items():
            assert len(by_process) <= 6, (
                f"{partition} went from one to another more often than the group changed"
            )
            for run in by_process:
                offsets = [entry.offset for entry in run]
                assert offsets == sorted(set(offsets)), f"{partition} was read out of order"


def test_a_group_moves_to_a_coordinator_with_its_processes(cluster: ClusterFactory, tmp_path: Path) -> None:
    running = cluster()
    load = Load(running)
    load.create(TOPIC, PARTITIONS)
    kinds = (GroupKind.ZOOKEEPER, GroupKind.DUAL, GroupKind.COORDINATOR)
    entries: list[Entry] = []
    for turn, kind in enumerate(kinds):
        directory = tmp_path / str(turn)
        directory.mkdir()
        group = Group(
            bootstrap=str(running.bootstrap[0]),
            zookeeper=running.spec.zookeeper_connect,
            directory=directory,
            pattern=TOPIC,
            kind=kind,
        )
        with group:
            member = group.join()
            load.send(PARTITIONS * 5)
            until(lambda entries=entries, group=group: load.is_read(entries + group.entries()))
            member.stop()
            entries += group.entries()
    assert max(Counter(entry.value for entry in entries).values()) == 1, "no position was lost on the way"
