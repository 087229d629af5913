"""Partitions that cannot go on, between real clusters: what each policy does, and how they are released."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from tests.conftest import ClusterFactory
from tests.daemon.conftest import (
    PATIENCE_SECONDS,
    MirrorFactory,
    MirrorProcess,
    mirrormaker,
    wait_until,
)
from tests.daemon.failover_pair import ask
from tests.daemon.test_mirror import _count as count
from tests.daemon.test_mirror import _try_to_create as try_to_create
from tests.daemon.test_mirror import address, consume, create, produce, producer
from tests.daemon.test_planning import alter
from tests.daemon.test_provenance import mesh

SKIPPED = "__mirrormaker_skipped"
LOST = "destination_topic_lost"
NO_LAG = {"messages": 0, "bytes": 0, "seconds": 0.0}
AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE = (
    pytest.param(delivery, marks=pytest.mark.long)
    for delivery in ("at_least_once", "at_most_once", "exactly_once")
)
"""For tests that take long, and need not be run in each delivery every time."""


def copied(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    delivery: str = "at_least_once",
    membership: str = "coordinator",
    buckets: int = 16,
    **policies: str,
) -> MirrorProcess:
    """A mirror at work that has copied a topic of 100 records."""
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(100), 1)
    running = mirror(source, destination, on=policies, delivery=delivery, membership=membership)
    topology = yaml.safe_load(running.file.read_text())
    topology["clusters"]["jfk"]["zookeeper"] = source.spec.zookeeper_connect
    topology["routes"][0]["buckets"] = buckets
    running.file.write_text(yaml.safe_dump(topology))
    running.start()
    running.wait_copied()
    return running


def delete_records(cluster: EmbeddedCluster, before: int, topic: str = "flights") -> None:
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_records([Position(topic, 0, before)]).values():
        deleted.result(PATIENCE_SECONDS)


def delete_topic(cluster: EmbeddedCluster, topic: str = "flights") -> None:
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(PATIENCE_SECONDS)


def partition_of(told: Mapping[str, Any]) -> dict[str, Any]:
    (partition,) = told["partitions"] or [{"state": None}]
    return dict(partition)


def wait_halted(running: MirrorProcess, reason: str) -> dict[str, Any]:
    told = running.wait_for(
        lambda told: (
            partition_of(told)["state"] == "halted" and [halt["reason"] for halt in told["halts"]] == [reason]
        ),
        f"the partition stands: {reason}",
    )
    (halt,) = told["halts"]
    assert (halt["reason"], halt["stops_route"], halt["released"]) == (reason, False, None)
    return told


def notes(cluster: EmbeddedCluster) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        (json.loads(message.key() or b""), json.loads(message.value() or b""))
        for message in consume(cluster, SKIPPED, 1)
    ]


def test_a_partition_with_a_gap_stands_across_a_restart_until_it_is_resumed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, source_gap="pause_partition")
    assert running.stop() == 0
    produce(source, "flights", range(100, 200), 1)
    delete_records(source, 150)
    shown = mirrormaker("status", str(running.file)).stdout
    assert "flights-0 is unassigned: its source has deleted 50 of what waits" in shown
    for _ in range(2):
        running.start()
        told = wait_halted(running, "source_gap")
        assert told["lag"]["messages"] == 100
        assert running.stop() == 0
    running.start()
    wait_halted(running, "source_gap")
    shown = mirrormaker("status", str(running.file)).stdout
    assert "the source deleted offsets 100 to 149 before they were copied" in shown
    assert "mirrormaker resume FILE jfk-to-aggregate --topic flights --partition 0" in shown
    resumed = mirrormaker(
        "resume", str(running.file), "jfk-to-aggregate", "--topic", "flights", "--partition", "0"
    )
    assert (resumed.returncode, resumed.stderr) == (0, "")
    running.wait_copied()
    assert count(destination, "jfk.flights", 1) == 150
    ((key, value),) = notes(destination)
    assert key == {"route": "jfk-to-aggregate", "topic": "flights", "partition": 0, "offset": 100}
    assert (value["reason"], value["lost"], value["resumed_at"]) == ("source_gap", [100, 150], 150)
    told = running.wait_for(lambda told: told["halts"] == [], "the halt taken back")
    assert told["counts"]["troubles"] == {"source_gap": 1}
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("policy", "delivery"), [("pause_partition", "at_least_once"), ("fail", "exactly_once")]
)
def test_a_gap_that_has_grown_while_its_partition_stood_is_resumed_once(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, policy: str, delivery: str
) -> None:
    """Retention goes on."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery, source_gap=policy)
    assert running.stop() == 0
    produce(source, "flights", range(100, 200), 1)
    delete_records(source, 150)
    running.start()
    running.wait_for(lambda told: bool(told["halts"]), "it stands")
    delete_records(source, 170)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 130)]
    assert values == [*range(100), *range(170, 200)]
    ((_, value),) = notes(destination)
    assert (value["lost"], value["resumed_at"]) == ([100, 170], 170)
    assert "offsets 100 to 169" in value["problem"]
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", ["at_least_once", AT_MOST_ONCE, EXACTLY_ONCE])
def test_a_process_that_is_killed_once_a_halt_was_taken_back_leaves_none_behind(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """Though positions are stored seldom, and nothing more comes."""
    source, _ = clusters
    running = copied(clusters, mirror, source_gap="pause_partition", delivery=delivery)
    assert running.stop() == 0
    topology = yaml.safe_load(running.file.read_text())
    topology["routes"][0]["commit_interval_ms"] = 60_000
    running.file.write_text(yaml.safe_dump(topology))
    produce(source, "flights", range(100, 200), 1)
    delete_records(source, 200)
    running.start()
    wait_halted(running, "source_gap")
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [], "the halt taken back")
    running.kill()
    running.start()
    told = running.wait_for(lambda told: partition_of(told)["state"] == "copying", "it goes on")
    assert (told["halts"], told["lag"]["messages"]) == ([], 0)
    assert running.stop() == 0


