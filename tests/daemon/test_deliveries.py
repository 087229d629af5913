"""What a crash of the mirror may do to records on their way, by `delivery`: real processes, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer_settings import ProducerSettings
from broker.client.transactional_producer import TransactionalProducer
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.positions import transactional_id
from mirrormaker.flow.producers import ProducerKey
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import (
    COPY,
    PARTITIONS,
    TOPIC,
    SteadyWriter,
    address,
    create_topic,
    end_of,
    events,
    killed_often,
    numbers_at,
    places_at,
    write,
)
from tests.daemon.test_deep import grow
from tests.daemon.test_ledger import ledgers_at
from tests.daemon.test_mirror import create, produce

KILLS = int(os.environ.get("DELIVERY_KILLS", "3"))
POSITIONS = "__mirrormaker_positions"
FORGOTTEN = "position_forgotten"

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]


def test_exactly_once_neither_loses_nor_doubles_whenever_the_mirror_is_killed(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="exactly_once")
    written = killed_often(source, running, KILLS)
    wait_until(lambda: numbers_at(destination).total() >= written, "everything is committed")
    assert numbers_at(destination) == Counter(range(written))


def test_a_transaction_that_a_killed_process_left_open_holds_up_no_start(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """Among the positions: whoever fences the bucket ends it, before anything waits for it."""
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="exactly_once", buckets=1)
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 30, "everything is committed")
    running.kill()
    name = transactional_id("jfk-to-aggregate", ProducerKey(0, 0, None))
    killed = Producer({"bootstrap.servers": address(destination), "transactional.id": name, "log_level": 0})
    killed.init_transactions(PATIENCE_SECONDS)
    killed.begin_transaction()
    killed.produce(POSITIONS, b"{}", b"{}", partition=0)
    assert killed.flush(PATIENCE_SECONDS) == 0
    write(source, range(30, 40))
    running.start()
    wait_until(lambda: numbers_at(destination) == Counter(range(40)), "it goes on")
    assert events(running, "route_failed") == []
    assert running.stop() == 0


@pytest.mark.long
def test_exactly_once_holds_where_the_work_is_cut_otherwise_while_it_runs_and_after_a_kill(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="exactly_once", buckets=3)
    topology = yaml.safe_load(running.file.read_text())
    with SteadyWriter(source) as writer:
        for buckets in (3, 2, 5, 1):
            topology["routes"][0]["buckets"] = buckets
            running.file.write_text(yaml.safe_dump(topology))
            if buckets in (3, 5):
                running.start()
            else:
                applied = len(events(running, "topology_applied"))
                wait_until(lambda: len(events(running, "topology_applied")) > applied, "followed")  # noqa: B023
            at = writer.written
            wait_until(lambda: numbers_at(destination).total() > at, "records that came since")  # noqa: B023
            if buckets == 2:
                running.kill()
    wait_until(lambda: numbers_at(destination).total() >= writer.written, "everything is committed")
    assert numbers_at(destination) == Counter(range(writer.written))
    assert running.stop() == 0


def test_at_least_once_loses_nothing_whenever_the_mirror_is_killed(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="at_least_once")
    written = killed_often(source, running, KILLS)
    assert numbers_at(destination).keys() == set(range(written))


def test_at_most_once_doubles_nothing_and_tells_what_may_be_lost(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="at_most_once")
    written = killed_often(source, running, KILLS)
    numbers = numbers_at(destination)
    assert set(numbers.values()) == {1}
    assert numbers.keys() <= set(range(written))
    told = sum(event["count"] for event in events(running, "records_maybe_lost"))
    assert written - len(numbers) <= told


@contextmanager
def frozen(mirror: MirrorProcess) -> Iterator[None]:
    """As a machine that swaps, or is moved."""
    assert mirror.process is not None
    mirror.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        mirror.process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(180)
@pytest.mark.long
def test_a_mirror_that_wakes_up_after_another_took_over_writes_nothing(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    first = mirror(source, destination, delivery="exactly_once")
    second = mirror(source, destination, delivery="exactly_once")
    with SteadyWriter(source) as writer:
        first.start()
        first.wait_for(lambda told: told["counts"].get("transactions", 0) > 3, "transactions")
        with frozen(first):
            second.start()
            second.wait_for(lambda told: told["counts"].get("transactions", 0) > 3, "taken over")
        wait_until(
            lambda: bool(events(first, "bucket_fenced") or events(first, "group_partitions_lost")), "noticed"
        )
    second.wait_copied()
    wait_until(lambda: numbers_at(destination).total() >= writer.written, "everything is committed")
    assert numbers_at(destination) == Counter(range(writer.written))


@pytest.mark.timeout(180)
@pytest.mark.long
def test_a_mirror_that_its_group_throws_out_and_takes_back_goes_on_though_it_was_fenced_just_before(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """As after it was frozen for longer than its transactions may take."""
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="exactly_once")

    def gone_on(count: int) -> dict[str, Any]:
        before = running.status()["counts"].get("transactions", 0)
        return running.wait_for(
            lambda told: told["counts"].get("transactions", 0) >= before + count, "it commits"
        )

    with SteadyWriter(source) as writer:
        running.start()
        gone_on(3)
        asyncio.run(throw_out(source, destination))
        running.until(lambda: bool(events(running, "group_partitions_lost")), "it is thrown out")
        told = gone_on(60 * PARTITIONS)
    running.wait_copied()
    wait_until(lambda: numbers_at(destination).total() >= writer.written, "everything is committed")
    assert numbers_at(destination) == Counter(range(writer.written))
    assert told["counts"]["buckets_lost"] == PARTITIONS
    assert events(running, "transaction_given_up") == []
    assert running.stop() == 0


async def throw_out(source: EmbeddedCluster, destination: EmbeddedCluster) -> None:
    """Fence all buckets of the mirror, and take it out of its group."""
    async with Cluster(destination.bootstrap) as cluster:
        for partition in range(PARTITIONS):
            bucket = ProducerKey(bucket_of(TopicPartition(TOPIC, partition), 16), 0, None)
            name = transactional_id("jfk-to-aggregate", bucket)
            async with TransactionalProducer(
                cluster, settings=ProducerSettings(transactional_id=name)
            ) as fencing:
                await fencing.init_transactions()
    async with Cluster(source.bootstrap) as cluster:
        admin, group = Admin(cluster), "mirror/jfk-to-aggregate"
        (described,) = (await admin.describe_groups([group])).values()
        await admin.remove_static_members(group, [member.instance_id or "" for member in described.members])


@pytest.mark.timeout(180)
@pytest.mark.long
def test_records_that_are_spread_come_once_though_the_mirror_is_killed_and_the_destination_grows(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    create(destination, COPY, 4)
    running = mirror(
        source,
        destination,
        delivery="exactly_once",
        topics={"include": [TOPIC], "partitions": "round_robin"},
        resources={"produce_bytes": 4096, "fetch_partition_bytes": 16384},
    )
    written = killed_often(source, running, KILLS)
    running.kill()
    grow(destination, COPY, 6)
    with SteadyWriter(source, written) as writer:
        for _ in range(2):
            running.start()
            time.sleep(1.5)
            running.kill()
        running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination, partitions=6).total() >= writer.written, "all is committed")
    assert numbers_at(destination, partitions=6) == Counter(range(writer.written))


def copied(mirror: MirrorProcess, records: int) -> None:
    mirror.wait_for(lambda told: told["counts"].get("records") == records, f"{records} records copied")


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_new_route_starts_where_it_is_told_to_and_goes_on_where_it_was(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    start = {"offsets": {TOPIC: {0: 7, 1: 10}}}
    running = mirror(source, destination, delivery=delivery, start=start)
    running.start()
    copied(running, 3 + 0 + 10)
    assert running.stop() == 0
    write(source, range(30, 33))
    running.start()
    copied(running, 3)
    wait_until(lambda: numbers_at(destination).total() == 16, "everything is committed")
    assert running.stop() == 0


@pytest.mark.long
def test_at_most_once_knows_after_a_stop_that_everything_had_arrived(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """Whether it was asked to end, or was killed once all was quiet."""
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="at_most_once")
    running.start()
    copied(running, 30)
    running.wait_for(lambda told: told["ledger"]["pages"] == PARTITIONS, "all is in the ledger")
    assert running.stop() == 0
    assert mirrormaker("audit", str(running.file)).returncode == 0
    running.start()
    write(source, range(30, 33))
    copied(running, 3)
    assert "records_maybe_lost" not in {event["name"] for event in running.status()["events"]}
    assert running.stop() == 0


def test_at_most_once_writes_down_what_arrived_before_it_stops(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, delivery="at_most_once")
    running.start()
    with SteadyWriter(source):
        wait_until(lambda: numbers_at(destination).total() > 0, "it is at work")
        assert running.stop() == 0
    there, ledgers = places_at(destination, COPY), ledgers_at(destination)
    assert {each: ledgers[each].to_next for each in there} == {
        each: max(records) + 1 for each, records in there.items()
    }


@pytest.mark.timeout(180)
@pytest.mark.long
def test_at_most_once_goes_on_where_each_lane_was_when_it_was_asked_to_end(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, TOPIC, 1)
    create(destination, COPY, 3)
    produce(source, TOPIC, range(4_000), 1, **{"batch.size": 1_000})
    running = mirror(
        source,
        destination,
        delivery="at_most_once",
        topics={"include": [TOPIC], "partitions": "key"},
        resources={"bytes_per_second": 8_000, "fetch_partition_bytes": 8_000},
    )
    for _ in range(3):
        there = numbers_at(destination).total()
        running.start()
        wait_until(lambda there=there: numbers_at(destination).total() > there + 300, "it copies")
        assert running.stop() == 0
    grow(destination, COPY, 5)
    running.file.write_text(
        running.file.read_text().replace("bytes_per_second: 8000", "bytes_per_second: 8000000")
    )
    running.start()
    running.wait_copied()
    assert numbers_at(destination, partitions=5) == Counter(range(4_000))
    assert events(running, "records_maybe_lost") == []
    assert running.stop() == 0


@pytest.mark.timeout(180)
@pytest.mark.long
def test_at_most_once_knows_that_everything_had_arrived_when_the_source_was_away(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """For longer than the session of its group; what had arrived was not stored there yet."""
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="at_most_once", commit_interval_ms=60_000)
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 30, "everything has arrived")
    os.kill(source.pids[1], signal.SIGSTOP)
    try:
        wait_until(lambda: "group_partitions_lost" in running.log.read_text(), "the source is away")
    finally:
        os.kill(source.pids[1], signal.SIGCONT)
    write(source, range(30, 33))
    wait_until(lambda: numbers_at(destination).total() == 33, "it goes on")
    assert events(running, "records_maybe_lost") == []
    assert running.stop() == 0


@pytest.mark.long
def test_a_start_behind_the_newest_record_is_the_end(clusters: Clusters, mirror: MirrorFactory) -> None:
    source, _ = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, clusters[1], start={"offsets": {TOPIC: {0: 500, 1: 10, 2: 8}}})
    running.start()
    copied(running, 2)
    told = running.status()
    assert (told["halts"], {each["state"] for each in told["partitions"]}) == ([], {"copying"})
    write(source, range(30, 33))
    copied(running, 2 + 3)
    assert running.stop() == 0


def test_a_route_that_starts_at_the_latest_keeps_that_place_while_it_is_away(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="exactly_once", start="latest")
    running.start()
    # Each partition is in a bucket of its own: its position, and the marker of that transaction.
    wait_until(lambda: end_of(destination, POSITIONS) >= 2 * PARTITIONS, "the places are kept")
    running.kill()
    write(source, range(30, 36))
    running.start()
    wait_until(lambda: numbers_at(destination) == Counter(range(30, 36)), "what came since")


def forget(source: EmbeddedCluster, running: MirrorProcess) -> None:
    """The positions of the route, as Kafka does with a group that nobody was in for a week."""
    assert mirrormaker("pause", str(running.file), "jfk-to-aggregate").returncode == 0
    admin = AdminClient({"bootstrap.servers": address(source)})

    def is_forgotten() -> bool:
        """Only once nobody is in it any more."""
        (group,) = admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
        (deleted,) = admin.delete_consumer_groups([group.group_id]).values()
        return deleted.exception(PATIENCE_SECONDS) is None

    wait_until(is_forgotten, "the group is forgotten")


@pytest.mark.parametrize(
    ("delivery", "start"),
    [("at_least_once", "earliest"), ("at_least_once", "latest"), ("at_most_once", "latest")],
)
def test_a_route_whose_position_the_source_has_forgotten_goes_on_where_its_ledger_knows_it(
    clusters: Clusters, mirror: MirrorFactory, delivery: str, start: str
) -> None:
    source, destination = clusters
    create_topic(source)
    topics = {"include": [TOPIC], "existing": "append"}
    running = mirror(source, destination, topics=topics, delivery=delivery, start=start)
    running.start()
    running.wait_copied()
    write(source, range(30))
    wait_until(lambda: numbers_at(destination).total() == 30, "copied")
    forget(source, running)
    write(source, range(30, 36))
    shown = running.wait_for(lambda told: told["state"] == "paused", "it rests")
    assert shown["lag"]["messages"] == 6
    planned = json.loads(mirrormaker("plan", str(running.file), "--output", "json").stdout)["routes"][0]
    assert planned["bytes_behind"] == pytest.approx(planned["bytes_per_day"] * 6 / 36)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: numbers_at(destination).keys() == set(range(36)), "what came since")
    assert numbers_at(destination) == Counter(range(36))
    told = {(each["partition"], each["copied_to"], each["goes_on"]) for each in events(running, FORGOTTEN)}
    assert told == {(f"{TOPIC}-{number}", 10, "there") for number in range(PARTITIONS)}
    forget(source, running)
    assert seek(running, "earliest").returncode == 0
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: numbers_at(destination).total() == 72, "copied again, as it was sent there")
    assert len(events(running, FORGOTTEN)) == PARTITIONS


def test_a_route_that_never_sends_twice_passes_over_what_may_have_been_sent(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """What a process had sent before it was killed may not be in the ledger yet."""
    source, destination = clusters
    create_topic(source)
    topics = {"include": [TOPIC], "existing": "append"}
    running = mirror(source, destination, topics=topics, delivery="at_most_once")
    running.start()
    running.wait_copied()
    write(source, range(30))
    wait_until(lambda: numbers_at(destination).total() == 30, "copied")
    forget(source, running)
    producer = Producer({"bootstrap.servers": address(destination)})
    producer.produce(COPY, b"99", partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    write(source, range(30, 36))
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    ways = {each: "end" if each == 0 else "there" for each in range(PARTITIONS)}
    expected = {(f"{TOPIC}-{each}", 10, way) for each, way in ways.items()}
    wait_until(lambda: len(events(running, FORGOTTEN)) == PARTITIONS, "it is told where they go on")
    told = {(each["partition"], each["copied_to"], each["goes_on"]) for each in events(running, FORGOTTEN)}
    assert told == expected
    passed_over = {number for number in range(30, 36) if number % PARTITIONS == 0}
    wait_until(
        lambda: numbers_at(destination).keys() == {*range(36), 99} - passed_over, "what came since elsewhere"
    )
    write(source, range(36, 42))
    wait_until(
        lambda: numbers_at(destination) == Counter({*range(42), 99} - passed_over),
        "all goes on, nothing twice",
    )


def test_a_route_whose_position_is_forgotten_and_whose_copies_are_gone_begins_by_its_start(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, topics={"include": [TOPIC], "existing": "append"})
    running.start()
    running.wait_copied()
    forget(source, running)
    admin = AdminClient({"bootstrap.servers": address(destination)})
    (deleted,) = admin.delete_topics([COPY]).values()
    deleted.result(PATIENCE_SECONDS)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: numbers_there(destination) == Counter(range(30)), "copied from the start again")
    told = {(each["partition"], each["copied_to"], each["goes_on"]) for each in events(running, FORGOTTEN)}
    assert told == {(f"{TOPIC}-{number}", 10, "start") for number in range(PARTITIONS)}


def numbers_there(destination: EmbeddedCluster) -> Counter[int]:
    """None while the topic is not there."""
    topics = AdminClient({"bootstrap.servers": address(destination)}).list_topics(timeout=5).topics
    return numbers_at(destination) if COPY in topics else Counter()


def seek(running: MirrorProcess, to: str) -> subprocess.CompletedProcess[str]:
    return mirrormaker("seek", str(running.file), "jfk-to-aggregate", "--to", to)


def test_an_exactly_once_route_is_moved_by_seek(clusters: Clusters, mirror: MirrorFactory) -> None:
    source, destination = clusters
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="exactly_once")
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 30, "everything is committed")
    assert mirrormaker("pause", str(running.file), "jfk-to-aggregate").returncode == 0
    moved = mirrormaker("seek", str(running.file), "jfk-to-aggregate", "--to", "8")
    assert moved.returncode == 0, moved.stderr
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: numbers_at(destination).total() == 30 + 2 * PARTITIONS, "copied again from there")


@pytest.mark.parametrize("meanwhile", ["at_least_once", "at_most_once"])
@pytest.mark.long
def test_a_route_whose_delivery_was_another_for_a_while_goes_on_where_it_is(
    clusters: Clusters, mirror: MirrorFactory, meanwhile: str
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination)
    text = yaml.safe_load(running.file.read_text())
    for turn, delivery in enumerate(["exactly_once", meanwhile, "exactly_once"]):
        write(source, range(30 * turn, 30 * turn + 30))
        text["routes"][0]["delivery"] = delivery
        running.file.write_text(yaml.safe_dump(text))
        running.start()
        running.wait_copied()
        if delivery == meanwhile:
            running.until(
                lambda: (
                    sum(each["partitions"] for each in events(running, "positions_withdrawn")) == PARTITIONS
                ),
                "what the destination said of the route is withdrawn",
            )
        assert running.stop() == 0
    assert numbers_at(destination) == Counter(range(90))


@pytest.mark.long
def test_a_route_that_was_renamed_while_it_was_quiet_goes_on_where_it_is_after_another_delivery(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create_topic(source)
    running = mirror(source, destination, topics={"include": [TOPIC], "existing": "append"})
    text = yaml.safe_load(running.file.read_text())
    turns = [("once", "exactly_once", 30), ("renamed", "exactly_once", 30)]
    turns += [("renamed", "at_least_once", 60), ("renamed", "exactly_once", 90)]
    written = 0
    for name, delivery, count in turns:
        write(source, range(written, count))
        written = count
        text["routes"][0] |= {"name": name, "delivery": delivery}
        running.file.write_text(yaml.safe_dump(text))
        running.start()
        running.wait_copied()
        if delivery == "at_least_once":
            running.until(lambda: bool(events(running, "positions_withdrawn")), "withdrawn")
        assert running.stop() == 0
    assert numbers_at(destination) == Counter(range(90))


@pytest.mark.long
def test_a_source_that_fans_out_reaches_each_destination_once_though_one_is_away_and_the_daemon_is_killed(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, near, away = (cluster(name) for name in ("jfk", "aggregate", "archive"))
    create_topic(source)
    running = mirror(source, near, delivery="exactly_once")
    document = yaml.safe_load(running.file.read_text())
    document["clusters"]["archive"] = {"bootstrap": [str(address) for address in away.bootstrap]}
    document["routes"].append({**document["routes"][0], "to": "archive"})
    running.file.write_text(yaml.safe_dump(document))
    with SteadyWriter(source) as writer:
        running.start()
        wait_until(lambda: numbers_at(away).total() > 500, "both are fed")
        away.kill_node(1)
        told = writer.written
        wait_until(lambda: numbers_at(near).total() > told, "the one goes on while the other is away")
        running.kill()
        running.start()
        told = writer.written
        wait_until(lambda: numbers_at(near).total() > told, "also after the daemon was killed")
        away.start_node(1)
        wait_until(lambda: numbers_at(away).total() > told, "the other catches up")
        running.kill()
        running.start()
    for destination in (near, away):
        wait_until(
            lambda destination=destination: numbers_at(destination).total() >= writer.written, "all is there"
        )
        assert numbers_at(destination) == Counter(range(writer.written))
    assert running.stop() == 0
