"""An exactly-once mirror whose destination is Apache Kafka, the last with ZooKeeper and the newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, mirror, wait_until  # noqa: F401 a fixture
from tests.daemon.killed_mirrors import create_topic, events, killed_often, numbers_at
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture

KILLS = 3


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
