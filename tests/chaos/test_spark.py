"""Spark loads a topic into files and copies it to another while its driver, its workers and the node are
killed: both hold every record once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset
from broker.client.producer import Producer, ProducerSettings
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.chaos.spark_loader import COPY, SOURCE
from tests.chaos.spark_loads import PATIENCE_SECONDS, Loader, read_files

PARTITIONS = 4
RECORDS_PER_ROUND = 3_000
READING = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED)


@pytest.fixture
def loader(node: EmbeddedCluster, tmp_path: Path) -> Iterator[Loader]:
    asyncio.run(create_topics(node))
    loader = Loader(node, tmp_path, "--copy", COPY)
    yield loader
    loader.kill()


async def create_topics(node: EmbeddedCluster) -> None:
    async with Cluster(node.bootstrap) as cluster:
        for name in (SOURCE, COPY):
            topic = NewTopic(name=name, partitions=PARTITIONS, replication_factor=1)
            await Admin(cluster).create_topic(topic)


async def write(node: EmbeddedCluster, numbers: range) -> None:
    async with (
        Cluster(node.bootstrap) as cluster,
        Producer(cluster, settings=ProducerSettings(batch_bytes=2_000)) as producer,
    ):
        for number in numbers:
            await producer.send(SOURCE, b"%08d" % number, partition=number % PARTITIONS)


async def read_copy(node: EmbeddedCluster, count: int) -> Counter[int]:
    """The numbers in the copy, which has come to its end when nothing follows."""
    found: Counter[int] = Counter()
    async with Cluster(node.bootstrap) as cluster, Consumer(cluster, settings=READING) as consumer:
        consumer.assign([TopicPartition(COPY, number) for number in range(PARTITIONS)])
        while records := await consumer.take(2_000 if found.total() >= count else 30_000):
            found.update(int(record.value or b"") for record in records)
    return found


@pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)
def test_files_and_copy_hold_every_record_once(
    node: EmbeddedCluster, loader: Loader, disturbance: Disturbance, tmp_path: Path
) -> None:
    count = 0
    for round_number in disturbance:
        asyncio.run(write(node, range(count, count + RECORDS_PER_ROUND)))
        count += RECORDS_PER_ROUND
        loader.wait_until_working()
        disturbance.pause(0.0, 3.0)
        match round_number % 4:
            case 1 | 3:
                loader.kill()
            case 2:
                loader.kill_worker()
            case 0:
                disturbance.crash(node)
    loader.wait_until_caught_up()
    everything = Counter(range(count))
    assert Counter(int(value) for _, value in read_files(tmp_path)) == everything
    assert asyncio.run(read_copy(node, count)) == everything
