"""aiokafka against a node."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

DEADLINE_SECONDS = 30


async def take(consumer: AIOKafkaConsumer, count: int) -> list[object]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_keeps_keys_headers_and_timestamps(bootstrap: str, topic: str, codec: str | None) -> None:
    async def scenario() -> None:
        now_ms = time.time_ns() // 1_000_000
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20
        ) as producer:
            for index in range(100):
                await producer.send(
                    topic,
                    key=b"k%d" % index,
                    value=b"v" * index,
                    headers=[("n", b"%d" % index)],
                    timestamp_ms=now_ms + index,
                    partition=0,
                )
            await producer.flush()
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            records = await take(consumer, 100)
        assert [(record.key, record.value, record.offset) for record in records] == [
            (b"k%d" % index, b"v" * index, index) for index in range(100)
        ]
        assert [record.timestamp - now_ms for record in records] == list(range(100))
        assert records[5].headers == (("n", b"5"),)

    asyncio.run(scenario())


def test_topics_are_created_listed_and_deleted(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
        await admin.close()

    asyncio.run(scenario())


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        now_ms = time.time_ns() // 1_000_000
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for index in range(10):
                await producer.send_and_wait(topic, b"x", timestamp_ms=now_ms + index * 1000, partition=0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            partition = TopicPartition(topic, 0)
            found = await consumer.offsets_for_times({partition: now_ms + 3500})
            assert found[partition].offset == 4
            assert await consumer.end_offsets([partition]) == {partition: 10}

    asyncio.run(scenario())


def test_a_group_rebalances_when_a_member_comes_and_goes(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])
        await admin.close()
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": f"group-{topic}",
            "heartbeat_interval_ms": 200,
        }
        async with asyncio.timeout(DEADLINE_SECONDS), AIOKafkaConsumer(topic, **settings) as first:
            await assigned(first, 4)
            async with AIOKafkaConsumer(topic, **settings) as second:
                await assigned(first, 2)
                await assigned(second, 2)
            await assigned(first, 4)

    asyncio.run(scenario())


async def assigned(consumer: AIOKafkaConsumer, count: int) -> None:
    """Drive the consumer until it holds `count` partitions; the caller bounds the time."""
    while len(consumer.assignment()) != count:
        await consumer.getmany(timeout_ms=100)


def test_a_group_resumes_where_it_committed(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for index in range(10):
                await producer.send_and_wait(topic, b"%d" % index, partition=0)
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": f"group-{topic}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            await take(consumer, 4)
            await consumer.commit()
        async with AIOKafkaConsumer(topic, **settings) as successor:
            values = [record.value for record in await take(successor, 6)]
        assert values == [b"4", b"5", b"6", b"7", b"8", b"9"]

    asyncio.run(scenario())