def test_a_route_that_is_to_fail_stops_until_it_is_resumed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, source_gap="fail")
    (port,) = free_ports(1)
    running.options = ("--http", str(port))
    assert running.stop() == 0
    produce(source, "flights", range(100, 200), 1)
    delete_records(source, 150)
    route = 'reason="source_gap",route="jfk-to-aggregate"'
    for met in (1, 0):
        running.start()
        told = running.wait_for(
            lambda told: told["state"] == "failed" and bool(told["halts"]), "the route failed"
        )
        assert "source_gap at flights-0" in told["problem"]
        assert told["halts"][0]["stops_route"]
        assert told["counts"].get("troubles", {}) == ({"source_gap": 1} if met else {})
        metrics = ask(port, "/metrics").splitlines()
        assert f"mirrormaker_route_halted{{{route}}} 1.0" in metrics
        assert (f"mirrormaker_troubles_total{{{route}}} 1.0" in metrics) == bool(met)
        assert running.stop() == 0
    running.start()
    running.wait_for(lambda told: told["state"] == "failed", "the route failed")
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    assert count(destination, "jfk.flights", 1) == 150
    assert len(notes(destination)) == 1
    assert running.stop() == 0


@pytest.mark.long
def test_a_partition_that_is_released_while_its_topic_is_paused_goes_on_when_that_ends(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    writer = producer(source)
    for value in (b'{"a": 1}', b"no json", b'{"a": 2}'):
        writer.produce("flights", value, b"k", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, transforms=[{"drop": {"fields": ["a"]}}])
    running.start()
    running.wait_for(lambda told: bool(told["halts"]), "the partition stands")
    of_topic = (str(running.file), "jfk-to-aggregate", "--topic", "flights")
    assert mirrormaker("pause", *of_topic).returncode == 0
    running.wait_for(lambda told: partition_of(told)["state"] == "unassigned", "the topic is paused")
    assert mirrormaker("resume", *of_topic).returncode == 0
    running.wait_copied()
    assert count(destination, "jfk.flights", 1) == 2
    running.wait_for(lambda told: told["halts"] == [], "the halt taken back")
    assert running.stop() == 0


@pytest.mark.long
def test_a_route_that_shares_the_work_with_others_stops_as_well(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    here, there = clusters
    create(here, "orders", 1)
    create(there, "orders", 1)
    ends = {"a": here, "b": there}
    running = mirror.of_file(
        mesh(tmp_path / "mesh", ends, [("a", "b"), ("b", "a")], on={"source_gap": "fail"})
    )
    produce(here, "orders", range(100), 1)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    produce(here, "orders", range(100, 200), 1)
    delete_records(here, 150, "orders")
    running.start()
    running.wait_for(lambda told: bool(told["halts"]) and told["state"] == "failed", "the route failed")
    wait_until(lambda: "route_rests" in running.log.read_text(), "it rests, and is not tried again and again")
    assert mirrormaker("resume", str(running.file), "a-to-b").returncode == 0
    running.wait_copied()
    assert count(there, "orders", 1) == 150
    assert running.stop() == 0


def lose_data(cluster: EmbeddedCluster, root: Path, *topics: str) -> None:
    """The node comes back with nothing in the topics, as if its disk had been replaced."""
    cluster.kill_node(1)
    for topic in topics:
        for directory in root.rglob(f"{topic}-*"):
            shutil.rmtree(directory)
    cluster.start_node(1)


@pytest.mark.parametrize(
    ("policy", "delivery", "membership"),
    [
        ("pause_partition", "at_least_once", "coordinator"),
        ("skip_and_record", "exactly_once", "coordinator"),
        ("pause_partition", "at_least_once", "zookeeper"),
    ],
    ids=["at_least_once", "exactly_once", "positions_without_epochs"],
)
def test_a_source_that_lost_records_and_has_grown_past_them_is_noticed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    tmp_path: Path,
    policy: str,
    delivery: str,
    membership: str,
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, delivery, membership, source_truncated=policy)
    assert running.stop() == 0
    lose_data(source, tmp_path / "jfk", "flights")
    produce(source, "flights", range(100, 250), 1)
    running.start()
    if policy == "pause_partition":
        told = wait_halted(running, "source_truncated")
        assert told["halts"][0]["lost"] == [0, 100]
        assert count(destination, "jfk.flights", 1) == 100
        assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: count(destination, "jfk.flights", 1) >= 250, "everything that there is now copied")
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 250)]
    assert values == list(range(250))
    ((_, value),) = notes(destination)
    assert (value["reason"], value["lost"]) == ("source_truncated", [0, 100])
    assert running.stop() == 0


