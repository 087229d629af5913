"""Groups that stop at the source and go on at the destination, between real clusters."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from mirrormaker.carrying.returning import perform_returns, plan_returns
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.ledger.reading import read_ledger
from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, wait_until
from tests.daemon.test_ledger import produce_transaction
from tests.daemon.test_mirror import address, consume, create, produce, producer
from tests.daemon.test_provenance import mesh, routes_of
from tests.programs import run_program

SYNC: dict[str, Any] = {"groups": {"include": ["read.*"], "interval_ms": 200}}


def reader(cluster: Brokers, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def read(cluster: Brokers, group: str, topic: str, count: int, start: int | None = None) -> list[int]:
    """So many records as a member of the group, committed; from `start` where the group has no position."""
    consumer = reader(cluster, group)
    numbers: list[int] = []
    try:
        if start is not None:
            consumer.commit(offsets=[Position(topic, 0, start)], asynchronous=False)
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(numbers) < count:
            assert time.monotonic() < deadline, numbers
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                numbers.append(int(message.value() or b""))
                consumer.commit(message=message, asynchronous=False)
        return numbers
    finally:
        consumer.close()


def commit(cluster: Brokers, group: str, topic: str, offset: int) -> None:
    consumer = reader(cluster, group)
    try:
        consumer.commit(offsets=[Position(topic, 0, offset, "a note")], asynchronous=False)
    finally:
        consumer.close()


def committed(cluster: Brokers, group: str, topic: str) -> tuple[int, str | None]:
    """Of Apache Kafka too, whose coordinators of groups may just be moving."""
    consumer = reader(cluster, group)
    told: list[Position] = []

    def is_told() -> bool:
        try:
            told[:] = consumer.committed([Position(topic, 0)], timeout=PATIENCE_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
        return bool(told)

    try:
        wait_until(is_told, "a coordinator")
        return told[0].offset, told[0].metadata
    finally:
        consumer.close()


def wait_carried(cluster: Brokers, group: str, offset: int) -> None:
    at: list[int] = []

    def is_there() -> bool:
        at[:] = [committed(cluster, group, "jfk.flights")[0]]
        return at == [offset]

    try:
        wait_until(is_there, "carried")
    except AssertionError:
        raise AssertionError(f"{group} is at {at}, not {offset}") from None


def standings(running: MirrorProcess, group: str) -> dict[str, int]:
    groups: dict[str, Any] = running.status().get("groups", {}).get("groups", {})
    told: dict[str, int] = groups.get(group, {}).get("partitions", {})
    return told


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_group_reads_every_record_once_though_it_changes_sides_and_the_daemon_is_killed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    running = mirror(source, destination, sync=SYNC, delivery=delivery)
    running.start()
    for number in range(10):  # a marker follows each, and every third is aborted
        produce_transaction(source, range(number * 10, number * 10 + 10), is_committed=number % 3 != 1)
        if number == 5:
            running.kill()
            running.start()
    wanted = [number for number in range(100) if number // 10 % 3 != 1]
    had = read(source, "readers", "flights", 33, start=0)
    running.wait_copied()
    wait_until(lambda: standings(running, "readers") == {"carried": 1}, "carried")
    had += read(destination, "readers", "jfk.flights", len(wanted) - 33)
    assert had == wanted


def test_groups_behind_ahead_and_going_back_are_carried_and_those_at_work_there_left_alone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    create(source, "flights.none", 1)
    commit(source, "readers-early", "flights.none", 0)
    commit(source, "readers-behind", "flights", 3)
    commit(source, "readers", "flights", 70)
    commit(source, "others", "flights", 70)
    running = mirror(source, destination, sync=SYNC, start={"offsets": {"flights": {0: 20}}})
    running.start()
    wait_carried(destination, "readers", 50)
    wait_carried(destination, "readers-behind", 0)
    wait_until(lambda: committed(destination, "readers-early", "jfk.flights.none")[0] == 0, "carried")
    assert committed(destination, "readers", "jfk.flights")[1] == "a note"
    assert committed(destination, "others", "jfk.flights")[0] < 0
    commit(source, "readers", "flights", 40)
    wait_carried(destination, "readers", 20)
    commit(source, "readers", "flights", 150)  # not there yet
    wait_carried(destination, "readers", 80)
    produce(source, "flights", range(100, 200), 1)
    wait_carried(destination, "readers", 130)

    assert read(destination, "readers", "jfk.flights", 5) == [150, 151, 152, 153, 154]
    wait_until(lambda: standings(running, "readers") == {"own": 1}, "the group has its own position")
    assert committed(destination, "readers", "jfk.flights")[0] == 135
    commit(source, "readers", "flights", 160)
    wait_carried(destination, "readers", 140)

    member = reader(destination, "readers")
    member.subscribe(["jfk.flights"])
    wait_until(lambda: member.poll(0.1) is not None, "a member at the destination")
    commit(source, "readers", "flights", 170)
    wait_until(lambda: standings(running, "readers") == {"in_use": 1}, "the group is in use")
    member.close()
    wait_carried(destination, "readers", 150)


def test_a_group_is_carried_as_far_as_it_has_committed_while_a_transaction_with_more_is_open(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    commit(source, "readers", "flights", 10)
    writer, member = producer(source, **{"transactional.id": "writer"}), reader(source, "readers")
    writer.init_transactions(PATIENCE_SECONDS)
    writer.begin_transaction()
    further = [Position("flights", 0, 30)]
    writer.send_offsets_to_transaction(further, member.consumer_group_metadata(), PATIENCE_SECONDS)
    member.close()
    running = mirror(source, destination, sync=SYNC)
    running.start()
    wait_carried(destination, "readers", 10)
    told = running.wait_for(lambda told: "readers" in told["groups"]["groups"], "carried")
    assert told["groups"]["problem"] is None
    writer.commit_transaction(PATIENCE_SECONDS)
    wait_carried(destination, "readers", 30)


def test_a_group_that_reads_heartbeats_is_not_sent_back_to_the_first_of_the_destination(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    running = mirror(source, destination, sync=SYNC, heartbeats=True)
    running.start()
    running.wait_for(lambda told: bool(told["heartbeats"]), "heartbeats arrive")
    commit(source, "readers", HEARTBEATS_TOPIC, 1)
    for offset in (10, 20):  # the second in a later round
        commit(source, "readers", "flights", offset)
        wait_carried(destination, "readers", offset)
    assert committed(destination, "readers", HEARTBEATS_TOPIC)[0] < 0
    wait_until(lambda: standings(running, "readers") == {"carried": 1}, "carried")


@pytest.mark.long
def test_a_partition_without_a_leader_at_the_destination_holds_back_no_other(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate", brokers=2)
    create(source, "flights", 2)
    create(destination, "jfk.flights", 2)
    produce(source, "flights", range(200), 2)
    running = mirror(source, destination, sync=SYNC, topics={"include": ["flights"], "existing": "append"})
    running.start()
    running.wait_copied()
    commit(source, "readers", "flights", 40)
    wait_carried(destination, "readers", 40)
    (stopped,) = {1, 2} - {leader_of(destination, 0)}
    assert leader_of(destination, 1) == stopped
    destination.stop_node(stopped)
    wait_until(lambda: leader_of(destination, 1) < 0, "nobody leads the other partition")
    commit(source, "readers", "flights", 70)
    wait_carried(destination, "readers", 70)
    running.wait_for(lambda told: "jfk.flights-1" in (told["groups"]["problem"] or ""), "it is told")


def leader_of(cluster: EmbeddedCluster, partition: int) -> int:
    """Of the copies; -1 while there is none."""
    admin = AdminClient({"bootstrap.servers": address(cluster), "log_level": 0})
    leader: int = (
        admin.list_topics("jfk.flights", PATIENCE_SECONDS).topics["jfk.flights"].partitions[partition].leader
    )
    return leader


def test_a_group_that_goes_back_is_left_where_it_is_if_so_wished(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(50), 1)
    commit(source, "readers", "flights", 30)
    running = mirror(source, destination, sync={"groups": {**SYNC["groups"], "rewinds": False}})
    running.start()
    wait_carried(destination, "readers", 30)
    commit(source, "readers", "flights", 10)
    told = running.wait_for(
        lambda told: told["groups"]["groups"]["readers"]["partitions"] == {"rewound": 1}, "rewound"
    )
    assert [event["name"] for event in told["events"]] == ["group_rewound"]
    assert committed(destination, "readers", "jfk.flights")[0] == 30
    commit(source, "readers", "flights", 31)
    wait_carried(destination, "readers", 31)


def test_a_position_that_is_refused_is_told_alone_and_those_of_other_partitions_are_carried(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate", settings={"offset.metadata.max.bytes": 10})
    create(source, "flights", 3)
    produce(source, "flights", range(90), 3)
    notes = {0: "a note", 1: "a note that is too long", 2: ""}
    consumer = reader(source, "readers")
    given = [Position("flights", number, 20, note) for number, note in notes.items()]
    consumer.commit(offsets=given, asynchronous=False)
    consumer.close()
    running = mirror(source, destination, sync=SYNC)
    running.start()
    wait_carried(destination, "readers", 20)
    told = running.wait_for(
        lambda told: told["groups"]["groups"]["readers"]["partitions"] == {"carried": 2, "refused": 1},
        "carried but for one",
    )
    assert told["groups"]["moved"] >= 2
    assert "jfk.flights-1" in told["groups"]["problem"]
    refusals = [event for event in told["events"] if event["name"] == "group_refused"]
    assert [refusal["details"]["partition"] for refusal in refusals] == ["flights-1"]
    commit(source, "readers", "flights", 25)
    wait_carried(destination, "readers", 25)
    assert running.stop() == 0


def test_groups_are_brought_back_to_the_source_as_a_failback_does(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    for number in range(6):
        produce_transaction(source, range(number * 10, number * 10 + 10), is_committed=number % 3 != 1)
    wanted = [number for number in range(60) if number // 10 % 3 != 1]
    running = mirror(source, destination, sync=SYNC)
    running.start()
    had = read(source, "readers", "flights", 7, start=0)
    wait_carried(destination, "readers", 7)
    had += read(destination, "readers", "jfk.flights", 15)
    running.wait_copied()
    assert running.stop() == 0
    asyncio.run(bring_back(source, destination, "readers"))
    had += read(source, "readers", "flights", len(wanted) - len(had))
    assert had == wanted


async def bring_back(source: EmbeddedCluster, destination: EmbeddedCluster, group: str) -> None:
    async with Cluster(source.bootstrap) as here, Cluster(destination.bootstrap) as there:
        view = await read_ledger(there)
        returns = await plan_returns(here, there, view, list(view.lanes), [group])
        assert [each.translation.is_exact for each in returns] == [True]
        await perform_returns(here, returns)


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_groups_of_two_clusters_that_mirror_to_each_other_miss_nothing_and_stay_where_they_are(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    east, west = cluster("east"), cluster("west")
    for each, first in ((east, 0), (west, 100)):
        create(each, "orders", 1)
        produce(each, "orders", range(first, first + 10), 1)
    lines = [("east", "west"), ("west", "east")]
    settings = {"sync": SYNC, "delivery": delivery}
    running = mirror.of_file(mesh(tmp_path / "mesh", {"east": east, "west": west}, lines, **settings))
    running.start()
    numbers = {each.value(): each.offset() for each in consume(west, "orders", 1, 20)}
    places = {
        each.offset(): (numbers[each.value()], "copied", "exact") for each in consume(east, "orders", 1, 20)
    }
    wait_until(lambda: translated(running, "east-to-west", places) == places, "the ledgers tell of all")
    wait_until(lambda: translated(running, "west-to-east", places, "--back") == places, "back, too")
    come_by = max(places), max(numbers.values())  # a marker is behind them, and may be before
    sixth = next(offset for offset, (place, *_) in places.items() if place == 5)
    commit(east, "readers", "orders", 10)  # what was born there
    commit(east, "reading-on", "orders", sixth)
    wait_until(lambda: stands(east, west, "readers") == (10, 0), "what was born in the west is to come")
    wait_until(lambda: stands(east, west, "reading-on") == (sixth, 5), "as is the rest of it here")
    told = [group_told(running, "east-to-west", offset) for offset in (9, sixth)]
    assert told == [(0, "groups go on at 0"), (5, "exact")]
    assert group_told(running, "west-to-east", 5, "--back") == group_told(running, "east-to-west", 5)
    wait_until(lambda: standing_of(running, "west-to-east", "readers") == {"own": 1}, "seen by both")
    commit(east, "reading-on", "orders", come_by[0] + 1)
    wait_until(lambda: stands(east, west, "reading-on")[1] > come_by[1], "all is read, or a marker, too")
    commit(east, "reading-on", "orders", 2)
    wait_until(lambda: stands(east, west, "reading-on") == (2, 0), "it goes back at both")
    produce(east, "orders", range(10, 20), 1)
    commit(west, "readers", "orders", come_by[1] + 1)
    wait_until(lambda: stands(east, west, "readers")[0] > come_by[0], "a group may go on at the other")
    assert stands(east, west, "reading-on") == (2, 0)
    assert running.stop() == 0


def translated(
    running: MirrorProcess, route: str, offsets: Iterable[int], *options: str
) -> dict[int, tuple[int, str, str]]:
    """What `translate` says of them: place, standing, exactness."""
    asked = "".join(f"orders:0:{offset}\n" for offset in offsets)
    words = ["translate", str(running.file), route, *options]
    done = run_program("mirrormaker", *words, stdin=asked, seconds=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return {int(line[2]): (int(line[5]), line[6], line[7]) for line in lines}


def group_told(running: MirrorProcess, route: str, offset: int, *options: str) -> tuple[int, str]:
    """Where a group that stands there goes on, by what `translate` says, and the last word of its line."""
    words = ["translate", str(running.file), route, "orders", "0", str(offset), *options]
    line = run_program("mirrormaker", *words, seconds=PATIENCE_SECONDS).stdout.rstrip("\n").split("\t")
    told = json.loads(run_program("mirrormaker", *words, "--output", "json", seconds=PATIENCE_SECONDS).stdout)
    at: int = told[0]["group"]["offset"]
    return at, line[-1]


def stands(east: Brokers, west: Brokers, group: str) -> tuple[int, int]:
    return committed(east, group, "orders")[0], committed(west, group, "orders")[0]


def standing_of(running: MirrorProcess, route: str, group: str) -> dict[str, int]:
    told = next(each for each in routes_of(running) if each["name"] == route)
    groups: dict[str, Any] = (told["groups"] or {}).get("groups", {})
    standing: dict[str, int] = groups.get(group, {}).get("partitions", {})
    return standing
