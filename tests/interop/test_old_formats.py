"""Sources that store a topic in one format after another, as Apache Kafka before 3.0 may be told to."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirror  # noqa: F401 a fixture
from tests.daemon.test_carried_groups import SYNC, commit, wait_carried
from tests.daemon.test_deep import has_event
from tests.daemon.test_mirror import address, consume, create, produce
from tests.interop.apache import ApacheKafka, kafka_jars
from tests.interop.test_carried_groups import node  # noqa: F401 a fixture


def store_as(cluster: Brokers, topic: str, version: str) -> None:
    """From now on, in the format of that version of Apache Kafka."""
    entry = ConfigEntry("message.format.version", version, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_SECONDS)


@pytest.mark.timeout(300)
def test_a_log_that_forgets_its_leader_epochs_with_its_format_is_copied_on(
    node: EmbeddedCluster,  # noqa: F811
    zookeeper: EmbeddedZooKeeper,
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
) -> None:
    """That what was read last is of an epoch of which the source knows nothing is no loss then."""
    connect = zookeeper.connect_string(f"old-{uuid.uuid4().hex[:8]}")
    classpath = kafka_jars("2.8.2", tmp_path / "jars")
    with ApacheKafka(classpath, connect, tmp_path) as kafka:
        create(kafka, "flights", 1)
        running = mirror(kafka, node, sync=SYNC)
        running.start()
        first = 0
        for version in ("2.8", "0.10.2", "2.8", "0.9.0", "2.8", "0.10.0"):
            store_as(kafka, "flights", version)
            produce(kafka, "flights", range(first, first + 20), 1)
            first += 20
            running.wait_copied()
            running.wait_for(lambda told, end=first: told["counts"]["records"] >= end, version)
            commit(kafka, "readers", "flights", first - 7)
            wait_carried(node, "readers", first - 7)
        assert [int(message.value() or b"") for message in consume(node, "jfk.flights", 1)] == list(
            range(first)
        )
        assert not has_event(running.status(), "trouble_met")
        assert running.stop() == 0
