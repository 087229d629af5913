"""An exactly-once mirror whose destination is Apache Kafka, the last with ZooKeeper and the newest."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, mirror, wait_until  # noqa: F401 a fixture
from tests.daemon.killed_mirrors import (
    TOPIC,
    SteadyWriter,
    create_topic,
    events,
    killed_often,
    numbers_at,
    places_at,
)
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture

KILLS = 3
FAR = 10_000_000
"""Numbers from here on are written at the destination."""


@pytest.fixture
def source(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One of our nodes."""
    with EmbeddedCluster(cluster_spec(zookeeper, tmp_path, "jfk")) as node:
        yield node


@pytest.mark.timeout(300)
def test_apache_kafka_gets_each_record_once_whenever_the_mirror_is_killed(
    source: EmbeddedCluster,
    cluster: Callable[[], Brokers],  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
) -> None:
    destination = cluster()
    create_topic(source)
    running = mirror(source, destination, delivery="exactly_once")
    written = killed_often(source, running, KILLS)
    wait_until(lambda: numbers_at(destination).total() >= written, "everything is committed")
    assert numbers_at(destination) == Counter(range(written))
    assert events(running, "bucket_fenced") == events(running, "transaction_given_up") == []


@pytest.mark.timeout(300)
def test_two_sides_of_one_topic_have_each_record_once_whenever_the_mirror_between_them_is_killed(
    source: EmbeddedCluster,
    cluster: Callable[[], Brokers],  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
) -> None:
    destination = cluster()
    create_topic(source)
    create_topic(destination)
    both = {"include": [TOPIC], "name": "{topic}"}
    running = mirror(source, destination, name="forth", delivery="exactly_once", topics=both)
    document = yaml.safe_load(running.file.read_text())
    document["routes"].append({**document["routes"][0], "name": "back", "from": "aggregate", "to": "jfk"})
    running.file.write_text(yaml.safe_dump(document))
    chance = random.Random()
    with SteadyWriter(source) as here, SteadyWriter(destination, FAR) as there:
        for _ in range(KILLS):
            running.start()
            time.sleep(chance.uniform(0.7, 3.0))
            running.kill()
        running.start()
    expected = Counter([*range(here.written), *range(FAR, there.written)])
    for side in (source, destination):
        wait_until(lambda side=side: numbers_of(side).total() >= expected.total(), "everything is committed")  # type: ignore[misc]
        assert numbers_of(side) == expected
    assert running.stop() == 0


def numbers_of(cluster: Brokers) -> Counter[int]:  # noqa: F811
    """What readers find in the topic that both sides have."""
    return Counter(number for places in places_at(cluster, TOPIC).values() for number in places.values())