def lose_end_and_position(running: MirrorProcess, source: EmbeddedCluster, root: Path) -> None:
    """The mirror has copied 150 records and ended; the node comes back with 100 of them, and with the
    positions that groups had then.
    """
    data, former = root / "jfk" / "node-1", root / "former"
    source.kill_node(1)
    shutil.copytree(data, former)
    source.start_node(1)
    produce(source, "flights", range(100, 150), 1)
    running.wait_copied()
    running.wait_for(lambda told: partition_of(told)["committed"] == 150, "all of it is committed")
    assert running.stop() == 0
    source.kill_node(1)
    shutil.rmtree(data)
    shutil.copytree(former, data)
    source.start_node(1)


@pytest.mark.parametrize("policy", ["pause_partition", "skip_and_record", "fail"])
def test_a_source_that_lost_records_and_the_position_behind_them_is_noticed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, policy: str
) -> None:
    """As when a replica leads that was not in sync, for the topic and for the positions of groups."""
    source, destination = clusters
    running = copied(clusters, mirror, source_truncated=policy)
    lose_end_and_position(running, source, tmp_path)
    produce(source, "flights", range(150, 170), 1)
    running.start()
    if policy != "skip_and_record":
        running.wait_for(
            lambda told: [halt["reason"] for halt in told["halts"]] == ["source_truncated"], "it stands"
        )
        assert running.stop() == 0
    else:
        wait_until(lambda: "went back to 100" in running.log.read_text(), "it is noticed")
    produce(source, "flights", range(170, 250), 1)  # grown past what was copied
    if policy != "skip_and_record":
        running.start()
        running.wait_for(lambda told: bool(told["halts"]), "it goes on to stand")
        assert count(destination, "jfk.flights", 1) == 150
        assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: count(destination, "jfk.flights", 1) >= 250, "everything that there is now copied")
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 250)]
    assert values == list(range(250))
    ((key, value),) = notes(destination)
    assert (key["offset"], value["reason"], value["lost"]) == (100, "source_truncated", [100, 150])
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("delivery", "then"),
    [
        ("at_least_once", "at_least_once"),
        ("at_most_once", "at_most_once"),
        ("at_least_once", "exactly_once"),
    ],
)
def test_a_source_that_lost_records_and_the_position_is_noticed_though_it_has_grown_past_them(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    tmp_path: Path,
    delivery: str,
    then: str,
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, delivery)
    lose_end_and_position(running, source, tmp_path)
    topology = yaml.safe_load(running.file.read_text())
    topology["routes"][0]["delivery"] = then
    running.file.write_text(yaml.safe_dump(topology))
    produce(source, "flights", range(150, 250), 1)
    running.start()
    assert wait_halted(running, "source_truncated")["halts"][0]["lost"] == [100, 150]
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 250)]
    assert values == list(range(250))
    assert [value["lost"] for _, value in notes(destination)] == [[100, 150]]
    assert running.stop() == 0


@pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_a_source_lost_along_with_the_position_is_resumed_once_though_nothing_new_comes(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, is_all: bool
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror)
    if is_all:
        assert running.stop() == 0
        lose_data(source, tmp_path / "jfk", "flights")
        seek = ("seek", str(running.file), "jfk-to-aggregate", "--to", "earliest")
        assert mirrormaker(*seek).stdout == "flights\t0\t0\n"
    else:
        lose_end_and_position(running, source, tmp_path)
    before = count(destination, "jfk.flights", 1)
    running.start()
    wait_halted(running, "source_truncated")
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    assert running.stop() == 0
    running.start()
    produce(source, "flights", range(150, 160), 1)
    wait_until(lambda: count(destination, "jfk.flights", 1) == before + 10, "it goes on by itself")
    assert len(notes(destination)) == 1
    assert running.stop() == 0


def test_a_topic_that_is_deleted_is_waited_for_and_stands_when_it_is_another(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror)
    delete_topic(source)
    told = running.wait_for(lambda told: bool(told["halts"]), "the deletion told of")
    assert told["obstacles"] == {"flights": "the topic was deleted at the source"}
    assert told["halts"][0]["reason"] == "topic_deleted"
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    wait_halted(running, "topic_recreated")
    assert running.stop() == 0
    running.start()
    wait_halted(running, "topic_recreated")
    assert count(destination, "jfk.flights", 1) == 100
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: count(destination, "jfk.flights", 1) == 130, "the new topic copied")
    running.wait_for(lambda told: told["halts"] == [] and told["obstacles"] == {}, "nothing stands")
    assert running.stop() == 0


def test_a_topic_that_was_deleted_while_nobody_ran_is_told_until_somebody_goes_on_behind_that(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, _ = clusters
    running = copied(clusters, mirror)
    running.wait_for(lambda told: told["ledger"]["pages"] > 0, "the copies are in the ledger")
    running.kill()
    delete_topic(source)
    running.start()
    told = running.wait_for(lambda told: bool(told["halts"]), "the deletion told of")
    assert told["obstacles"] == {"flights": "the topic was deleted at the source"}
    assert told["halts"][0]["reason"] == "topic_deleted"
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [] and told["obstacles"] == {}, "it is forgotten")
    assert running.stop() == 0


@pytest.mark.parametrize(
    "delivery", [pytest.param("at_least_once", marks=pytest.mark.long), AT_MOST_ONCE, EXACTLY_ONCE]
)
def test_a_topic_that_was_made_anew_while_nobody_ran_stands_until_it_is_resumed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """With a topic its source forgets where the route stood in it."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery)
    running.wait_for(lambda told: told["ledger"]["pages"] > 0, "the copies are in the ledger")
    running.kill()
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    for _ in range(2):
        running.start()
        wait_halted(running, "topic_recreated")
        assert len(consume(destination, "jfk.flights", 1, 100)) == 100
        running.kill()
    running.start()
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 130)]
    assert values == list(range(130))
    ((_, value),) = notes(destination)
    assert value["reason"] == "topic_recreated"
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, AT_MOST_ONCE, "exactly_once"])
def test_a_route_that_failed_for_a_topic_that_was_made_anew_fails_again_until_it_is_resumed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """However often its file is put in force again."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery, topic_recreated="fail")
    running.wait_for(lambda told: told["ledger"]["pages"] > 0, "the copies are in the ledger")
    assert running.stop() == 0
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    running.start()
    for tries in range(1, 4):
        running.wait_for(
            lambda told, tries=tries: (  # type: ignore[misc]
                told["state"] == "failed"
                and [event["name"] for event in told["events"]].count("trouble_met") == tries
            ),
            "the route failed",
        )
        assert running.process is not None
        if tries < 3:
            running.process.send_signal(signal.SIGHUP)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 130)]
    assert values == list(range(130))
    assert [value["reason"] for _, value in notes(destination)] == ["topic_recreated"]
    assert running.stop() == 0


