"""Routes that end well, and get another delivery, while records are spread: lanes go on where each was."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, OffsetsRefusedError
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.flow.positions import POSITIONS_TOPIC
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import (
    COPY,
    PARTITIONS,
    TOPIC,
    SteadyWriter,
    address,
    create_topic,
    events,
    numbers_at,
    read,
    write,
)
from tests.daemon.test_mirror import create, produce


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize(
    "deliveries",
    [
        ("at_least_once", "at_least_once"),
        ("at_most_once", "exactly_once"),
        ("exactly_once", "at_most_once"),
    ],
)
def test_each_lane_goes_on_where_it_was_under_another_delivery(
    cluster: ClusterFactory, mirror: MirrorFactory, deliveries: tuple[str, ...]
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    create(destination, COPY, 3)
    produce(source, TOPIC, range(4_000), 1, **{"batch.size": 1_000})
    running = mirror(
        source,
        destination,
        topics={"include": [TOPIC], "partitions": "key"},
        resources={"bytes_per_second": 8_000, "fetch_partition_bytes": 8_000},
    )
    text = yaml.safe_load(running.file.read_text())
    for delivery in deliveries:
        there = numbers_at(destination).total()
        text["routes"][0]["delivery"] = delivery
        running.file.write_text(yaml.safe_dump(text))
        running.start()
        wait_until(lambda there=there: numbers_at(destination).total() > there + 300, "it copies")  # type: ignore[misc]
        assert running.stop() == 0
    text["routes"][0]["resources"]["bytes_per_second"] = 8_000_000
    running.file.write_text(yaml.safe_dump(text))
    running.start()
    running.wait_copied()
    assert numbers_at(destination) == Counter(range(4_000))
    assert events(running, "records_maybe_lost") == []
    assert running.stop() == 0


@pytest.mark.timeout(180)
def test_at_most_once_sends_nothing_again_that_a_killed_exactly_once_route_had_committed(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, delivery="exactly_once", commit_interval_ms=2_000)
    with SteadyWriter(source) as writer:
        running.start()
        wait_until(lambda: numbers_at(destination).total() > 0, "something is committed")
        there = numbers_at(destination).total()
        wait_until(lambda: numbers_at(destination).total() > there, "more is committed")
        running.kill()
    text = running.file.read_text()
    running.file.write_text(text.replace("exactly_once", "at_most_once"))
    running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination).total() >= writer.written, "all is there")
    assert numbers_at(destination) == Counter(range(writer.written))
    assert running.stop() == 0


def test_a_quiet_at_most_once_route_that_was_exactly_once_is_moved_by_seek(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """It begins by what its destination says of it, which it withdraws only when records come."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="exactly_once")
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 30, "everything is committed")
    running.file.write_text(running.file.read_text().replace("exactly_once", "at_most_once"))
    for arguments in (["pause"], ["seek", "--to", "8"], ["resume"]):
        verb, *options = arguments
        done = mirrormaker(verb, str(running.file), "jfk-to-aggregate", *options)
        assert done.returncode == 0, done.stderr
    wait_until(lambda: numbers_at(destination).total() == 30 + 2 * PARTITIONS, "copied again from there")
    assert running.stop() == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("delivery", ["at_most_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_a_position_at_the_destination_that_is_none_keeps_its_partition_alone_until_seek_sets_it_anew(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    write(source, range(30))
    running = mirror(source, destination, delivery="exactly_once")
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 30, "everything is committed")
    assert running.stop() == 0
    stored = {
        json.loads(message.key() or b"")["partition"]: message
        for message in read(destination, POSITIONS_TOPIC, "read_committed", 1)
    }
    assert stored.keys() == set(range(PARTITIONS))
    value = json.loads(stored[0].value() or b"") | {"position": "7"}
    put(destination, POSITIONS_TOPIC, stored[0].key(), json.dumps(value).encode())
    write(source, range(30, 60))
    running.file.write_text(running.file.read_text().replace("exactly_once", delivery))
    running.start()
    others = {number for number in range(60) if number < 30 or number % PARTITIONS}
    running.until(lambda: numbers_at(destination).keys() >= others, "the others go on")
    told = running.wait_for(lambda told: bool(_unreadable(told)), "it is told")
    ((partition, problem),) = _unreadable(told)
    assert (partition, told["state"]) == (0, "running")
    assert f'{POSITIONS_TOPIC}: {{"cluster":' in problem
    assert "position '7' is no offset" in problem
    assert [each["partition"] for each in events(running, "partition_not_started")] == [f"{TOPIC}-0"]
    if delivery == "exactly_once":
        audited = mirrormaker("audit", str(running.file))
        assert audited.returncode == 1
        assert f'{POSITIONS_TOPIC}: {{"cluster":' in audited.stdout
    for arguments in (["pause"], ["seek", "--to", "10"], ["resume"]):
        verb, *options = arguments
        done = mirrormaker(verb, str(running.file), "jfk-to-aggregate", *options)
        assert done.returncode == 0, done.stderr
    running.until(lambda: numbers_at(destination).total() == 60 + 10 * (PARTITIONS - 1), "all go on")
    assert numbers_at(destination).keys() == set(range(60))
    assert running.stop() == 0


def _unreadable(told: dict[str, Any]) -> list[tuple[int, str]]:
    return [
        (each["partition"], each["problem"]) for each in told["partitions"] if each["state"] == "unreadable"
    ]


def put(cluster: EmbeddedCluster, topic: str, key: bytes | None, value: bytes) -> None:
    """As a person does who writes to a topic of the mirror."""
    producer = Producer({"bootstrap.servers": address(cluster), "log_level": 0})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0


async def leave_behind(source: EmbeddedCluster, position: int, there: int) -> bool:
    """What an at-most-once process leaves in its group that is killed with records on their way; whether
    nobody is in the group any more.
    """
    async with Cluster(source.bootstrap) as cluster:
        at = OffsetAndMetadata(offset=position, metadata=f"- {there}")
        try:
            await Admin(cluster).reset_group_offsets(
                "mirror/jfk-to-aggregate", {TopicPartition(TOPIC, 0): at}
            )
        except OffsetsRefusedError:
            return False
        return True


@pytest.mark.parametrize(
    "delivery",
    [
        "at_least_once",
        pytest.param("exactly_once", marks=pytest.mark.long),
        pytest.param("at_most_once", marks=pytest.mark.long),
    ],
)
def test_what_a_killed_process_lost_is_lost_under_every_delivery(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    produce(source, TOPIC, range(30), 1)
    running = mirror(source, destination, delivery="at_most_once")
    running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 30, "copied")
    assert running.stop() == 0
    produce(source, TOPIC, range(30, 60), 1)
    wait_until(lambda: asyncio.run(leave_behind(source, 40, 30)), "its session is over")
    text = running.file.read_text().replace("at_most_once", delivery)
    running.file.write_text(text)
    running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 50, "all but what was lost")
    assert [event["count"] for event in events(running, "records_maybe_lost")] == [10]
    assert running.stop() == 0
    for later in (delivery, "at_least_once"):
        running.file.write_text(text.replace(delivery, later))
        for options in ((), ("--deep",)):
            done = mirrormaker("audit", str(running.file), *options, "--output", "json")
            assert done.returncode == 0, done.stdout + done.stderr
            (route,) = json.loads(done.stdout)["routes"]
            (outcomes,) = [each["outcomes"] for each in route["partitions"]]
            assert (outcomes.get("lost"), outcomes.get("noted", 0)) == (10, 0)


