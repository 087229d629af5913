"""Quotas as foreign clients meet them: on a real node nothing is lost, and they hear how long to wait."""

from __future__ import annotations

import asyncio
import os
import time

from confluent_kafka import Consumer, Producer, ThrottleEvent
from confluent_kafka import TopicPartition as Place

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort
from tests.conformance.test_confluent_kafka import DEADLINE_SECONDS, consume, create
from tests.conftest import ClusterFactory

BATCHES = 20
BATCH = os.urandom(50_000)


def limit(bootstrap: str, client_id: str | None, **quotas: float) -> None:
    async def alter() -> None:
        cluster = Cluster([HostPort.parse(bootstrap)])
        await cluster.start(timeout_ms=10_000)
        await Admin(cluster).alter_quotas({"client-id": client_id}, quotas)
        await cluster.close()

    asyncio.run(alter())


def test_librdkafka_is_slowed_down_and_loses_nothing(cluster: ClusterFactory) -> None:
    topic = "topic"
    bootstrap = str(cluster(settings={"quota.window.num": 2}).bootstrap[0])
    create(bootstrap, topic)
    limit(bootstrap, topic, producer_byte_rate=400_000, consumer_byte_rate=400_000)
    throttled: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": bootstrap, "client.id": topic, "throttle_cb": throttled.append}

    producer = Producer({**settings, "batch.size": len(BATCH), "linger.ms": 0})
    for _ in range(BATCHES):
        producer.produce(topic, BATCH)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert any(event.throttle_time > 0 for event in throttled)

    throttled.clear()
    consumer = Consumer({**settings, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([Place(topic, 0, 0)])
    messages = consume(consumer, BATCHES)
    assert all(message.value() == BATCH for message in messages)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not throttled:  # the callback runs within poll
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.close()


def test_a_client_with_quotas_sets_those_of_others_that_have_none_yet(cluster: ClusterFactory) -> None:
    bootstrap = str(cluster().bootstrap[0])
    for client_id in (None, "first", "second"):
        limit(bootstrap, client_id, request_percentage=5_000)
