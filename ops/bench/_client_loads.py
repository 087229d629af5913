"""One client at one task, in a process of its own: `python -m ops.bench._client_loads TASK CLIENT ...`.

Prints wall and processor time of the task alone, as JSON. All producers write with acks=all and idempotence,
batches of at most 64 KiB that linger for 5 ms; all consumers read every partition from its beginning,
`consume` as many records at once as the client gives, `iterate` one by one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter, process_time
from typing import Any, NamedTuple

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.producer import Producer, ProducerSettings
from broker.records.batch import Codec
from broker.telemetry import configure_logging
from broker.types import HostPort, TopicPartition

BATCH_BYTES = 64 * 1024
LINGER_MS = 5
PARTITIONS = 4
POLL_MS = 1_000
POLL_RECORDS = 5_000


class Task(NamedTuple):
    """What a client is to do: `count` records with values of `size` bytes."""

    bootstrap: str
    topic: str
    count: int
    size: int

    @property
    def values(self) -> list[bytes]:
        """Different values, to be sent in turn."""
        return [b"%0*d" % (self.size, number) for number in range(64)]


Figures = dict[str, float]


class Watch:
    """Wall and processor time, from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = perf_counter(), process_time()

    def figures(self) -> Figures:
        """What went by until now."""
        return {"seconds": perf_counter() - self._wall, "cpu_seconds": process_time() - self._cpu}


# Ours


async def produce_ours(task: Task) -> Figures:
    settings = ProducerSettings(batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS, codec=Codec.NONE)
    async with (
        Cluster([HostPort.parse(task.bootstrap)]) as cluster,
        Producer(cluster, settings=settings) as producer,
    ):
        await (await producer.send(task.topic, b"first"))
        watch, values = Watch(), task.values
        for number in range(task.count):
            await producer.send(task.topic, values[number % 64])
        await producer.flush()
        return watch.figures()


@asynccontextmanager
async def _our_consumer(task: Task) -> AsyncIterator[tuple[Consumer, Watch]]:
    settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
    async with (
        Cluster([HostPort.parse(task.bootstrap)]) as cluster,
        Consumer(cluster, settings=settings) as consumer,
    ):
        await cluster.ensure([task.topic])
        watch = Watch()
        consumer.assign([TopicPartition(task.topic, number) for number in range(PARTITIONS)])
        yield consumer, watch


async def consume_ours(task: Task) -> Figures:
    async with _our_consumer(task) as (consumer, watch):
        count = 0
        while count < task.count:
            for record in await consumer.take(POLL_MS, POLL_RECORDS):
                count += record.value is not None
        return watch.figures()


async def iterate_ours(task: Task) -> Figures:
    async with _our_consumer(task) as (consumer, watch):
        count = 0
        async for record in consumer:
            count += record.value is not None
            if count == task.count:
                break
        return watch.figures()


# aiokafka


async def produce_aiokafka(task: Task) -> Figures:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    ) as producer:
        await producer.send_and_wait(task.topic, b"first")
        watch, values = Watch(), task.values
        for number in range(task.count):
            await producer.send(task.topic, values[number % 64])
        await producer.flush()
        return watch.figures()


@asynccontextmanager
async def _aiokafka_consumer(task: Task) -> AsyncIterator[tuple[Any, Watch]]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        watch = Watch()
        consumer.assign([Partition(task.topic, number) for number in range(PARTITIONS)])
        yield consumer, watch


async def iterate_aiokafka(task: Task) -> Figures:
    async with _aiokafka_consumer(task) as (consumer, watch):
        count = 0
        async for record in consumer:
            count += record.value is not None
            if count == task.count:
                break
        return watch.figures()


async def consume_aiokafka(task: Task) -> Figures:
    async with _aiokafka_consumer(task) as (consumer, watch):
        count = 0
        while count < task.count:
            taken = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
            for records in taken.values():
                for record in records:
                    count += record.value is not None
        return watch.figures()


# kafka-python


async def produce_kafka_python(task: Task) -> Figures:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    producer.send(task.topic, b"first").get(30)
    watch, values = Watch(), task.values
    for number in range(task.count):
        producer.send(task.topic, values[number % 64])
    producer.flush()
    figures = watch.figures()
    producer.close()
    return figures


@contextmanager
def _kafka_python_consumer(task: Task) -> Iterator[tuple[Any, Watch]]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    watch = Watch()
    consumer.assign([Partition(task.topic, number) for number in range(PARTITIONS)])
    yield consumer, watch
    consumer.close()


async def consume_kafka_python(task: Task) -> Figures:
    with _kafka_python_consumer(task) as (consumer, watch):
        count = 0
        while count < task.count:
            for records in consumer.poll(timeout_ms=POLL_MS, max_records=POLL_RECORDS).values():
                for record in records:
                    count += record.value is not None
        return watch.figures()


async def iterate_kafka_python(task: Task) -> Figures:
    with _kafka_python_consumer(task) as (consumer, watch):
        count = 0
        for record in consumer:
            count += record.value is not None
            if count == task.count:
                break
        return watch.figures()


# confluent-kafka, which is librdkafka


async def produce_confluent(task: Task) -> Figures:
    from confluent_kafka import Producer as ConfluentProducer

    producer = ConfluentProducer(
        {
            "bootstrap.servers": task.bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": task.count + 1,
        }
    )
    producer.produce(task.topic, b"first")
    producer.flush(30)
    watch, values = Watch(), task.values
    for number in range(task.count):
        producer.produce(task.topic, values[number % 64])
    producer.flush(600)
    return watch.figures()


@contextmanager
def _confluent_consumer(task: Task) -> Iterator[tuple[Any, Watch]]:
    from confluent_kafka import Consumer as ConfluentConsumer
    from confluent_kafka import TopicPartition as Partition

    consumer = ConfluentConsumer(
        {"bootstrap.servers": task.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    watch = Watch()
    consumer.assign([Partition(task.topic, number, 0) for number in range(PARTITIONS)])
    yield consumer, watch
    consumer.close()


async def consume_confluent(task: Task) -> Figures:
    with _confluent_consumer(task) as (consumer, watch):
        count = 0
        while count < task.count:
            for message in consumer.consume(POLL_RECORDS, POLL_MS / 1000):
                count += message.value() is not None
        return watch.figures()


async def iterate_confluent(task: Task) -> Figures:
    with _confluent_consumer(task) as (consumer, watch):
        count = 0
        while count < task.count:
            message = consumer.poll(POLL_MS / 1000)
            count += message is not None and message.value() is not None
        return watch.figures()


TASKS: Mapping[str, Mapping[str, Callable[[Task], Awaitable[Figures]]]] = {
    "produce": {
        "ours": produce_ours,
        "aiokafka": produce_aiokafka,
        "kafka-python": produce_kafka_python,
        "confluent": produce_confluent,
    },
    "consume": {
        "ours": consume_ours,
        "aiokafka": consume_aiokafka,
        "kafka-python": consume_kafka_python,
        "confluent": consume_confluent,
    },
    "iterate": {
        "ours": iterate_ours,
        "aiokafka": iterate_aiokafka,
        "kafka-python": iterate_kafka_python,
        "confluent": iterate_confluent,
    },
}


async def _perform(arguments: list[str]) -> Figures:
    task, client, bootstrap, topic, count, size = arguments
    return await TASKS[task][client](Task(bootstrap, topic, int(count), int(size)))


def main() -> None:
    configure_logging("error")
    print(json.dumps(asyncio.run(_perform(sys.argv[1:]))))


if __name__ == "__main__":
    sys.exit(main())
