"""Failover groups between our nodes and Apache Kafka, which is fenced, written to and read on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, mirror  # noqa: F401 a fixture
from tests.daemon.switch_drill import Drill
from tests.daemon.test_failover import TOPIC, group_file
from tests.daemon.test_mirror import create
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture


@pytest.fixture
def node(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One of our nodes."""
    with EmbeddedCluster(cluster_spec(zookeeper, tmp_path, "ours")) as node:
        yield node


@pytest.mark.timeout(400)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("home", ["ours", "Apache Kafka"])
def test_a_group_switches_between_our_nodes_and_apache_kafka_and_has_every_record_once(
    node: EmbeddedCluster,
    cluster,  # type: ignore[no-untyped-def]  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
    home: str,
    delivery: str,
) -> None:
    kafka = cluster()
    ends = (node, kafka) if home == "ours" else (kafka, node)
    clusters: Mapping[str, Brokers] = dict(zip(("primary", "standby"), ends, strict=True))
    create(clusters["primary"], TOPIC, 1)
    running = mirror.of_file(group_file(tmp_path, clusters, delivery=delivery))
    running.start()
    drill = Drill(clusters, running)
    drill.begin()
    drill.switch("failover", kill_at=0)
    drill.switch("failback", kill_at=3)
    drill.switch("failover", kill_at=0)
    drill.end()
    assert running.stop() == 0
