"""How long records take through a mirror at a steady rate.

Batches that were built before are sent to the source, every few milliseconds as many as the rate asks for; a
reader at the destination fetches and notes when it has each. The time of a batch runs from the moment at
which it is sent to the source: the source's own work counts, and so does the reader's fetch.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, cut_batches, read_fetch
from broker.client.metadata import ClusterMetadata
from broker.errors import ErrorCode
from broker.types import HostPort, TopicPartition
from broker.wire.messages.fetch import FetchRequest
from ops.bench.mirrors.cases import Delay
from ops.bench.mirrors.filling import Batch, BatchWriter, until_led

TICK_SECONDS = 0.002
LAST_BATCHES_SECONDS = 2.0
"""How long the reader waits for what was sent last."""
START_TIMEOUT_SECONDS = 60.0
TERMS = FetchTerms(max_wait_ms=100, min_bytes=1, max_bytes=8 << 20, read_committed=False)
PARTITION_BYTES = 1 << 20
FETCH_VERSION = 11


@dataclass(slots=True)
class _Sent:
    """Batches on their way, by partition: where each ends, and when it was sent."""

    ends: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)
    all_came: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, partition: int, records: int, now: float) -> None:
        self.all_came.clear()
        end = self.ends[partition] = self.ends.get(partition, 0) + records
        self.waiting.setdefault(partition, deque()).append((end, now))

    def took(self, partition: int, reached: int) -> list[float]:
        """When those were sent that have come."""
        waiting = self.waiting.get(partition, deque())
        times = []
        while waiting and waiting[0][0] <= reached:
            times.append(waiting.popleft()[1])
        if not any(self.waiting.values()):
            self.all_came.set()
        return times


async def measure_delay(
    source: HostPort,
    topic: str,
    destination: HostPort,
    copy: str,
    partitions: int,
    batches: Sequence[Batch],
    bytes_per_second: float,
    *,
    warm_up_seconds: float,
    seconds: float,
) -> Delay:
    """Send at this rate for a while that does not count and for `seconds` that do."""
    sent, delays = _Sent(), list[tuple[float, float]]()
    loop = asyncio.get_running_loop()
    async with Cluster([source]) as near, Cluster([destination]) as far:
        writer = BatchWriter(await _connection(near, topic, partitions), topic)
        reader = await _connection(far, copy, partitions)
        begun = loop.time()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_read(reader, far.metadata, copy, partitions, sent, delays))
            end = begun + warm_up_seconds + seconds
            await _write(writer, partitions, batches, bytes_per_second, end, sent)
            await writer.finish()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sent.all_came.wait(), LAST_BATCHES_SECONDS)
            reading.cancel()
    counted = [took for sent_at, took in delays if begun + warm_up_seconds <= sent_at]
    return Delay(
        megabytes_per_second=bytes_per_second / 1e6,
        median_ms=statistics.median(counted) * 1000 if counted else float("inf"),
        p99_ms=statistics.quantiles(counted, n=100)[-1] * 1000 if len(counted) > 1 else float("inf"),
        missing=sum(map(len, sent.waiting.values())),
    )


async def _connection(cluster: Cluster, topic: str, partitions: int) -> Connection:
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        await until_led(cluster, [TopicPartition(topic, number) for number in range(partitions)])
    leader = cluster.leader(TopicPartition(topic, 0))
    assert leader is not None
    return await cluster.connection(leader, "bench")


async def _write(
    writer: BatchWriter,
    partitions: int,
    batches: Sequence[Batch],
    bytes_per_second: float,
    end: float,
    sent: _Sent,
) -> None:
    loop = asyncio.get_running_loop()
    begun, sent_bytes, numbers = loop.time(), 0, count()
    while (now := loop.time()) < end:
        due = (now - begun) * bytes_per_second
        entries: dict[int, Batch] = {}
        while sent_bytes < due:
            number = next(numbers)
            partition, batch = number % partitions, batches[number % len(batches)]
            if partition in entries:
                await _send(writer, entries, sent)
                entries = {}
            entries[partition] = batch
            sent_bytes += len(batch.records)
        if entries:
            await _send(writer, entries, sent)
        await asyncio.sleep(TICK_SECONDS)


async def _send(writer: BatchWriter, entries: Mapping[int, Batch], sent: _Sent) -> None:
    now = asyncio.get_running_loop().time()
    for partition, batch in entries.items():
        sent.note(partition, batch.count, now)
    await writer.write(list(entries.items()))


async def _read(
    connection: Connection,
    metadata: ClusterMetadata,
    copy: str,
    partitions: int,
    sent: _Sent,
    delays: list[tuple[float, float]],
) -> None:
    positions = dict.fromkeys(range(partitions), 0)
    loop = asyncio.get_running_loop()
    while True:
        request = build_fetch(
            [_position(copy, number, offset) for number, offset in positions.items()], TERMS, metadata
        )
        response = await connection.request(request, _version(connection))
        now = loop.time()
        for at, answer in read_fetch(response, request):
            assert not answer.error_code, ErrorCode.of(answer.error_code).name
            came = cut_batches(_position(copy, at.partition, positions[at.partition]), answer)
            if came is not None:
                positions[at.partition] = came.next_offset
                times = sent.took(at.partition, came.next_offset)
                delays.extend((time, now - time) for time in times)


def _position(topic: str, number: int, offset: int) -> PartitionPosition:
    return PartitionPosition(
        topic_partition=TopicPartition(topic, number), offset=offset, max_bytes=PARTITION_BYTES
    )


def _version(connection: Connection) -> int:
    return connection.version_of(FetchRequest, at_most=FETCH_VERSION)
