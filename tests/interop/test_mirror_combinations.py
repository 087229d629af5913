"""Mirrors from each kind of cluster to each: our nodes, Apache Kafka with ZooKeeper, and the newest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.records.batch import Codec
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import (  # noqa: F401 a fixture
    PATIENCE_SECONDS,
    MirrorFactory,
    MirrorProcess,
    mirror,
    mirrormaker,
    wait_until,
)
from tests.daemon.test_carried_groups import committed
from tests.daemon.test_deep import batches
from tests.daemon.test_mirror import address, create, produce, producer
from tests.interop.apache import ApacheKafka
from tests.interop.kraft import KraftKafka

KINDS = ("ours", "with zookeeper", "newest")
PARTITIONS = 3
RECORDS = 300
READ = 40
"""Records of each partition that the group has read before it is carried over."""


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest,
    zookeeper: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str, str], Brokers]]:
    """A cluster of each kind at each end, started when it is first asked for."""
    running: dict[tuple[str, str], Brokers] = {}
    with ExitStack() as stack:

        def cluster(kind: str, end: str) -> Brokers:
            if (kind, end) not in running:
                home = tmp_path_factory.mktemp(end)
                running[kind, end] = stack.enter_context(_started(kind, home))
            return running[kind, end]

        def _started(kind: str, home: Path) -> EmbeddedCluster | ApacheKafka | KraftKafka:
            if kind == "ours":
                return EmbeddedCluster(cluster_spec(zookeeper, home, home.name))
            if kind == "newest":
                return KraftKafka(request.getfixturevalue("newest_classpath"), home)
            chroot = zookeeper.connect_string(f"apache-{home.name}")
            return ApacheKafka(request.getfixturevalue("kafka_classpath"), chroot, home)

        yield cluster


@pytest.mark.timeout(300)
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("origin", KINDS)
def test_topics_and_groups_arrive_in_every_delivery_and_changed_on_the_way(
    clusters: Callable[[str, str], Brokers],
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
    origin: str,
    to: str,
) -> None:
    source, destination = clusters(origin, "source"), clusters(to, "destination")
    name = f"{origin}-{to}".replace(" ", "")
    shallow, exact, deep = (f"{name}.{kind}" for kind in ("shallow", "exact", "deep"))
    for topic, partitions in ((shallow, PARTITIONS), (exact, PARTITIONS), (deep, 1)):
        create(source, topic, partitions)
    produce(source, shallow, range(RECORDS), PARTITIONS, **{"compression.type": "snappy"})
    _write_transactions(source, exact)
    _write_small_batches(source, deep)
    _commit(source, f"{name}-readers", shallow)
    running = mirror.of_file(_topology(tmp_path, source, destination, name))
    running.start()
    wait_until(lambda: _is_copied(running), "all routes have copied everything")

    for number in range(PARTITIONS):
        assert _read(destination, f"jfk.{shallow}", number) == _read(source, shallow, number)
        found = [int(value) for value in _read(destination, f"jfk.{exact}", number)]
        assert found == [each for each in range(number, RECORDS, PARTITIONS) if each // 30 % 3 != 1]
    values = [int(value) for value in _read(destination, f"jfk.{deep}", 0)]
    assert values == [each for each in range(RECORDS) if each % 5]
    stored = batches(destination, f"jfk.{deep}")
    assert {codec for codec, _ in stored} == {Codec.ZSTD}
    assert len(stored) * 4 < len(batches(source, deep))
    wait_until(
        lambda: committed(destination, f"{name}-readers", f"jfk.{shallow}")[0] == READ,
        "the group is carried over",
    )
    counts = {route["name"]: route["counts"] for route in _routes(running)}
    assert not counts[f"{name}-shallow"]["deep_batches"]
    assert counts[f"{name}-exact"]["transactions"] > 0
    assert running.stop() == 0


def _topology(folder: Path, source: Brokers, destination: Brokers, name: str) -> Path:
    def route(kind: str, **more: object) -> dict[str, object]:
        topics = {"include": [f"{name}.{kind}".replace(".", r"\.")]}
        intervals = {"refresh_interval_ms": 300, "commit_interval_ms": 100}
        return {
            "name": f"{name}-{kind}",
            "from": "jfk",
            "to": "aggregate",
            "topics": topics,
            **intervals,
            **more,
        }

    file = folder / "topology.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "jfk": {"bootstrap": [address(source)]},
                    "aggregate": {"bootstrap": [address(destination)]},
                },
                "routes": [
                    route(
                        "shallow",
                        copy="shallow",
                        sync={"groups": {"include": [f"{name}-readers"], "interval_ms": 200}},
                    ),
                    route("exact", delivery="exactly_once"),
                    route(
                        "deep",
                        compression="zstd",
                        batch={"bytes": 8192, "linger_ms": 5},
                        filters=[{"drop": {"header": {"name": "kind", "equals": "test"}}}],
                    ),
                ],
                "data_dir": "data",
            }
        )
    )
    return file


def _write_transactions(source: Brokers, topic: str) -> None:
    """Of 30 records each; every third is aborted."""
    writer = producer(source, **{"transactional.id": f"writer-{topic}"})
    writer.init_transactions(PATIENCE_SECONDS)
    for first in range(0, RECORDS, 30):
        writer.begin_transaction()
        for number in range(first, first + 30):
            writer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        writer.flush(PATIENCE_SECONDS)
        if first // 30 % 3 == 1:
            writer.abort_transaction(PATIENCE_SECONDS)
        else:
            writer.commit_transaction(PATIENCE_SECONDS)


def _write_small_batches(source: Brokers, topic: str) -> None:
    """Of ten records each; every fifth record says that it is of no use."""
    writer = producer(source, **{"compression.type": "lz4"})
    for number in range(RECORDS):
        kind = b"real" if number % 5 else b"test"
        writer.produce(topic, b"%d" % number, partition=0, headers=[("kind", kind)])
        if number % 10 == 9:
            assert writer.flush(PATIENCE_SECONDS) == 0


def _commit(cluster: Brokers, group: str, topic: str) -> None:
    reader = Consumer({"bootstrap.servers": address(cluster), "group.id": group, "log_level": 0})
    try:
        places = [Position(topic, number, READ) for number in range(PARTITIONS)]
        reader.commit(offsets=places, asynchronous=False)
    finally:
        reader.close()


def _read(cluster: Brokers, topic: str, partition: int) -> list[bytes]:
    """Values of a partition in order, as readers of committed records find them."""
    reader = Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    try:
        reader.assign([Position(topic, partition, 0)])
        while True:
            message = reader.poll(PATIENCE_SECONDS)
            assert message is not None, f"{topic}-{partition} does not end"
            if message.error() is not None:
                return values
            values.append(message.value() or b"")
    finally:
        reader.close()


def _routes(running: MirrorProcess) -> list[dict[str, Any]]:
    routes: list[dict[str, Any]] = json.loads(
        mirrormaker("status", str(running.file), "--output", "json").stdout
    )["routes"]
    return routes


def _is_copied(running: MirrorProcess) -> bool:
    return all(
        route["partitions"] and route["lag"] and route["lag"]["messages"] == 0 for route in _routes(running)
    )
