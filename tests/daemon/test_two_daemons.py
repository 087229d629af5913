"""Daemons on two hosts with one file: who does what, and what becomes of it when one is killed."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, wait_until
from tests.daemon.test_mirror import address, consume, create, produce
from tests.daemon.test_workers import Daemon

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
GROUP, PARTITIONS = "readers", 4


@pytest.fixture
def clusters(cluster: ClusterFactory) -> Clusters:
    return cluster("jfk"), cluster("aggregate")


def two_daemons(clusters: Clusters, mirror: MirrorFactory) -> list[Daemon]:
    """With routes that could both write what ends in `anes`; one has them in the other order."""
    daemons = []
    for turned in (False, True):
        running = mirror(
            *clusters, heartbeats=True, sync={"groups": {"include": [GROUP], "interval_ms": 200}}
        )
        topology = yaml.safe_load(running.file.read_text())
        (route,) = topology["routes"]
        wide = {**route, "name": "wide", "topics": {"include": ["flights", "pl.*"], "name": "{topic}"}}
        narrow = {**route, "name": "narrow", "topics": {"include": [".*anes"], "name": "{topic}"}}
        topology["routes"] = [narrow, wide] if turned else [wide, narrow]
        running.file.write_text(yaml.safe_dump(topology))
        daemons.append(Daemon(running))
    return daemons


def writers(daemons: list[Daemon], topic: str) -> Counter[str]:
    """How many partitions of a topic each route copies, in all daemons together."""
    return Counter(
        name
        for daemon in daemons
        for name, route in daemon.told()["routes"].items()
        for partition in route.get("partitions", {})
        if partition.rpartition("-")[0] == topic
    )


def read_with_group(cluster: EmbeddedCluster, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address(cluster), "group.id": GROUP})
    at = [TopicPartition("flights", number, offset) for number in range(PARTITIONS)]
    consumer.commit(offsets=at, asynchronous=False)
    consumer.close()


def positions(cluster: EmbeddedCluster) -> set[int]:
    """Of the group in all partitions."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result()
    return {at.offset for at in answer.topic_partitions or ()} if answer.topic_partitions else set()


def records(cluster: EmbeddedCluster, topic: str, partitions: int) -> Counter[bytes | None]:
    return Counter(message.value() for message in consume(cluster, topic, partitions))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_topic_has_one_writer_in_both_and_what_a_killed_one_did_the_other_does(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    create(source, "planes", PARTITIONS)
    for topic in ("flights", "planes"):
        produce(source, topic, range(400), PARTITIONS)
    daemons = two_daemons(clusters, mirror)
    for daemon in daemons:
        daemon.start()
    for topic in ("flights", "planes"):
        daemons[0].wait_for(
            lambda topic=topic: writers(daemons, topic).total() == PARTITIONS, f"{topic} copied"
        )
    (owner,) = writers(daemons, "planes")
    daemons[0].process.until(
        lambda: sum(records(destination, "planes", PARTITIONS).values()) >= 400, "copied"
    )
    assert set(records(destination, "planes", PARTITIONS).values()) == {1}
    killed, left = daemons
    killed.process.kill()
    produce(source, "planes", range(400, 800), PARTITIONS)
    create(source, "planets", 1)
    produce(source, "planets", range(10), 1)
    read_with_group(source, 50)
    left.wait_for(lambda: writers([left], "planes") == {owner: PARTITIONS}, "the other has all partitions")
    left.wait_for(lambda: len(records(destination, "planes", PARTITIONS)) == 800, "and copies them")
    left.wait_for(lambda: writers([left], "planets").total() == 1, "topics go on being made")
    wait_until(lambda: positions(destination) == {50}, "groups go on being carried")
    first = left.told()["heartbeats"]["jfk"]["written"]
    left.wait_for(lambda: left.told()["heartbeats"]["jfk"]["written"] > first, "heartbeats go on")
    assert left.process.stop() == 0
