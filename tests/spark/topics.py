"""Topics for Spark to read."""

from __future__ import annotations

import asyncio
import uuid

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import Codec
from broker.types import HostPort

NOW_MS = 1_760_000_000_123


def new_topic(bootstrap: str, *, partitions: int) -> str:
    """Make an empty topic; returns its name."""
    topic = f"topic-{uuid.uuid4().hex[:12]}"

    async def create() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            kept = {"retention.ms": "-1"}  # records are of NOW_MS, which is long ago
            await Admin(cluster).create_topic(
                NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=kept)
            )

    asyncio.run(create())
    return topic


def make_anew(bootstrap: str, topic: str, *, partitions: int, count: int) -> None:
    """Delete the topic, and make one of that name with other records."""

    async def replace_it() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            admin = Admin(cluster)
            await admin.delete_topics([topic])
            kept = {"retention.ms": "-1"}
            new = NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=kept)
            retries = cluster.retries(30_000)
            while True:
                try:
                    return await admin.create_topic(new)
                except ProtocolError as error:
                    await retries.pause(error, also=[ErrorCode.TOPIC_ALREADY_EXISTS])  # not gone yet

    asyncio.run(replace_it())
    append(bootstrap, topic, range(count), partitions=partitions)


def append(
    bootstrap: str,
    topic: str,
    indexes: range,
    *,
    partitions: int,
    codec: Codec = Codec.SNAPPY,
) -> None:
    """Write record `index` to partition `index % partitions`."""

    async def produce() -> None:
        settings = ProducerSettings(codec=codec, batch_bytes=2000)
        async with (
            Cluster([HostPort.parse(bootstrap)]) as cluster,
            Producer(cluster, settings=settings) as producer,
        ):
            for index in indexes:
                await producer.send(
                    topic,
                    b"value %d" % index,
                    b"key %d" % index if index % 3 else None,
                    partition=index % partitions,
                    timestamp_ms=NOW_MS + index,
                    headers=(("n", b"%d" % index), ("none", None)),
                )
            await producer.flush()

    asyncio.run(produce())


def fill(bootstrap: str, *, partitions: int, count: int, codec: Codec = Codec.SNAPPY) -> str:
    """Make a topic of `count` records spread over its partitions; returns its name."""
    topic = new_topic(bootstrap, partitions=partitions)
    append(bootstrap, topic, range(count), partitions=partitions, codec=codec)
    return topic
