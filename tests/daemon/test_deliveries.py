"""What a crash of the mirror may do to records on their way, by `delivery`: real processes, killed."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Position

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, wait_until
from tests.daemon.test_mirror import address, create

PARTITIONS = 3
KILLS = int(os.environ.get("DELIVERY_KILLS", "3"))
POSITIONS = "__mirrormaker_positions"


class SteadyWriter:
    """Writes numbers to the source until it is told to stop."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.written = 0
        self._producer = Producer({"bootstrap.servers": address(cluster), "linger.ms": 5, "log_level": 0})
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> SteadyWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _write(self) -> None:
        while not self._done.wait(0.005):
            for _ in range(20):
                self._producer.produce("flights", b"%d" % self.written, partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0)


@pytest.fixture
def clusters(cluster: ClusterFactory) -> tuple[EmbeddedCluster, EmbeddedCluster]:
    return cluster("jfk"), cluster("aggregate")


def numbers_at(cluster: EmbeddedCluster, *, isolation: str = "read_committed") -> Counter[int]:
    """What readers find."""
    reader = Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: Counter[int] = Counter()
    try:
        reader.assign([Position("jfk.flights", number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, "the topic was not read to its end"
            for message in reader.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found[int(message.value() or b"")] += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
    finally:
        reader.close()
    return found


def killed_often(
    source: EmbeddedCluster,
    mirror: MirrorProcess,
    kills: int,
) -> int:
    """Copy while the mirror is killed so often; how many records were written."""
    chance = random.Random()
    with SteadyWriter(source) as writer:
        for _ in range(kills):
            mirror.start()
            time.sleep(chance.uniform(0.7, 3.0))
            mirror.kill()
        mirror.start()
    mirror.wait_copied()
    return writer.written


def events(mirror: MirrorProcess, name: str) -> list[dict[str, Any]]:
    """What all its processes logged under a name."""
    told = [json.loads(line) for line in mirror.log.read_text().splitlines() if line.startswith("{")]
    return [event for event in told if event["event"] == name]


def test_exactly_once_neither_loses_nor_doubles_whenever_the_mirror_is_killed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    running = mirror(source, destination, delivery="exactly_once")
    written = killed_often(source, running, KILLS)
    wait_until(lambda: numbers_at(destination).total() >= written, "everything is committed")
    assert numbers_at(destination) == Counter(range(written))


def test_at_least_once_loses_nothing_whenever_the_mirror_is_killed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    running = mirror(source, destination, delivery="at_least_once")
    written = killed_often(source, running, KILLS)
    assert numbers_at(destination).keys() == set(range(written))


def test_at_most_once_doubles_nothing_and_tells_what_may_be_lost(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    running = mirror(source, destination, delivery="at_most_once")
    written = killed_often(source, running, KILLS)
    numbers = numbers_at(destination)
    assert set(numbers.values()) == {1}
    assert numbers.keys() <= set(range(written))
    told = sum(event["count"] for event in events(running, "records_maybe_lost"))
    assert written - len(numbers) <= told