def produce_in_transactions(cluster: EmbeddedCluster, numbers: range, *, each: int) -> None:
    """So many in each; behind it is a marker."""
    writer = Producer({"bootstrap.servers": address(cluster), "transactional.id": "writer", "log_level": 0})
    writer.init_transactions(PATIENCE_SECONDS)
    for first in range(numbers.start, numbers.stop, each):
        writer.begin_transaction()
        for number in range(first, first + each):
            writer.produce(TOPIC, b"%d" % number, b"%d" % number, partition=0)
        writer.commit_transaction(PATIENCE_SECONDS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_what_is_lost_are_records_and_no_markers_nor_what_filters_let_go(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    produce_in_transactions(source, range(30), each=30)
    filters = [{"drop": {"key_matches": "33"}}]
    running = mirror(source, destination, delivery="at_most_once", filters=filters)
    running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 30, "copied")
    assert running.stop() == 0
    produce_in_transactions(source, range(30, 60), each=10)
    behind_two = 30 + 1 + 2 * (10 + 1)
    wait_until(lambda: asyncio.run(leave_behind(source, behind_two, 31)), "its session is over")
    running.file.write_text(running.file.read_text().replace("at_most_once", delivery))
    running.start()
    running.wait_copied()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 40, "all but what was lost")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        done = mirrormaker("audit", str(running.file), *options, "--output", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        (route,) = json.loads(done.stdout)["routes"]
        assert (route["equal"], route["outcomes"]["lost"]) == (40, 19), options


@pytest.mark.timeout(180)
@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_at_most_once_lost_and_nothing_else_is_lost_and_told_under_another_delivery(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    """What it had sent and not written down is found among what the ledger lacks."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, delivery="at_most_once")
    with SteadyWriter(source) as writer:
        running.start()
        running.wait_for(lambda told: told["ledger"]["pages"] >= PARTITIONS, "some is in the ledger")
        there = numbers_at(destination).total()
        wait_until(lambda: numbers_at(destination).total() > there, "more is copied")
        running.kill()
    running.file.write_text(running.file.read_text().replace("at_most_once", delivery))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    numbers = numbers_at(destination)
    lost = writer.written - len(numbers)
    assert set(numbers.values()) == {1}
    assert lost <= sum(event["count"] for event in events(running, "records_maybe_lost"))
    for options in ((), ("--deep",)):
        done = mirrormaker("audit", str(running.file), *options, "--output", "json")
        (route,) = json.loads(done.stdout)["routes"]
        assert done.returncode == 0, done.stdout
        assert sum(each["outcomes"].get("lost", 0) for each in route["partitions"]) == lost


@pytest.mark.timeout(180)
def test_two_routes_that_swap_deliveries_go_on_where_each_was(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """Both bring one topic to one topic, of which the destination keeps one position."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    produce(source, TOPIC, range(10), 1)
    running = mirror(source, destination)
    text = yaml.safe_load(running.file.read_text())
    (route,) = text["routes"]
    route["topics"] = {"include": [TOPIC], "merge": True}
    deliveries = {"one": "at_least_once", "other": "exactly_once"}
    text["routes"] = [{**route, "name": name, "delivery": each} for name, each in deliveries.items()]
    running.file.write_text(yaml.safe_dump(text))
    running.start()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 20, "both have copied")
    done = mirrormaker("pause", str(running.file), "other")
    assert done.returncode == 0, done.stderr
    running.until(lambda: states(running)["other"] == "paused", "it is paused")
    produce(source, TOPIC, range(10, 15), 1)
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 25, "one is further")
    for each in text["routes"]:
        each["delivery"] = {"at_least_once": "exactly_once"}.get(each["delivery"], "at_least_once")
    running.file.write_text(yaml.safe_dump(text))
    assert running.stop() == 0
    running.start()
    produce(source, TOPIC, range(15, 20), 1)
    wait_until(lambda: numbers_at(destination, partitions=1)[19] == 1, "one has gone on")
    done = mirrormaker("resume", str(running.file), "other")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: numbers_at(destination, partitions=1)[19] == 2, "the other too")
    assert numbers_at(destination, partitions=1) == Counter(dict.fromkeys(range(20), 2))
    assert running.stop() == 0


