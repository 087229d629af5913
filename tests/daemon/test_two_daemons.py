"""Daemons on two hosts with one file: who does what, and what becomes of it when one is killed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import MirrorFactory, wait_until
from tests.daemon.test_mirror import address, consume, create, produce, producer
from tests.daemon.test_workers import Daemon, acknowledged

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
GROUP, PARTITIONS = "readers", 4


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


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_topic_that_a_step_sends_records_to_has_one_writer_too(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    sent = {"flights": range(400), "planes": range(400, 800)}
    for topic, numbers in sent.items():
        create(source, topic, PARTITIONS)
        produce(source, topic, numbers, PARTITIONS)
    daemons = []
    for turned in (False, True):
        running = mirror(*clusters, name="sends", transforms=[{"route": {"to": "planes"}}])
        topology = yaml.safe_load(running.file.read_text())
        (sends,) = topology["routes"]
        topics = {"include": [".*anes"], "name": "{topic}"}
        keeps = sends | {"name": "keeps", "topics": topics, "transforms": []}
        topology["routes"] = [keeps, sends] if turned else [sends, keeps]
        running.file.write_text(yaml.safe_dump(topology))
        daemons.append(Daemon(running))
    for daemon in daemons:
        daemon.start()

    def sources() -> set[str]:
        """Topics that are copied, in all partitions, by whichever daemon."""
        return {topic for topic in sent if writers(daemons, topic).total() == PARTITIONS}

    daemons[0].wait_for(lambda: bool(sources()), "one of both is copied")
    (topic,) = sources()
    (route,) = writers(daemons, topic)
    (other,) = sent.keys() - {topic}
    for daemon in daemons:
        daemon.wait_for(
            lambda daemon=daemon: any(
                told.get("obstacles", {}).get(other) == f"the route {route!r} writes 'planes' already"
                for told in daemon.told()["routes"].values()
            ),
            "both know whose the topic is",
        )
    daemons[0].wait_for(lambda: len(consume(destination, "planes", PARTITIONS)) >= 400, "copied")
    copied = Counter(b"%d" % number for number in sent[topic])
    assert records(destination, "planes", PARTITIONS) == copied


@pytest.mark.long
@pytest.mark.timeout(300)
def test_daemons_share_one_limit_by_what_they_need_and_one_that_is_killed_leaves_it_to_the_other(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, _ = clusters
    limit = 100_000
    create(source, "flights", 2)
    writer = producer(source, **{"batch.size": 20_000})
    for _ in range(6_000):
        writer.produce("flights", bytes(1_000), partition=0)
    assert writer.flush(30) == 0
    daemons = [Daemon(mirror(*clusters, buckets=2)) for _ in range(2)]
    for daemon in daemons:
        file = daemon.process.file
        links = [{"from": "jfk", "to": "aggregate", "bytes_per_second": limit}]
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"links": links}))
        daemon.start()

    def links() -> list[dict[str, Any]]:
        return [link for daemon in daemons for link in daemon.told().get("links", ())]

    def is_lent() -> bool:
        """One has nearly all of the limit, and uses it; both together have no more than there is."""
        told = links()
        if [link["members"] for link in told] != [2, 2] or None in [link["limit"] for link in told]:
            return False
        whole = sum(link["limit"] for link in told) <= 1.001 * limit
        return whole and max(link["borrowed"] for link in told) > 0.4 * limit and rate() > 0.85 * limit

    def rate() -> float:
        return float(sum(link["rate"] for link in links()))

    daemons[0].wait_for(is_lent, "lent")
    assert rate() < 1.15 * limit
    busy, idle = sorted(daemons, key=lambda daemon: -daemon.told()["links"][0]["rate"])
    busy.process.kill()
    idle.wait_for(lambda: len(acknowledged(idle)) == 2, "the other has all partitions")
    idle.wait_for(lambda: idle.told()["links"][0]["limit"] == limit, "and all of the limit")
    assert idle.process.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_daemon_with_an_older_file_leaves_the_topics_to_the_newer_ones_routes(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "planes", PARTITIONS)
    produce(source, "planes", range(100), PARTITIONS)
    old, new = two_daemons(clusters, mirror)
    for daemon in (old, new):
        file = daemon.process.file
        topology = yaml.safe_load(file.read_text())
        for route in topology["routes"]:
            route["topics"]["existing"] = "append"
            if daemon is new:
                route["name"] = route["name"].replace("wide", "broad")
        file.write_text(yaml.safe_dump(topology | {"generation": 2 if daemon is new else 1}))
    old.start()
    old.wait_for(lambda: writers([old], "planes").total() == PARTITIONS, "the old one copies")
    new.start()
    new.wait_for(lambda: writers([new], "planes").total() == PARTITIONS, "the new one copies")
    old.wait_for(lambda: old.told()["routes"]["narrow"]["state"] == "superseded", "the old one knows")
    since_ms = new.told()["at_ms"]
    new.wait_for(lambda: new.told()["at_ms"] > since_ms + 15_000, "longer than claims are kept unasked")
    assert claims(destination) <= 8
    assert writers([old, new], "planes").total() == PARTITIONS


def claims(cluster: EmbeddedCluster) -> int:
    """How many records were ever written of who has which topic."""
    reader = Consumer({"bootstrap.servers": address(cluster), "group.id": "counting"})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition("__mirrormaker_claims", 0), timeout=30)
        return int(end)
    finally:
        reader.close()
