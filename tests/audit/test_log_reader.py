"""A stretch of a log as an audit reads it from a node."""

from __future__ import annotations

import asyncio
import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort, TopicPartition
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from tests.conftest import ClusterFactory

PATIENCE_SECONDS = 40
FLIGHTS = TopicPartition("flights", 0)
BATCHES = 8
BATCH = os.urandom(50_000)


def _fill(address: HostPort, batches: int) -> None:
    """So many batches of one record each."""
    settings = {"bootstrap.servers": str(address)}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("flights", 1, 1)])["flights"].result(PATIENCE_SECONDS)
    producer = Producer({**settings, "batch.size": len(BATCH), "linger.ms": 0})
    for _ in range(batches):
        producer.produce("flights", BATCH)
    assert producer.flush(PATIENCE_SECONDS) == 0


def test_a_short_stretch_of_a_long_log_costs_little(cluster: ClusterFactory) -> None:
    node = cluster()
    _fill(node.bootstrap[0], 100)

    async def read(asked: Cluster, within: Range) -> LogReader:
        reader = LogReader(asked, FLIGHTS, within, committed_only=True, lane=asked.new_lane("audit"))
        offsets = [entry.next - 1 async for entry in reader.entries()]
        assert offsets == list(range(within.first, within.next))
        return reader

    async def main() -> None:
        async with Cluster(node.bootstrap) as asked:
            await asked.ensure(["flights"])
            short = await read(asked, Range(50, 51))
            assert short.bytes < 3 * len(BATCH)
            whole = await read(asked, Range(0, 100))
            assert whole.bytes >= 100 * len(BATCH)

    asyncio.run(main())


def test_a_log_does_not_end_where_a_quota_lets_nothing_through(cluster: ClusterFactory) -> None:
    node = cluster(settings={"quota.window.num": 2})
    _fill(node.bootstrap[0], BATCHES)

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