@pytest.mark.timeout(120)
def test_a_topic_that_moves_to_an_at_most_once_route_goes_on_where_it_was_exactly_once(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    for topic in (TOPIC, "planes", "gates"):
        create(source, topic, 1)
    produce(source, TOPIC, range(10), 1)
    running = mirror(source, destination)
    text = yaml.safe_load(running.file.read_text())
    (route,) = text["routes"]

    def write_file(exact: list[str], other: list[str]) -> None:
        taken = {"exact": ("exactly_once", exact), "other": ("at_most_once", other)}
        text["routes"] = [
            {**route, "name": name, "delivery": each, "topics": {"include": topics, "existing": "append"}}
            for name, (each, topics) in taken.items()
        ]
        running.file.write_text(yaml.safe_dump(text))

    write_file([TOPIC, "planes"], ["gates"])
    running.start()
    wait_until(lambda: numbers_at(destination, partitions=1).total() == 10, "it is copied")
    assert running.stop() == 0
    write_file(["planes"], ["gates", TOPIC])
    running.start()
    produce(source, TOPIC, range(10, 15), 1)
    wait_until(lambda: numbers_at(destination, partitions=1)[14] > 0, "the other goes on")
    assert numbers_at(destination, partitions=1) == Counter(range(15))
    assert running.stop() == 0


def states(running: MirrorProcess) -> dict[str, str]:
    told = json.loads((running.file.parent / "data-1/daemon/state.json").read_text())["routes"]
    return {name: route["state"] for name, route in told.items()}
