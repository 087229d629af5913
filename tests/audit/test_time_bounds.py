"""Of what time the records of logs are that nodes keep."""

from __future__ import annotations

import asyncio

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.types import TopicPartition
from mirrormaker.audit.time_bounds import time_bounds
from tests.conftest import ClusterFactory

PATIENCE_SECONDS = 40
LONG_AGO_MS = 981_072_000_000


def test_records_that_the_node_dated_are_of_that_time_whatever_their_producer_says(
    cluster: ClusterFactory,
) -> None:
    node = cluster()
    address = {"bootstrap.servers": ",".join(map(str, node.bootstrap))}
    config = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient(address)
    admin.create_topics([NewTopic("flights", 1, 1, config=config)])["flights"].result(PATIENCE_SECONDS)
    begun_ms = SystemClock().now_ms()
    producer = Producer(address)
    for number in range(10):
        producer.produce("flights", b"%d" % number, timestamp=LONG_AGO_MS + number)
    assert producer.flush(PATIENCE_SECONDS) == 0

    async def main() -> tuple[int, int] | None:
        async with Cluster(node.bootstrap) as asked:
            await asked.ensure(["flights"])
            return await time_bounds(asked, [TopicPartition("flights", 0)])

    bounds = asyncio.run(main())
    assert bounds is not None
    assert begun_ms <= bounds[0] <= bounds[1] <= SystemClock().now_ms()
