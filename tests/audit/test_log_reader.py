"""A stretch of a log as an audit reads it from a node."""

from __future__ import annotations

import asyncio
import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import TopicPartition
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from tests.conftest import ClusterFactory

PATIENCE_SECONDS = 40
FLIGHTS = TopicPartition("flights", 0)
BATCHES = 8
BATCH = os.urandom(50_000)


def test_a_log_does_not_end_where_a_quota_lets_nothing_through(cluster: ClusterFactory) -> None:
    node = cluster(settings={"quota.window.num": 2})
    address = {"bootstrap.servers": str(node.bootstrap[0])}
    admin = AdminClient(address)
    admin.create_topics([NewTopic("flights", 1, 1)])["flights"].result(PATIENCE_SECONDS)
    producer = Producer({**address, "batch.size": len(BATCH), "linger.ms": 0})
    for _ in range(BATCHES):
        producer.produce("flights", BATCH)
    assert producer.flush(PATIENCE_SECONDS) == 0

    async def main() -> None:
        async with Cluster(node.bootstrap) as asked:
            await Admin(asked).alter_quotas({"client-id": None}, {"consumer_byte_rate": 100_000})
            await asked.ensure(["flights"])
            lane = asked.new_lane("audit")
            reader = LogReader(asked, FLIGHTS, Range(0, BATCHES), committed_only=True, lane=lane)
            assert [entry.next async for entry in reader.entries()] == list(range(1, BATCHES + 1))
            behind = LogReader(asked, FLIGHTS, Range(0, BATCHES + 5), committed_only=True, lane=lane)
            assert [entry.next async for entry in behind.entries()][-1] == BATCHES

    asyncio.run(main())
