"""A route whose processes meet in the ZooKeeper of its source."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
import yaml

from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports_in_a_row
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import TOPIC, numbers_at
from tests.daemon.test_mirror import _count as count
from tests.daemon.test_mirror import assert_complete_and_in_order, consume, create, produce
from tests.daemon.test_switched_deliveries import leave_behind

PARTITIONS = 4


def meeting_in_zookeeper(
    mirror: MirrorFactory, source: EmbeddedCluster, destination: EmbeddedCluster
) -> MirrorProcess:
    process = mirror(source, destination, membership="zookeeper")
    topology = yaml.safe_load(process.file.read_text())
    topology["clusters"]["jfk"]["zookeeper"] = source.spec.zookeeper_connect
    process.file.write_text(yaml.safe_dump(topology))
    return process


def copying(told: dict[str, Any]) -> int:
    return sum(partition["state"] == "copying" for partition in told["partitions"])


@pytest.mark.long
def test_two_daemons_share_partitions_in_zookeeper_and_one_takes_over_from_the_other(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    produce(source, "flights", range(400), PARTITIONS)
    one, other = (meeting_in_zookeeper(mirror, source, destination) for _ in range(2))
    one.start()
    one.wait_for(lambda told: copying(told) == PARTITIONS, "one has all partitions")
    other.start()
    for daemon in (one, other):
        daemon.wait_for(lambda told: copying(told) == PARTITIONS / 2, "half of the partitions each")
    produce(source, "flights", range(400, 800), PARTITIONS)
    one.wait_copied()
    other.kill()
    produce(source, "flights", range(800, 1000), PARTITIONS)
    one.wait_for(lambda told: copying(told) == PARTITIONS, "all partitions taken over")
    one.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), 1000)
    assert one.stop() == 0


@pytest.mark.long
def test_positions_in_zookeeper_are_gone_on_with_and_may_be_moved(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    daemon.start()
    daemon.wait_copied()
    create(source, "flights-late", 1)
    produce(source, "flights-late", range(10), 1)
    daemon.wait_for(lambda told: len(told["partitions"]) == 2 and told["lag"]["messages"] == 0, "both")
    assert daemon.stop() == 0
    daemon.start()
    daemon.wait_copied()
    assert len(consume(destination, "jfk.flights", 1)) == 100
    assert mirrormaker("pause", str(daemon.file), "jfk-to-aggregate").returncode == 0
    moved = mirrormaker("seek", str(daemon.file), "jfk-to-aggregate", "--topic", "flights", "--to", "90")
    assert moved.stdout == "flights\t0\t90\n", moved.stderr
    assert mirrormaker("resume", str(daemon.file), "jfk-to-aggregate").returncode == 0
    daemon.wait_copied()
    copies = consume(destination, "jfk.flights", 1)
    assert [int(copy.value() or b"") for copy in copies] == [*range(100), *range(90, 100)]


@pytest.mark.long
def test_the_zookeeper_of_an_embedded_source_is_known(mirror: MirrorFactory) -> None:
    """Also to commands, after a start at another port, and to workers."""
    first, other = (free_ports_in_a_row(1) for _ in range(2))
    file = mirror.folder / "up.yaml"
    document = {
        "clusters": {"jfk": {"embedded": {"port": first}}, "aggregate": {"embedded": {"port": other}}},
        "routes": [
            {
                "from": "jfk",
                "to": "aggregate",
                "topics": {"include": ["flights"]},
                "membership": "zookeeper",
                "refresh_interval_ms": 300,
                "resources": {"workers": 2},
            }
        ],
    }
    file.write_text(yaml.safe_dump(document))
    daemon = mirror.of_file(file, verb="up")
    source, destination = (load_topology(file).clusters[ClusterName(name)] for name in ("jfk", "aggregate"))
    shown = mirrormaker("status", str(file)).stdout
    assert "cluster 'jfk': its ZooKeeper was not started in" in shown or "no node can be reached" in shown
    for run in range(2):
        daemon.start()
        daemon.wait_for(lambda told: told["state"] == "running", "at work")
        if not run:
            create(source, "flights", 2)
        produce(source, "flights", range(100 * run, 100 * run + 100), 2)
        daemon.wait_copied()
        assert count(destination, "jfk.flights", 2) == 100 * run + 100
        assert daemon.stop() == 0


def test_a_route_does_not_meet_in_a_zookeeper_that_is_not_its_sources(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, zookeeper: EmbeddedZooKeeper
) -> None:
    """It would have no partitions there. Nothing is made there, not even what the file names."""
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    elsewhere = f"elsewhere-{uuid4().hex[:8]}"
    nothing_there = f"'jfk': the ZooKeeper at {zookeeper.connect_string(elsewhere)} has no cluster"

    meets_at(daemon, zookeeper.connect_string(elsewhere))
    daemon.start()
    daemon.wait_for(lambda told: nothing_there in (told["problem"] or ""), "no cluster is there")
    assert nothing_there in mirrormaker("status", str(daemon.file)).stdout
    assert mirrormaker("plan", str(daemon.file)).returncode == 1
    assert mirrormaker("audit", str(daemon.file)).returncode == 1
    assert mirrormaker("translate", str(daemon.file), "jfk-to-aggregate", "flights", "0", "0").stderr
    meets_at(daemon, str(destination.spec.zookeeper_connect))
    daemon.wait_for(lambda told: "is of the cluster" in (told["problem"] or ""), "another cluster is there")
    meets_at(daemon, str(source.spec.zookeeper_connect))
    daemon.wait_copied()
    assert count(destination, "jfk.flights", 1) == 100
    assert daemon.stop() == 0
    assert asyncio.run(children(zookeeper)).isdisjoint({elsewhere})


def meets_at(daemon: MirrorProcess, zookeeper: str) -> None:
    topology = yaml.safe_load(daemon.file.read_text())
    topology["clusters"]["jfk"]["zookeeper"] = zookeeper
    daemon.file.write_text(yaml.safe_dump(topology))


async def children(zookeeper: EmbeddedZooKeeper) -> set[str]:
    session = ZooKeeper(f"127.0.0.1:{zookeeper.port}", session_timeout_ms=10_000)
    await session.start(timeout_ms=20_000)
    try:
        return set(await session.children("/"))
    finally:
        await session.close()


def change(daemon: MirrorProcess, **route: object) -> None:
    topology = yaml.safe_load(daemon.file.read_text())
    topology["routes"][0] |= route
    daemon.file.write_text(yaml.safe_dump(topology))


@pytest.mark.parametrize(
    ("delivery", "workers"),
    [
        ("at_least_once", 1),
        pytest.param("at_most_once", 1, marks=pytest.mark.long),
        pytest.param("at_least_once", 2, marks=pytest.mark.long),
    ],
)
def test_a_route_that_meets_elsewhere_goes_on_where_it_stood(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str, workers: int
) -> None:
    """Both ways, after an end and while it runs; with what came meanwhile, though it starts at the latest."""
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    change(daemon, membership="coordinator", delivery=delivery, resources={"workers": workers})
    daemon.start()
    produce(source, "flights", range(100), PARTITIONS)
    daemon.wait_copied()
    assert daemon.stop() == 0
    produce(source, "flights", range(100, 200), PARTITIONS)
    change(daemon, membership="zookeeper", start="latest")
    assert "holds records already" not in mirrormaker("plan", str(daemon.file)).stdout
    daemon.start()
    daemon.until(lambda: count(destination, "jfk.flights", PARTITIONS) >= 200, "copied in ZooKeeper")
    for place, numbers in (("coordinator", range(200, 300)), ("zookeeper", range(300, 400))):
        change(daemon, membership=place, start="earliest")
        daemon.until(lambda place=place: brought_to(daemon, place), f"at the {place}")  # type: ignore[misc]
        produce(source, "flights", numbers, PARTITIONS)
        daemon.until(lambda end=numbers.stop: count(destination, "jfk.flights", PARTITIONS) >= end, "copied")  # type: ignore[misc]
    daemon.wait_copied()
    assert daemon.stop() == 0
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), 400)


@pytest.mark.long
def test_a_route_that_becomes_exactly_once_as_it_leaves_zookeeper_goes_on_where_it_stood_and_back(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    places = (("zookeeper", "at_least_once"), ("coordinator", "exactly_once"), ("zookeeper", "at_most_once"))
    for run, (place, delivery) in enumerate(places):
        produce(source, "flights", range(100 * run, 100 * run + 100), PARTITIONS)
        change(daemon, membership=place, delivery=delivery, start="latest" if run else "earliest")
        daemon.start()
        daemon.wait_copied()
        assert daemon.stop() == 0
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS, 300), 300)


def brought_to(daemon: MirrorProcess, place: str) -> bool:
    events = [event for event in daemon.status()["events"] if event["name"] == "positions_brought"]
    return bool(events) and events[-1]["details"]["membership"] == place


def test_a_route_waits_for_positions_in_a_zookeeper_that_is_away_unless_it_is_moved(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(20), 1)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    daemon.start()
    daemon.wait_copied()
    assert daemon.stop() == 0
    change(daemon, membership="coordinator")
    topology = yaml.safe_load(daemon.file.read_text())
    for address in (None, f"127.0.0.1:{free_ports_in_a_row(1)}"):
        topology["clusters"]["jfk"]["zookeeper"] = address
        if address is None:
            del topology["clusters"]["jfk"]["zookeeper"]
        daemon.file.write_text(yaml.safe_dump(topology))
        daemon.start()
        daemon.wait_for(
            lambda told: (
                told["state"] == "failed"
                and "in the ZooKeeper of 'jfk' cannot be brought" in (told["problem"] or "")
            ),
            "it waits",
        )
        assert daemon.stop() == 0
    part = ("--topic", "flights", "--to", "15")
    assert "cannot be brought" in mirrormaker("seek", str(daemon.file), "jfk-to-aggregate", *part).stderr
    moved = mirrormaker("seek", str(daemon.file), "jfk-to-aggregate", "--to", "15")
    assert moved.stdout == "flights\t0\t15\n", moved.stderr
    daemon.start()
    daemon.wait_copied()
    copies = consume(destination, "jfk.flights", 1)
    assert [int(copy.value() or b"") for copy in copies] == [*range(20), *range(15, 20)]
    assert daemon.stop() == 0


def test_a_route_that_was_moved_without_its_positions_in_zookeeper_does_not_go_on_from_them_later(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(20), 1)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    daemon.start()
    daemon.wait_copied()
    assert daemon.stop() == 0
    there = daemon.file.read_text()
    topology = yaml.safe_load(there)
    topology["clusters"]["jfk"]["zookeeper"] = f"127.0.0.1:{free_ports_in_a_row(1)}"
    daemon.file.write_text(yaml.safe_dump(topology))
    change(daemon, membership="coordinator")
    moved = mirrormaker("seek", str(daemon.file), "jfk-to-aggregate", "--to", "5")
    assert moved.stdout == "flights\t0\t5\n", moved.stderr
    daemon.file.write_text(there)
    produce(source, "flights", range(20, 25), 1)
    daemon.start()
    daemon.wait_copied()
    copies = consume(destination, "jfk.flights", 1)
    assert [int(copy.value() or b"") for copy in copies] == [*range(20), *range(5, 25)]
    assert daemon.stop() == 0


@pytest.mark.long
def test_a_route_in_zookeeper_that_was_moved_back_goes_on_there_when_it_leads_elsewhere(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """The record of where its positions are is at the former destination."""
    source, destination, other = cluster("jfk"), cluster("aggregate"), cluster("third")
    create(source, "flights", 1)
    produce(source, "flights", range(20), 1)
    daemon = meeting_in_zookeeper(mirror, source, destination)
    for membership in ("coordinator", "zookeeper"):
        change(daemon, membership=membership, name="r")
        daemon.start()
        daemon.wait_copied()
        assert daemon.stop() == 0
    moved = mirrormaker("seek", str(daemon.file), "r", "--to", "5")
    assert moved.stdout == "flights\t0\t5\n", moved.stderr
    topology = yaml.safe_load(daemon.file.read_text())
    topology["clusters"]["third"] = {"bootstrap": [str(address) for address in other.bootstrap]}
    daemon.file.write_text(yaml.safe_dump(topology))
    change(daemon, to="third")
    daemon.start()
    daemon.until(lambda: count(other, "jfk.flights", 1) == 15, "all from there on are copied")
    assert daemon.stop() == 0


@pytest.mark.long
def test_what_at_most_once_lost_before_a_route_met_elsewhere_is_explained_by_audits(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, TOPIC, 1)
    produce(source, TOPIC, range(30), 1)
    daemon = mirror(source, destination, delivery="at_most_once")
    daemon.start()
    daemon.wait_copied()
    assert daemon.stop() == 0
    produce(source, TOPIC, range(30, 60), 1)
    wait_until(lambda: asyncio.run(leave_behind(source, 40, 30)), "the session of who left is over")
    topology = yaml.safe_load(daemon.file.read_text())
    topology["clusters"]["jfk"]["zookeeper"] = source.spec.zookeeper_connect
    daemon.file.write_text(yaml.safe_dump(topology))
    change(daemon, membership="zookeeper", delivery="at_least_once")
    daemon.start()
    daemon.wait_copied()
    assert daemon.stop() == 0
    assert numbers_at(destination, partitions=1).total() == 50
    for options in ((), ("--deep",)):
        done = mirrormaker("audit", str(daemon.file), *options)
        assert done.returncode == 0, done.stdout