def test_a_topic_that_goes_on_after_a_pause_has_no_problem_with_its_transaction_where_nothing_waits(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    """Another topic has kept the transaction meanwhile."""
    create(clusters[0], "flights-back", 1)
    running = copied(clusters, mirror, "exactly_once", buckets=1)
    topic = [str(running.file), "jfk-to-aggregate", "--topic", "flights"]

    def has(state: str) -> Callable[[dict[str, Any]], bool]:
        return lambda told: (
            state in [each["state"] for each in told["partitions"] if each["topic"] == "flights"]
        )

    assert mirrormaker("pause", *topic).returncode == 0
    running.wait_for(has("unassigned"), "it pauses")
    assert mirrormaker("resume", *topic).returncode == 0
    running.wait_for(lambda told: has("copying")(told) and told["problem"] is None, "it goes on")
    assert running.stop() == 0


def test_what_comes_to_a_topic_that_was_made_anew_waits_while_it_stands(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    """As much as there is from its beginning on, though the former one had come further."""
    source, _ = clusters
    running = copied(clusters, mirror)
    assert running.stop() == 0
    topology = yaml.safe_load(running.file.read_text())
    topology["routes"][0]["objectives"] = {"lag_seconds": 1}
    topology["routes"][0]["refresh_interval_ms"] = 60_000  # fetches fail before it misses the topic
    running.file.write_text(yaml.safe_dump(topology))
    running.start()
    running.wait_copied()
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    wait_halted(running, "topic_recreated")
    running.wait_for(
        lambda told: (
            told["lag"]["messages"] == 30
            and "lag_objective_breached" in [event["name"] for event in told["events"]]
        ),
        "what waits is late",
    )
    for way in ([], ["--deep"]):
        audited = mirrormaker("audit", str(running.file), *way)
        assert (audited.returncode, "30 pending" in audited.stdout) == (0, True), audited.stdout
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, AT_MOST_ONCE, "exactly_once"])
def test_a_topic_that_was_made_anew_before_the_eyes_of_its_route_is_resumed_once_though_nobody_runs(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """Whoever runs next finds no position in the new topic."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery)
    assert running.stop() == 0
    topology = yaml.safe_load(running.file.read_text())
    topology["routes"][0]["refresh_interval_ms"] = 60_000  # it does not miss the topic in between
    running.file.write_text(yaml.safe_dump(topology))
    running.start()
    running.wait_copied()
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    told = wait_halted(running, "topic_recreated")
    assert told["halts"][0]["position"] == 100
    running.kill()
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.start()
    running.wait_copied()
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 130)]
    assert values == list(range(130))
    ((_, value),) = notes(destination)
    assert (value["reason"], value["resumed_at"]) == ("topic_recreated", 0)
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", ["at_least_once", EXACTLY_ONCE])
def test_a_topic_that_is_deleted_at_the_destination_is_made_anew_and_told_of(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """Whether or not anybody runs then. The route goes on where it is."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery)
    assert LOST not in [event["name"] for event in running.status()["events"]]
    for number, is_at_work in ((100, True), (101, False)):
        if not is_at_work:
            assert running.stop() == 0
        delete_topic(destination, "jfk.flights")
        if not is_at_work:
            running.start()
        told = running.wait_for(lambda told: LOST in [event["name"] for event in told["events"]], "told of")
        lost = [each for each in told["events"] if each["name"] == LOST]
        assert len(lost) == 1, (told["events"], running.log.read_text())
        (event,) = lost
        assert event["details"] == {"topics": ["flights"], "destination": "jfk.flights"}
        produce(source, "flights", range(number, number + 1), 1)
        running.wait_copied()
        values = [message.value() for message in consume(destination, "jfk.flights", 1, 1)]
        assert values == [b"%d" % number]
    assert running.stop() == 0


def test_every_route_that_writes_a_topic_which_is_deleted_at_the_destination_tells_it_every_time(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Whichever of them makes it anew, dead letters as well."""
    sources, destination = {"jfk": cluster("jfk"), "lga": cluster("lga")}, cluster("aggregate")
    for source in sources.values():
        create(source, "flights", 1)
        produce(source, "flights", range(10), 1)
    file = tmp_path / "merged.yaml"
    named = {**sources, "aggregate": destination}
    route = {
        "to": "aggregate",
        "topics": {"include": ["flights"], "name": "{topic}", "merge": True},
        "transforms": [{"drop": {"headers": ["secret"]}}],
        "on": {"record_error": "park"},
        "refresh_interval_ms": 200,
        "heartbeats": False,
    }
    topology = {
        "clusters": {name: {"bootstrap": [address(each)]} for name, each in named.items()},
        "routes": [{"from": name, **route} for name in sources],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(topology))
    running = mirror.of_file(file)

    def told() -> list[dict[str, Any]]:
        routes = json.loads(mirrormaker("status", str(file), "--output", "json").stdout)["routes"]
        return list(routes)

    def lost() -> list[list[str]]:
        """By route, the topics in the order in which they are told."""
        return [
            [each["details"]["destination"] for each in route["events"] if each["name"] == LOST]
            for route in told()
        ]

    running.start()
    wait_until(
        lambda: all(route["partitions"] and route["lag"] == NO_LAG for route in told()), "both have copied"
    )
    expected: list[str] = []
    for topic in ("flights", "flights.dead-letters", "flights"):
        delete_topic(destination, topic)
        expected.append(topic)
        wait_until(lambda: lost() == [expected, expected], "told of by both")
    assert running.stop() == 0


@pytest.mark.parametrize("policy", ["pause_partition", "skip_and_record"])
def test_a_destination_with_more_partitions_is_told_of(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, policy: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 3)
    produce(source, "flights", range(100), 1)
    running = mirror(source, destination, on={"partition_mismatch": policy})
    running.start()
    problem = "'jfk.flights' has 3 partitions at the destination, the source 1"
    told = running.wait_for(
        lambda told: any(event["name"] == "trouble_met" for event in told["events"]), "the mismatch told of"
    )
    assert told["counts"]["troubles"] == {"partition_mismatch": 1}
    if policy == "pause_partition":
        assert told["obstacles"] == {"flights": problem}
        stands = ("halted", "partition_mismatch", problem)
        running.wait_for(
            lambda told: (
                [(each["state"], each["reason"], each["problem"]) for each in told["partitions"]] == [stands]
            ),
            "its partition stands",
        )
        assert mirrormaker("status", str(running.file)).stdout.count(problem) == 1
        assert count(destination, "jfk.flights", 3) == 0
    else:
        wait_until(lambda: count(destination, "jfk.flights", 3) == 100, "copied all the same")
    assert running.stop() == 0


def test_nothing_of_a_topic_that_was_made_anew_goes_to_a_copy_with_more_partitions(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 3)
    produce(source, "flights", range(90), 3)
    skips = {"topic_recreated": "skip_and_record"}
    running = mirror(source, destination, on=skips, refresh_interval_ms=3_600_000)
    running.start()
    running.wait_copied()
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(1000), 1)
    problem = "'jfk.flights' has 3 partitions at the destination, the source 1"
    running.wait_for(lambda told: told["obstacles"] == {"flights": problem}, "the mismatch told of")
    assert count(destination, "jfk.flights", 3) == 90
    assert running.stop() == 0


def test_a_partition_that_the_destination_has_not_stands_and_the_others_go_on(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    create(destination, "jfk.flights", 1)
    produce(source, "flights", range(100), 2)
    running = mirror(source, destination, sync={"partitions": False})
    running.start()
    told = running.wait_for(
        lambda told: (
            told["counts"]["troubles"] == {"partition_mismatch": 1}
            and [(each["state"], each["reason"]) for each in told["partitions"]]
            == [("copying", None), ("halted", "partition_mismatch")]
        ),
        "one partition stands",
    )
    assert told["partitions"][1]["problem"] == "the destination has no jfk.flights-1"
    wait_until(lambda: count(destination, "jfk.flights", 1) == 50, "the other is copied")
    admin = AdminClient({"bootstrap.servers": address(destination)})
    for grown in admin.create_partitions([NewPartitions("jfk.flights", 2)]).values():
        grown.result(PATIENCE_SECONDS)
    running.wait_copied()
    assert count(destination, "jfk.flights", 2) == 100
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_route_that_failed_for_a_topic_of_another_shape_goes_on_once_it_fits(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """Nobody takes the topic for one that was made anew."""
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 3)
    produce(source, "flights", range(100), 1)
    running = mirror(source, destination, delivery=delivery, on={"partition_mismatch": "fail"})
    running.start()
    told = running.wait_for(
        lambda told: told["state"] == "failed" and bool(told["halts"]), "the route failed"
    )
    assert "resume it to try again" in told["problem"]
    admin = AdminClient({"bootstrap.servers": address(source)})
    for grown in admin.create_partitions([NewPartitions("flights", 3)]).values():
        grown.result(PATIENCE_SECONDS)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_until(lambda: count(destination, "jfk.flights", 3) >= 100, "copied")
    told = running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    assert "topic_recreated" not in [event["details"].get("reason") for event in told["events"]]
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, "exactly_once", AT_MOST_ONCE])
def test_a_destination_without_room_is_waited_for(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    """Nothing is lost, nobody has to release anything, and what the source gets meanwhile comes after it."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery=delivery)
    keep_free(destination, 1 << 60)
    produce(source, "flights", range(100, 150), 1)
    running.wait_for(
        lambda told: (
            (partition_of(told)["state"], partition_of(told).get("reason")) == ("halted", "destination_full")
            and "destination_full" in [event["details"].get("reason") for event in told["events"]]
        ),
        "the partition stands",
    )
    assert numbers(destination, 100) == list(range(100))
    keep_free(destination, 0)
    running.wait_copied()
    running.wait_for(
        lambda told: (
            partition_of(told)["state"] == "copying"
            and "partition_recovered" in [event["name"] for event in told["events"]]
        ),
        "it goes on by itself",
    )
    assert numbers(destination, 150) == list(range(150))
    assert running.stop() == 0


def test_what_a_destination_refuses_is_told_in_its_words_and_crosses_once_it_or_the_file_is_changed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    for topic in ("flights-keyless", "flights-ahead"):
        create(source, topic, 1)
    create(destination, "jfk.flights-ahead", 1, **{"message.timestamp.after.max.ms": "3600000"})
    writer = producer(source)
    tomorrow_ms = round(time.time() * 1000) + 86_400_000
    writer.produce("flights-ahead", b"ahead", timestamp=tomorrow_ms)
    for key in (b"first", None, b"last"):
        writer.produce("flights-keyless", b"x", key=key)
    assert writer.flush(PATIENCE_SECONDS) == 0
    alter(source, "flights-keyless", cleanup_policy="compact")
    running = mirror(source, destination)
    running.start()
    told = running.wait_for(
        lambda told: [partition["reason"] for partition in told["partitions"]] == ["refused"] * 2,
        "both partitions stand",
    )
    ahead, keyless = (partition["problem"] for partition in told["partitions"])
    assert ahead.startswith("INVALID_TIMESTAMP: ")
    assert str(tomorrow_ms) in ahead
    assert keyless.startswith("INVALID_RECORD: ")
    paused = [event for event in told["events"] if event["name"] == "partition_paused"]
    assert {f"{event['details']['error']}: {event['details']['said']}" for event in paused} == {
        ahead,
        keyless,
    }
    alter(destination, "jfk.flights-ahead", message_timestamp_after_max_ms=str((1 << 63) - 1))
    topology = yaml.safe_load(running.file.read_text())
    keyed = {"topics": ["flights-keyless"], "keep": {"where": "key exists"}}
    topology["routes"][0]["filters"] = [keyed]
    running.file.write_text(yaml.safe_dump(topology))
    running.wait_copied()
    assert [message.key() for message in consume(destination, "jfk.flights-keyless", 1)] == [
        b"first",
        b"last",
    ]
    assert len(consume(destination, "jfk.flights-ahead", 1)) == 1
    assert running.stop() == 0


@pytest.mark.long
def test_a_route_that_is_to_fail_on_a_full_destination_fails_though_it_is_exactly_once(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, delivery="exactly_once", destination_full="fail")
    keep_free(destination, 1 << 60)
    produce(source, "flights", range(100, 150), 1)
    running.until(lambda: "route_rests" in running.log.read_text(), "the route stands though that is nowhere")
    told = running.wait_for(lambda told: told["state"] == "failed", "which is told")
    assert [halt["reason"] for halt in told["halts"]] == ["destination_full"]
    assert "destination_full" in told["problem"]
    keep_free(destination, 0)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    assert numbers(destination, 150) == list(range(150))
    assert running.stop() == 0


@pytest.mark.long
def test_transactions_that_cannot_be_committed_are_told_with_what_keeps_them(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, delivery="exactly_once")
    require_replicas(destination, "__mirrormaker_positions", 2)
    produce(source, "flights", range(100, 150), 1)
    told = running.wait_for(lambda told: told["problem"] is not None, "it is told")
    assert "transactions of 1 partitions are not committed: NOT_ENOUGH_REPLICAS" in told["problem"]
    require_replicas(destination, "__mirrormaker_positions", 1)
    running.wait_copied()
    running.wait_for(lambda told: told["problem"] is None, "it goes on")
    assert numbers(destination, 150) == list(range(150))
    assert running.stop() == 0


@pytest.mark.long
def test_a_group_that_cannot_share_the_work_out_is_told_with_what_keeps_it(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror)
    assert running.stop() == 0
    require_replicas(source, "__consumer_offsets", 2)
    produce(source, "flights", range(100, 200), 1)
    running.start()
    told = running.wait_for(lambda told: told["problem"] is not None, "the group cannot be joined")
    assert told["problem"].startswith("no partitions are shared out: COORDINATOR_NOT_AVAILABLE: ")
    assert told["problem"] in mirrormaker("status", str(running.file)).stdout
    require_replicas(source, "__consumer_offsets", 1)
    running.wait_for(lambda told: told["problem"] is None, "the group has shared the work out")
    running.wait_copied()
    assert count(destination, "jfk.flights", 1) == 200


def require_replicas(cluster: EmbeddedCluster, topic: str, number: int) -> None:
    """Have writes to the topic want so many in-sync replicas."""
    entry = ConfigEntry("min.insync.replicas", str(number), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_SECONDS)


def numbers(cluster: EmbeddedCluster, count: int) -> list[int]:
    """What readers of committed records see of the copy."""
    return [int(each.value() or b"") for each in consume(cluster, "jfk.flights", 1, count)]


def keep_free(cluster: EmbeddedCluster, size: int) -> None:
    """Start its node anew, which refuses clients while less than so many bytes are free."""
    cluster.stop_node(1)
    settings = {**cluster.spec.settings, "log.dir.min.free.bytes": size}
    cluster.spec = replace(cluster.spec, settings=settings)
    cluster.start_node(1)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"on": {"oversize": "skip_and_record"}}, id="notes"),
        pytest.param(
            {"topics": {"include": ["flights"], "name": "all.{topic}", "merge": True}},
            id="merge",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_another_route_brought_of_a_topic_of_before_is_nothing_to_a_new_route(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, keys: dict[str, Any]
) -> None:
    """Their notes of what is left out, and topics that they merge, are the same."""
    source, destination = clusters
    for name, records in (("one", 20), ("other", 30)):
        create(source, "flights", 1)
        produce(source, "flights", range(records), 1)
        topics = {"include": ["flights"], "name": f"{name}.{{topic}}"}
        running = mirror(source, destination, **{"name": name, "topics": topics, **keys})
        running.start()
        running.wait_copied()
        assert partition_of(running.status())["state"] == "copying"
        assert running.stop() == 0
        delete_topic(source)
    assert count(destination, "all.flights" if "topics" in keys else "other.flights", 1) >= 30


@pytest.mark.long
def test_a_topic_that_was_made_anew_stands_no_more_once_its_route_was_sent_elsewhere(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    running = copied(clusters, mirror, topic_recreated="pause_partition")
    running.kill()
    delete_topic(source)
    wait_until(lambda: try_to_create(source, "flights"), "the topic created again")
    produce(source, "flights", range(100, 130), 1)
    running.start()
    wait_halted(running, "topic_recreated")
    assert running.stop() == 0
    seek = ("seek", str(running.file), "jfk-to-aggregate", "--to", "10")
    wait_until(lambda: mirrormaker(*seek).returncode == 0, "the group has no member any more")
    running.start()
    running.wait_copied()
    running.wait_for(lambda told: told["halts"] == [], "nothing stands")
    values = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 120)]
    assert values == [*range(100), *range(110, 130)]
    ((key, value),) = notes(destination)
    assert (key["offset"], value["reason"], value["lost"]) == (0, "seek", [0, 10])
    assert running.stop() == 0
