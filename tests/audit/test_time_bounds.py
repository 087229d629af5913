"""Of what time the records of logs are that nodes keep."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.audit.time_bounds import time_bounds
from tests.conftest import ClusterFactory

PATIENCE_SECONDS = 40
LONG_AGO_MS = 981_072_000_000


def test_records_that_the_node_dated_are_of_that_time_whatever_their_producer_says(
    cluster: ClusterFactory,
) -> None:
    node = cluster()
    begun_ms = SystemClock().now_ms()
    produce(node, {"message.timestamp.type": "LogAppendTime"}, [LONG_AGO_MS + number for number in range(10)])
    first, last = bounds_of(node)
    assert begun_ms <= first <= last <= SystemClock().now_ms()


def test_no_record_counts_as_of_a_time_that_is_still_to_come(cluster: ClusterFactory) -> None:
    node, begun_ms = cluster(), SystemClock().now_ms()
    in_microseconds = begun_ms * 1000
    produce(node, {}, [LONG_AGO_MS, in_microseconds])
    first, last = bounds_of(node)
    assert first == LONG_AGO_MS
    assert begun_ms <= last <= SystemClock().now_ms()


def produce(node: EmbeddedCluster, config: dict[str, str], timestamps: Iterable[int]) -> None:
    """To a topic that is made for it."""
    address = {"bootstrap.servers": ",".join(map(str, node.bootstrap))}
    admin = AdminClient(address)
    admin.create_topics([NewTopic("flights", 1, 1, config=config)])["flights"].result(PATIENCE_SECONDS)
    producer = Producer(address)
    for timestamp in timestamps:
        producer.produce("flights", b"%d" % timestamp, timestamp=timestamp)
    assert producer.flush(PATIENCE_SECONDS) == 0


def bounds_of(node: EmbeddedCluster) -> tuple[int, int]:
    async def main() -> tuple[int, int] | None:
        async with Cluster(node.bootstrap) as asked:
            await asked.ensure(["flights"])
            return await time_bounds(asked, [TopicPartition("flights", 0)])

    bounds = asyncio.run(main())
    assert bounds is not None
    return bounds
