"""A foreign client over IPv6, on a node with several listeners."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports
from broker.types import HostPort
from tests.conformance.test_confluent_kafka import DEADLINE_SECONDS, consume, create, produce
from tests.conftest import cluster_spec, forked


@pytest.fixture
def outside(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[HostPort]:
    """The address of a node's second listener."""
    (port,) = free_ports(1)
    address = HostPort("::1", port)

    class TwoListeners(ClusterSpec):
        def node_settings(self, index: int) -> dict[str, object]:
            settings = super().node_settings(index)
            return {
                **settings,
                "listeners": f"{settings['listeners']},OUTSIDE://{address}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
            }

    spec = cluster_spec(zookeeper, tmp_path, "node")
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    with EmbeddedCluster(TwoListeners(**fields), forked):
        yield address


def test_librdkafka_produces_and_consumes_over_ipv6(outside: HostPort) -> None:
    """It connects to what the node tells, so all of this goes over the second listener."""
    create(str(outside), "t")
    metadata = AdminClient({"bootstrap.servers": str(outside)}).list_topics(timeout=DEADLINE_SECONDS)
    assert [(broker.host, broker.port) for broker in metadata.brokers.values()] == [tuple(outside)]
    produce(str(outside), "t", ["one", "two"])
    consumer = Consumer({"bootstrap.servers": str(outside), "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Place("t", 0, 0)])
    assert [message.value() for message in consume(consumer, 2)] == [b"one", b"two"]
    consumer.commit(offsets=[Place("t", 0, 2)], asynchronous=False)
    (committed,) = consumer.committed([Place("t", 0)], timeout=DEADLINE_SECONDS)
    assert committed.offset == 2
    consumer.close()
