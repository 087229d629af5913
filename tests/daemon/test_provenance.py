"""Clusters that mirror the same topics to each other, under the same names, written to at all of them."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.test_mirror import _count, address, consume, create, produce, producer

TOPIC, PARTITIONS = "orders", 3
RECORDS, PRODUCERS = 6_000, 6
"""Of each cluster, from so many producers, one after the other."""
KILLS = 6

Clusters = Mapping[str, Brokers]
Line = tuple[str, str]


def mesh(folder: Path, clusters: Clusters, lines: Sequence[Line], **route: object) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "mesh.yaml"
    topics = {"include": [TOPIC], "name": "{topic}", "merge": len(lines) > len(clusters)}
    topology = {
        "clusters": {
            name: {"bootstrap": [str(address) for address in cluster.bootstrap]}
            for name, cluster in clusters.items()
        },
        "defaults": {"refresh_interval_ms": 300, "commit_interval_ms": 100, **route},
        "routes": [{"from": source, "to": destination, "topics": topics} for source, destination in lines],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(topology))
    return file


def share_of(clusters: Clusters, name: str) -> range:
    """The numbers that are written at this cluster."""
    first = list(clusters).index(name) * RECORDS
    return range(first, first + RECORDS)


def write(clusters: Clusters, name: str) -> None:
    share = share_of(clusters, name)
    for numbers in (share[turn::PRODUCERS] for turn in range(PRODUCERS)):
        produce(clusters[name], TOPIC, numbers, PARTITIONS, **{"batch.size": 1000})


def numbers_at(cluster: Brokers) -> dict[int, list[int]]:
    """What readers find in each partition, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": address(cluster), "log_level": 0, **settings})
    try:
        reader.assign([Position(TOPIC, number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, "the topic was not read to its end"
            for message in reader.consume(10_000, 0.2):
                if (error := message.error()) is None:
                    found[message.partition() or 0].append(int(message.value() or b""))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
    finally:
        reader.close()
    return found


def total(cluster: Brokers) -> int:
    return sum(map(len, numbers_at(cluster).values()))


def is_copied(running: MirrorProcess) -> bool:
    told = routes_of(running)
    return all(route["partitions"] and route["lag"] and not route["lag"]["messages"] for route in told)


def routes_of(running: MirrorProcess) -> list[dict[str, Any]]:
    """All routes as `status` tells them."""
    told = json.loads(mirrormaker("status", str(running.file), "--output", "json").stdout)
    routes: list[dict[str, Any]] = told["routes"]
    return routes


def start(clusters: Clusters) -> None:
    for cluster in clusters.values():
        create(cluster, TOPIC, PARTITIONS)


def assert_everything_once_everywhere(clusters: Clusters) -> None:
    every = sorted(number for name in clusters for number in share_of(clusters, name))
    for name, cluster in clusters.items():
        found = numbers_at(cluster)
        assert sorted(number for numbers in found.values() for number in numbers) == every, name
        for numbers in found.values():
            assert_orders_of_origins(clusters, numbers)


def assert_orders_of_origins(clusters: Clusters, numbers: Sequence[int]) -> None:
    """Records that one producer of one cluster wrote stand in its order, by their first appearance."""
    for name in clusters:
        share = share_of(clusters, name)
        for turn in range(PRODUCERS):
            own = share[turn::PRODUCERS]
            wrote = list(dict.fromkeys(number for number in numbers if number in own))
            assert wrote == sorted(wrote), name


TWO = [("a", "b"), ("b", "a")]
RING = [("a", "b"), ("b", "c"), ("c", "a")]
CHAIN = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(TWO, id="two"),
        pytest.param(RING, id="ring of three", marks=pytest.mark.long),
        pytest.param(CHAIN, id="chain of three, both ways"),
        pytest.param(list(permutations("abc", 2)), id="three, each to each", marks=pytest.mark.long),
    ],
)
def test_every_record_is_once_at_each_place_however_the_clusters_are_joined(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path, lines: list[Line]
) -> None:
    clusters: Clusters = {name: cluster(name) for name in sorted({name for line in lines for name in line})}
    start(clusters)
    running = mirror.of_file(mesh(tmp_path, clusters, lines))
    running.start()
    with ThreadPoolExecutor() as writers:
        list(writers.map(lambda name: write(clusters, name), clusters))
    wait_until(
        lambda: all(_count(each, TOPIC, PARTITIONS) >= len(clusters) * RECORDS for each in clusters.values()),
        "all everywhere",
    )
    wait_until(lambda: is_copied(running), "nothing is left to copy")
    assert_everything_once_everywhere(clusters)
    assert all(route["counts"]["returned_batches_dropped"] > 0 for route in routes_of(running))
    assert running.stop() == 0
    assert_audit_agrees_and_reads_nothing(running)


def assert_audit_agrees_and_reads_nothing(running: MirrorProcess) -> None:
    """The ledger tells what the route brought; what others wrote is nobody's business."""
    done = mirrormaker("audit", str(running.file), "--output", "json")
    assert done.returncode == 0, done.stdout
    told = [(route["result"], route["bytes_read"]) for route in json.loads(done.stdout)["routes"]]
    assert told == [("equal", 0)] * len(told)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("delivery", "lines"), [("at_least_once", TWO), ("exactly_once", CHAIN)])
