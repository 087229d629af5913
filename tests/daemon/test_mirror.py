"""A mirror between real clusters, written to and read by foreign clients; killed, cut off and refused."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from broker.types import TopicPartition
from mirrormaker.failover.fence import close_topics, open_topics
from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def address(cluster: Brokers) -> str:
    return ",".join(map(str, cluster.bootstrap))


def create(cluster: Brokers, topic: str, partitions: int, **config: str) -> None:
    """A topic that is not there yet: where it is, librdkafka has asked again, as a connection was cut off."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for created in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        try:
            created.result(PATIENCE_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


REPLICATED = {"batch.size": 1000, "enable.idempotence": True}


def producer(cluster: Brokers, **config: Any) -> Producer:
    """With `enable.idempotence` batches are in order also where one has to be sent again, as while nodes
    learn who leads what.
    """
    settings = {"linger.ms": 2, "max.in.flight": 1, "log_level": 0}
    return Producer({"bootstrap.servers": address(cluster), **settings, **config})


def produce(cluster: Brokers, topic: str, numbers: range, partitions: int, **config: Any) -> None:
    """Records whose value is their number; a key's numbers ascend."""
    writer = producer(cluster, **config)
    for number in numbers:
        key = number % (partitions * 3)
        writer.produce(topic, b"%d" % number, b"key-%d" % key, partition=key % partitions)
        writer.poll(0)
    assert writer.flush(PATIENCE_SECONDS) == 0


def consume(cluster: EmbeddedCluster, topic: str, partitions: int, count: int | None = None) -> list[Message]:
    """Everything that is in the topic now; `count` records where markers of transactions have offsets too."""
    reader = Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        wanted = [Position(topic, number, 0) for number in range(partitions)]
        ends = [reader.get_watermark_offsets(partition, timeout=PATIENCE_SECONDS)[1] for partition in wanted]
        reader.assign(wanted)
        return list(_messages(reader, sum(ends) if count is None else count))
    finally:
        reader.close()


def _messages(reader: Consumer, count: int) -> Iterator[Message]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while count > 0:
        assert time.monotonic() < deadline, f"{count} messages did not come"
        for message in reader.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            count -= 1
            yield message


def first_appearances(messages: Sequence[Message]) -> dict[bytes, list[int]]:
    """The numbers of each key in the order in which each first appeared."""
    seen: dict[bytes, dict[int, None]] = defaultdict(dict)
    for message in messages:
        seen[message.key() or b""][int(message.value() or b"")] = None
    return {key: list(numbers) for key, numbers in seen.items()}


def assert_complete_and_in_order(messages: Sequence[Message], count: int) -> None:
    appearances = first_appearances(messages)
    assert sorted(number for numbers in appearances.values() for number in numbers) == list(range(count))
    for key, numbers in appearances.items():
        assert numbers == sorted(numbers), key


def test_records_arrive_as_they_were_whatever_their_codec(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", len(CODECS))
    for partition, codec in enumerate(CODECS):
        writer = producer(source, **{"compression.type": codec})
        for number in range(200):
            writer.produce(
                "flights",
                b"value-%d" % number if number % 7 else None,
                b"key-%d" % number if number % 5 else None,
                partition=partition,
                timestamp=1_357_000_000_000 + number,
                headers=[("number", b"%d" % number), ("empty", None)],
            )
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination)
    running.start()
    running.wait_copied()
    told = running.wait_for(
        lambda told: told["counts"].get("records") == 200 * len(CODECS), "every record counted"
    )
    assert told["counts"]["deep_batches"] == {}
    assert told["lag"] == {"messages": 0, "bytes": 0, "seconds": 0.0}
    copies = consume(destination, "jfk.flights", len(CODECS))
    originals = consume(source, "flights", len(CODECS))
    assert sorted(map(_content, copies), key=repr) == sorted(map(_content, originals), key=repr)
    assert running.stop() == 0
    assert running.status()["state"] == "stopped"


def _content(message: Message) -> tuple[object, ...]:
    return (
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp(),
        message.headers(),
    )


def test_topics_and_partitions_that_appear_later_are_taken_up(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "planes", 1)
    running = mirror(source, destination)
    running.start()
    running.wait_for(lambda told: told["state"] == "running", "running")
    create(source, "flights-new", 2)
    produce(source, "flights-new", range(100), 2)
    wait_until(lambda: _count(destination, "jfk.flights-new", 2) == 100, "the new topic copied")
    admin = AdminClient({"bootstrap.servers": address(source)})
    for grown in admin.create_partitions([NewPartitions("flights-new", 4)]).values():
        grown.result(PATIENCE_SECONDS)
    produce(source, "flights-new", range(100, 200), 4)
    wait_until(lambda: _count(destination, "jfk.flights-new", 4) == 200, "the new partitions copied")
    assert (
        "jfk.planes"
        not in AdminClient({"bootstrap.servers": address(destination)}).list_topics(timeout=10).topics
    )
    assert running.stop() == 0


def _count(cluster: Brokers, topic: str, partitions: int) -> int:
    """Records in the topic, 0 while it has not so many partitions."""
    return asyncio.run(_count_now(cluster, [TopicPartition(topic, number) for number in range(partitions)]))


def _wait_for_count(cluster: EmbeddedCluster, topic: str, partitions: int, count: int) -> None:
    wait_until(lambda: _count(cluster, topic, partitions) >= count, f"{count} records in {topic}")


async def _count_now(cluster: Brokers, partitions: Sequence[TopicPartition]) -> int:
    async with Cluster(cluster.bootstrap) as asked:
        await asked.refresh({partition.topic for partition in partitions})
        if any(asked.leader(partition) is None for partition in partitions):
            return 0
        return sum((await latest_offsets(asked, partitions)).values())


@pytest.mark.long
def test_a_daemon_killed_again_and_again_loses_nothing_and_keeps_the_order(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    count, partitions, kills = 60_000, 3, 4
    share = count // kills
    create(source, "flights", partitions)
    running = mirror(source, destination, resources={"produce_bytes": 4096, "fetch_partition_bytes": 16384})
    for kill in range(kills):
        before = _count(destination, "jfk.flights", partitions)
        running.start()
        numbers = range(kill * share, kill * share + share)
        produce(source, "flights", numbers, partitions, **{"batch.size": 1000, "compression.type": "snappy"})
        _wait_for_count(destination, "jfk.flights", partitions, before + 1)
        running.kill()
    running.start()
    running.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", partitions), count)
    assert running.stop() == 0


def test_a_destination_that_goes_away_and_comes_back_gets_every_record_once(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    count, partitions = 40_000, 3
    create(source, "flights", partitions)
    produce(source, "flights", range(count), partitions, **{"batch.size": 1000})
    running = mirror(source, destination, resources={"produce_bytes": 4096, "fetch_partition_bytes": 16384})
    running.start()
    wait_until(lambda: _count(destination, "jfk.flights", partitions) > 0, "a first step")
    destination.kill_node(1)
    destination.start_node(1)
    running.wait_copied()
    messages = consume(destination, "jfk.flights", partitions)
    assert_complete_and_in_order(messages, count)
    assert len(messages) == count
    assert running.stop() == 0


@pytest.mark.long
def test_a_stopped_daemon_goes_on_where_it_was(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    running = mirror(source, destination)
    for turn in range(3):
        running.start()
        produce(source, "flights", range(turn * 500, turn * 500 + 500), 2)
        _wait_for_count(destination, "jfk.flights", 2, turn * 500 + 500)
        assert running.stop() == 0
        assert running.status()["lag"]["messages"] == 0
    messages = consume(destination, "jfk.flights", 2)
    assert len(messages) == 1500
    assert_complete_and_in_order(messages, 1500)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("policy", ["fail", "skip_and_record"])
def test_a_topic_that_a_switch_of_other_routes_closes_is_waited_for(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, policy: str, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    running = mirror(source, destination, on={"oversize": policy}, delivery=delivery)
    running.start()
    produce(source, "flights", range(50), 1)
    running.wait_copied()

    async def switch(*, is_open: bool) -> None:
        async with Cluster(destination.bootstrap) as cluster:
            if is_open:
                await open_topics(cluster, {"jfk.flights": None})
            else:
                await close_topics(cluster, ["jfk.flights"])

    asyncio.run(switch(is_open=False))
    produce(source, "flights", range(50, 100), 1)
    running.wait_for(
        lambda told: told["partitions"][0]["reason"] == "refused", "the partition waits for its topic"
    )
    asyncio.run(switch(is_open=True))
    told = running.wait_for(
        lambda told: told["partitions"][0]["state"] == "copying" and told["lag"]["messages"] == 0,
        "everything copied",
    )
    assert told["state"] == "running"
    messages = consume(destination, "jfk.flights", 1, 100)
    assert [message.value() for message in messages] == [b"%d" % number for number in range(100)]
    assert not told["counts"]["left_out"]
    assert running.stop() == 0


def test_a_partition_that_is_refused_stands_visibly_and_the_others_go_on(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    create(destination, "jfk.flights", 2, **{"max.message.bytes": "2000"})
    writer = producer(source)
    writer.produce("flights", b"x", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    writer.produce("flights", b"x" * 5000, partition=0)
    for number in range(50):
        writer.produce("flights", b"%d" % number, partition=1)
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination)
    running.start()
    told = running.wait_for(
        lambda told: (
            [partition["state"] for partition in told["partitions"]] == ["halted", "copying"]
            and told["partitions"][0]["reason"] == "oversize"
            and told["partitions"][1]["lag"]["messages"] == 0
        ),
        "one partition halted, the other copied",
    )
    assert told["lag"]["messages"] == 1
    assert told["lag"]["bytes"] > 5000
    assert told["lag"]["seconds"] > 0
    assert any(event["name"] == "trouble_met" for event in told["events"])
    shown = mirrormaker("status", str(running.file))
    assert shown.stdout.count("oversize at offset 1: ") == 1
    assert _count(destination, "jfk.flights", 2) == 51
    assert running.stop() == 0


def _copied_hundred(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, **policies: str
) -> MirrorProcess:
    """A mirror at work that has copied a topic of 100 records."""
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    running = mirror(source, destination, on=policies)
    running.start()
    running.wait_copied()
    return running


def test_records_that_went_before_they_were_copied_are_told_of(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = _copied_hundred(clusters, mirror)
    assert running.stop() == 0
    produce(source, "flights", range(100, 200), 1)
    admin = AdminClient({"bootstrap.servers": address(source)})
    for deleted in admin.delete_records([Position("flights", 0, 150)]).values():
        deleted.result(PATIENCE_SECONDS)
    running.start()
    told = running.wait_for(
        lambda told: bool(told["events"]) and told["lag"]["messages"] == 0, "the gap told of"
    )
    (gap,) = [event for event in told["events"] if event["name"] == "source_gap_met"]
    assert (gap["details"]["lost_from"], gap["details"]["resumed_at"]) == (100, 150)
    assert told["counts"]["offsets_lost_at_source"] == 50
    assert _count(destination, "jfk.flights", 1) == 150
    assert running.stop() == 0


def test_a_topic_that_is_created_again_is_copied_from_its_start_and_told_of(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = _copied_hundred(clusters, mirror, topic_recreated="skip_and_record")
    admin = AdminClient({"bootstrap.servers": address(source)})
    for deleted in admin.delete_topics(["flights"]).values():
        deleted.result(PATIENCE_SECONDS)
    wait_until(lambda: _try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    wait_until(lambda: _count(destination, "jfk.flights", 1) == 130, "the new topic copied")
    running.wait_for(
        lambda told: any(event["name"] == "topic_recreated" for event in told["events"]),
        "the new topic told of",
    )
    assert running.stop() == 0
    for deleted in admin.delete_topics(["flights"]).values():
        deleted.result(PATIENCE_SECONDS)
    wait_until(lambda: _try_to_create(source, "flights"), "the topic created once more")
    produce(source, "flights", range(130, 200), 1)
    planned = mirrormaker("plan", str(running.file))  # as the daemon sees it: the route's own topic
    assert (planned.returncode, planned.stderr) == (0, ""), planned.stdout
    running.start()
    wait_until(lambda: _count(destination, "jfk.flights", 1) == 200, "the newest topic copied")
    assert_complete_and_in_order(consume(destination, "jfk.flights", 1), 200)
    assert running.stop() == 0


def _try_to_create(cluster: EmbeddedCluster, topic: str) -> bool:
    """False while the former topic of the name is still on its way out."""
    try:
        create(cluster, topic, 1)
    except KafkaException:
        return False
    return True


def test_partitions_spread_over_several_brokers_are_all_copied(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk", brokers=2), cluster("aggregate", brokers=2)
    create(source, "flights", 6)
    produce(source, "flights", range(6000), 6, **REPLICATED)
    running = mirror(source, destination)
    running.start()
    running.wait_copied()
    messages = consume(destination, "jfk.flights", 6)
    assert len(messages) == 6000
    assert_complete_and_in_order(messages, 6000)
    assert running.stop() == 0


@pytest.mark.long
def test_a_mirror_reads_from_the_replicas_that_the_source_names(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """Any of them: most of the partitions are read from followers."""
    source = cluster("jfk", brokers=3, settings={"replica.selector.class": "random"})
    destination = cluster("aggregate")
    admin = AdminClient({"bootstrap.servers": address(source)})
    admin.create_topics([NewTopic("flights", 6, 3)])["flights"].result(PATIENCE_SECONDS)
    produce(source, "flights", range(3000), 6, **REPLICATED)
    running = mirror(source, destination)
    running.start()
    running.wait_copied()
    produce(source, "flights", range(3000, 6000), 6, **REPLICATED)
    source.stop_node(2)
    running.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", 6), 6000)
    assert running.stop() == 0


@pytest.mark.long
def test_a_route_whose_destination_is_away_waits_and_says_so(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    destination.stop_node(1)
    running = mirror(source, destination)
    running.start()
    told = running.wait_for(lambda told: told["state"] == "failed", "the route failed")
    assert "no node can be reached" in told["problem"]
    assert told["lag"]["messages"] == 10
    destination.start_node(1)
    running.wait_copied()
    assert running.stop() == 0


def test_only_one_daemon_runs_on_a_data_dir(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = mirror(source, destination)
    running.start()
    running.wait_for(lambda told: told["state"] == "running", "running")
    second = mirrormaker("run", str(running.file))
    assert second.returncode == 1
    assert "another daemon is running on this data_dir" in second.stderr
    assert running.stop() == 0


def test_two_daemons_share_a_route_and_one_takes_over_when_the_other_leaves(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 8)
    one, other = mirror(source, destination), mirror(source, destination)
    one.start()
    other.start()
    for daemon in (one, other):
        daemon.wait_for(lambda told: _copying(told) == 4, "half of the partitions each")
    produce(source, "flights", range(800), 8)
    wait_until(lambda: _count(destination, "jfk.flights", 8) == 800, "all copied")
    other.kill()
    one.wait_for(lambda told: _copying(told) == 8, "all partitions taken over")
    produce(source, "flights", range(800, 1000), 8)
    one.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", 8), 1000)
    assert one.stop() == 0


def _copying(told: dict[str, Any]) -> int:
    return sum(partition["state"] == "copying" for partition in told["partitions"])


def test_up_runs_clusters_and_daemon_and_takes_all_of_them_down(
    tmp_path: Path, mirror: MirrorFactory
) -> None:
    ports = free_ports(2)
    file = tmp_path / "up.yaml"
    file.write_text(
        f"""\
clusters:
  jfk: {{embedded: {{brokers: 1, port: {ports[0]}}}}}
  aggregate: {{embedded: {{brokers: 1, port: {ports[1]}}}}}
routes:
  - {{from: jfk, to: aggregate, topics: {{include: [flights]}}, refresh_interval_ms: 300}}
"""
    )
    running = mirror.of_file(file, verb="up")
    running.start()
    wait_until(lambda: "\nready\n" in running.log.read_text(), "ready")
    lines = running.log.read_text().splitlines()
    assert f"jfk\t127.0.0.1:{ports[0]}" in lines
    assert f"aggregate\t127.0.0.1:{ports[1]}" in lines
    writer = Producer({"bootstrap.servers": f"127.0.0.1:{ports[0]}", "log_level": 0})
    writer.produce("flights", b"AA1")
    assert writer.flush(PATIENCE_SECONDS) == 0
    told = running.wait_copied()
    assert told["state"] == "running"
    assert running.stop() == 0
    assert _all_closed(ports)


def _all_closed(ports: Sequence[int]) -> bool:
    def closed(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return True
        return False

    return all(map(closed, ports))
