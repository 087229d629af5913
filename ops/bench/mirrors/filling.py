"""A topic full of batches that were built before, as producers with Kafka's `batch.size` leave them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.topic_admin import NewTopic
from broker.errors import ErrorCode
from broker.records.builder import BatchBuilder
from broker.types import HostPort, TopicPartition
from broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ops.bench.comparison.payload import record_values
from ops.bench.mirrors.cases import MirrorCase

BATCH_KINDS = 16
"""Different batches, sent by turns."""
REQUEST_BYTES = 1 << 20
REQUESTS_IN_FLIGHT = 8
_SAMPLE_BYTES = 64 << 10
_LEADERS_SPACING_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One that was built before, without a producer id."""

    records: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a topic holds."""

    bytes: int
    records: int


def build_batches(case: MirrorCase, batch_bytes: int) -> list[Batch]:
    """Batches of the case's records, of about `batch_bytes` each once they are compressed."""
    values = record_values(case.record_size)
    sample = _build(case, values, 0, max(_SAMPLE_BYTES // case.record_size, 1))
    per_record = len(sample.records) / sample.count
    count = max(round(batch_bytes / per_record), 1)
    return [_build(case, values, kind * count, count) for kind in range(BATCH_KINDS)]


def _build(case: MirrorCase, values: Sequence[bytes], first: int, count: int) -> Batch:
    builder = BatchBuilder(case.codec, size_max=1 << 30)
    now_ms = int(time.time() * 1000)
    for number in range(first, first + count):
        builder.append(now_ms, None, values[number % len(values)])
    return Batch(records=bytes(builder.build()), count=count)


async def create_topic(bootstrap: HostPort, topic: str, partitions: int) -> None:
    """Make a topic, and return once all its partitions have leaders."""
    async with Cluster([bootstrap]) as cluster:
        await Admin(cluster).create_topic(NewTopic(name=topic, partitions=partitions, replication_factor=1))
        await until_led(cluster, [TopicPartition(topic, number) for number in range(partitions)])


async def until_led(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Return once all of them have leaders that are known."""
    while any(cluster.leader(partition) is None for partition in partitions):
        await cluster.refresh({partition.topic for partition in partitions})
        await asyncio.sleep(_LEADERS_SPACING_SECONDS)


async def delete_topics(bootstrap: HostPort, topics: Sequence[str]) -> None:
    """Let them go; the rest of the run does not wait for it."""
    async with Cluster([bootstrap]) as cluster:
        known = await Admin(cluster).list_topics()
        await Admin(cluster).delete_topics([topic for topic in topics if topic in known])


async def fill(
    bootstrap: HostPort, topic: str, partitions: int, batches: Sequence[Batch], size: int
) -> Filled:
    """Produce about `size` bytes, the same number of batches to every partition."""
    async with Cluster([bootstrap]) as cluster:
        await until_led(cluster, [TopicPartition(topic, number) for number in range(partitions)])
        node = cluster.leader(TopicPartition(topic, 0))
        assert node is not None
        writer = BatchWriter(await cluster.connection(node, "fill"), topic)
        rounds = max(size // (len(batches[0].records) * partitions), 1)
        sent = records = 0
        for turn in range(rounds):
            batch = batches[turn % len(batches)]
            await writer.write([(number, batch) for number in range(partitions)])
            sent += len(batch.records) * partitions
            records += batch.count * partitions
        await writer.finish()
        return Filled(bytes=sent, records=records)


class BatchWriter:
    """Sends batches over one connection, one of a partition in each request, as stock brokers take them."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._unanswered: deque[asyncio.Future[ProduceResponse]] = deque()

    async def write(self, entries: Sequence[tuple[int, Batch]]) -> None:
        """Send a batch to each of these partitions; returns when not too much waits for answers."""
        part: list[tuple[int, Batch]] = []
        for entry in entries:
            part.append(entry)
            if sum(len(batch.records) for _, batch in part) >= REQUEST_BYTES:
                await self._send(part)
                part = []
        if part:
            await self._send(part)

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._unanswered:
            await self._take_answer()

    async def _send(self, entries: Sequence[tuple[int, Batch]]) -> None:
        while self._unanswered and (
            len(self._unanswered) >= REQUESTS_IN_FLIGHT or self._unanswered[0].done()
        ):
            await self._take_answer()
        data = [PartitionProduceData(index=number, records=batch.records) for number, batch in entries]
        topics = [TopicProduceData(name=self._topic, partition_data=data)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        self._unanswered.append(self._connection.send(request))

    async def _take_answer(self) -> None:
        response = await self._unanswered.popleft()
        for answer in response.responses[0].partition_responses:
            assert not answer.error_code, ErrorCode.of(answer.error_code).name