@pytest.mark.long
def test_daemons_that_are_killed_under_load_lose_nothing_and_nothing_comes_back_to_where_it_was_born(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path, delivery: str, lines: list[Line]
) -> None:
    clusters: Clusters = {name: cluster(name) for name in sorted({name for line in lines for name in line})}
    start(clusters)
    small = {"produce_bytes": 4096, "fetch_partition_bytes": 16384}
    files = [
        mesh(tmp_path / each, clusters, lines, resources=small, delivery=delivery) for each in ("one", "two")
    ]
    daemons = [mirror.of_file(file) for file in files]
    for daemon in daemons:
        daemon.start()
    with ThreadPoolExecutor() as writers:
        writing = [writers.submit(write, clusters, name) for name in clusters]
        for kill in range(KILLS):
            reached = {each: _count(each, TOPIC, PARTITIONS) for each in clusters.values()}
            wait_until(
                lambda before=reached: (
                    any(_count(each, TOPIC, PARTITIONS) > before[each] for each in before)  # type: ignore[misc]
                    or all(each.done() for each in writing)
                ),
                "a step",
            )
            daemons[kill % 2].kill()
            daemons[kill % 2].start()
        for each in writing:
            each.result()
    wait_until(lambda: is_copied(daemons[0]), "nothing is left to copy", 2 * PATIENCE_SECONDS)
    if delivery == "exactly_once":
        wait_until(
            lambda: all(total(each) >= len(clusters) * RECORDS for each in clusters.values()), "committed"
        )
        assert_everything_once_everywhere(clusters)
    for name, place in clusters.items():
        found = numbers_at(place)
        for numbers in found.values():
            assert_orders_of_origins(clusters, numbers)
        counts = Counter(number for numbers in found.values() for number in numbers)
        assert sorted(counts) == sorted(number for each in clusters for number in share_of(clusters, each))
        assert all(counts[number] == 1 for number in share_of(clusters, name)), f"echoes at {name}"
    for daemon in daemons:
        assert daemon.stop() == 0


def test_topics_of_a_step_that_all_ways_from_a_cluster_have_are_the_same_everywhere(
    cluster: ClusterFactory, tmp_path: Path, mirror: MirrorFactory
) -> None:
    clusters = {name: cluster(name) for name in ("east", "north", "west")}
    lines = [(source, to) for source in clusters for to in clusters if source != to]
    topics = {"include": [".*"], "name": "{topic}", "merge": True}
    step = {"route": {"to": "late", "when": {"key_prefix": "late"}}}
    file = mesh(tmp_path, clusters, lines)
    topology = yaml.safe_load(file.read_text())
    for route in topology["routes"]:
        route |= {"topics": topics} | ({"transforms": [step]} if route["from"] == "east" else {})
    file.write_text(yaml.safe_dump(topology))
    for name, each in clusters.items():
        create(each, "orders", 1)
        writer = producer(each)
        for number in range(RECORDS):
            key = b"late" if number % 2 else b"early"
            writer.produce("orders", f"{name} {number}".encode(), key, partition=0)
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror.of_file(file)
    running.start()
    half = RECORDS // 2
    expected = {name: (0 if name == "east" else half) for name in clusters}

    def counts(topic: str) -> dict[str, int]:
        return {name: _count(each, topic, 1) for name, each in clusters.items()}

    def is_everywhere() -> bool:
        rest = {name: 3 * RECORDS - late for name, late in expected.items()}
        return counts("late") == expected and counts("orders") == rest

    wait_until(is_everywhere, "all is everywhere")
    assert running.stop() == 0
    assert is_everywhere()
    for name in ("north", "west"):
        late = {message.value() for message in consume(clusters[name], "late", 1, half)}
        assert late == {b"east %d" % number for number in range(RECORDS) if number % 2}
