"""The producer: records gathered into batches per partition, sent several at a time per node, order kept per
partition.

`send` chooses a partition and adds the record to that partition's open batch; it waits only while the buffer
is full or the topic is not known. Batches become due when they are full, have lingered, or somebody flushes
or waits for room; `sender` does the rest. Idempotent by default: what `partition_queue` numbers is written
once and in order however often it has to be sent. Every send ends: in an offset, in an error, or in
RequestTimedOutError after `delivery_timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self

from broker.client.backoff import Backoff, Random
from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.client.partition_queue import PartitionQueue
from broker.client.partitioner import Murmur2Partitioner, Partitioner
from broker.client.producer_batch import Delivery, ProducerBatch, RecordMetadata
from broker.client.producer_settings import ProducerRecord, ProducerSettings
from broker.client.sender import Sender
from broker.clock import Clock, SystemClock
from broker.errors import ErrorCode, ProtocolError, RequestTimedOutError
from broker.records.batch import TRANSACTIONAL_FLAG, read_header, rebase, restamp
from broker.records.builder import BatchBuilder
from broker.records.record import Header
from broker.telemetry import logger
from broker.types import NO_PRODUCER_ID, TopicPartition

__all__ = ["Delivery", "Producer", "ProducerRecord", "ProducerSettings", "RecordMetadata"]

_RECORD_OVERHEAD_BYTES = 70
"""What a record takes beside key, value and headers, at most; also stands for its share of the batch's
header.
"""
_HEADER_OVERHEAD_BYTES = 10
_CHARACTER_BYTES_MAX = 4

_log = logger("producer")


class _Route(NamedTuple):
    """What a partitioner needs to know of a topic, as of some metadata."""

    metadata: ClusterMetadata
    partition_count: int
    available: Sequence[int]


class Producer:
    """Writes records. Started by `async with`, ended by `close`, which sends what is buffered."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: ProducerSettings | None = None,
        partitioner: Partitioner | None = None,
        backoff: Backoff | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self._cluster = cluster
        self._partitioner = partitioner or Murmur2Partitioner(random or cluster.random)
        self._clock = clock or SystemClock()
        self._routes: dict[str, _Route] = {}
        self._sender = Sender(
            cluster,
            self.settings,
            backoff=backoff or cluster.backoff,
            random=random or cluster.random,
            on_enqueued=self._watch,
            on_closed=lambda closed: self._partitioner.batch_closed(*closed),
        )
        self._buffered_bytes = 0
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._closing = False
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the background."""
        self._supervisor = asyncio.create_task(self._sender.run(), name="producer")
        self._supervisor.add_done_callback(self._on_ended)
        await asyncio.sleep(0)  # the sender takes work from now on

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Send what is buffered, for at most `timeout_ms`; what is not written by then is given up."""
        if self._supervisor is None or self._closing:
            return
        self._closing = True
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            _log.warning("producer_closed_unflushed", batches=len(self._sender.unsettled()))
        finally:
            self._sender.give_up_all(RequestTimedOutError("the producer was closed before this was written"))
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            await self._sender.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Buffer a record; returns its Delivery, to be awaited for the offset or the error, or not at all.

        Waits for the topic's metadata and for room in the buffer, for `max_block_ms`. Raises
        RequestTimedOutError after that, ProtocolError for a topic or partition that is not there or a record
        over `max_request_bytes`, TypeError.
        """
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        route = self._routes.get(topic)
        if route is None or route.metadata is not self._cluster.metadata:
            route = await self._find_route(topic)
        if partition is None:
            partition = self._partitioner.partition(topic, key, route.partition_count, route.available)
        elif not 0 <= partition < route.partition_count:
            raise _unknown_partition(topic, partition, route.partition_count)
        size = _size_of(key, value, headers)
        await self._make_room(size)
        queue = self._sender.queue(TopicPartition(topic, partition))
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or not batch.append(timestamp_ms, key, value, headers):
            batch = self._open_batch(queue, timestamp_ms, key, value, headers)
        batch.buffered_bytes += size
        self._buffered_bytes += size
        return Delivery(batch, batch.count - 1, timestamp_ms)

    async def send_all(self, records: Iterable[ProducerRecord]) -> list[Delivery]:
        """Buffer records one after the other.

        Raises as `send` does; records before the failing one stay buffered.
        """
        return [
            await self.send(
                record.topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in records
        ]

    async def send_batch(self, topic_partition: TopicPartition, batch: bytearray | memoryview) -> Delivery:
        """Send one whole magic-2 batch with its records as they are; the Delivery is that of its first
        record.

        Base offset, leader epoch, producer fields and the transactional flag are overwritten in place: the
        buffer is the producer's until the delivery is done. Raises as `send` does, and CorruptRecordsError.
        """
        header = read_header(batch)
        if header.size != len(batch) or header.is_control:
            raise ProtocolError(ErrorCode.INVALID_RECORD, f"{topic_partition}: not one whole batch of data")
        topic, partition = topic_partition
        route = await self._find_route(topic)
        if not 0 <= partition < route.partition_count:
            raise _unknown_partition(topic, partition, route.partition_count)
        await self._make_room(len(batch))
        rebase(batch, 0, 0, -1)
        restamp(
            batch,
            0,
            len(batch),
            attributes=header.attributes & ~TRANSACTIONAL_FLAG,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
        )
        ready = ProducerBatch(topic_partition, created_at=_now(), records=batch, count=header.record_count)
        ready.buffered_bytes = len(batch)
        self._buffered_bytes += len(batch)
        self._enqueue(self._sender.queue(topic_partition), ready)
        return Delivery(ready, 0, header.base_timestamp)

    async def flush(self) -> None:
        """Send what is buffered now without lingering, and wait until all of it is written or given up."""
        unsettled = self._sender.unsettled()
        if not unsettled:
            return
        self._sender.hurries += 1
        try:
            self._sender.enlist_all()
            await asyncio.wait([batch.done for batch in unsettled])
        finally:
            self._sender.hurries -= 1

    @property
    def buffered_bytes(self) -> int:
        """Estimated bytes of records that are neither written nor given up."""
        return self._buffered_bytes

    async def _find_route(self, topic: str) -> _Route:
        self._raise_failure()
        known = self._cluster.topics.get(topic)
        if known is None or not known.partitions:
            await self._cluster.ensure([topic], create=True, timeout_ms=self.settings.max_block_ms)
        metadata = self._cluster.metadata
        partitions = metadata.topics[topic].partitions
        led = [number for number, partition in partitions.items() if partition.leader in metadata.nodes]
        route = self._routes[topic] = _Route(metadata, len(partitions), led or sorted(partitions))
        return route

    # Batches

    def _open_batch(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> ProducerBatch:
        """A batch with its first record, which is sent when it is full or has lingered."""
        settings, loop = self.settings, asyncio.get_running_loop()
        builder = BatchBuilder(
            settings.codec, size_max=settings.batch_bytes, level=settings.compression_level
        )
        batch = ProducerBatch(queue.topic_partition, created_at=loop.time(), builder=builder)
        batch.append(timestamp_ms, key, value, headers)
        self._enqueue(queue, batch)
        if settings.linger_ms > 0:
            loop.call_later(settings.linger_ms / 1000, self._end_linger, queue, batch)
        else:
            loop.call_soon(self._end_linger, queue, batch)
        return batch

    def _end_linger(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.due = True
        self._sender.enlist(queue)

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a batch behind the open one, which takes no more records then."""
        if queue.waiting and queue.waiting[-1].is_open:
            queue.waiting[-1].close()
            self._partitioner.batch_closed(*queue.topic_partition)
        queue.waiting.append(batch)
        self._watch(batch)
        self._sender.enlist(queue)

    def _watch(self, batch: ProducerBatch) -> None:
        batch.done.add_done_callback(partial(self._on_settled, batch))

    def _on_settled(self, batch: ProducerBatch, _done: asyncio.Future[int]) -> None:
        """A batch is written or given up: its room is free."""
        self._buffered_bytes -= batch.buffered_bytes
        if (error := batch.done.exception()) is not None:
            _log.warning(
                "batch_given_up",
                topic=batch.topic_partition.topic,
                partition=batch.topic_partition.partition,
                records=batch.count,
                attempts=batch.attempts,
                error=str(error),
            )
        self._wake_waiting()

    # Room in the buffer

    async def _make_room(self, size: int) -> None:
        """Wait until `size` bytes more fit into the buffer; those who wait are served in order."""
        if size > self.settings.max_request_bytes:
            message = f"a record of {size} bytes, over the limit of {self.settings.max_request_bytes}"
            raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, message)
        self._raise_failure()
        if self._has_room(size) and not self._waiting_for_room:
            return
        self._sender.hurries += 1
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                await self._wait_for_room(size)
        except TimeoutError as error:
            message = (
                f"no room for {size} bytes in the producer's buffer within {self.settings.max_block_ms} ms"
            )
            raise RequestTimedOutError(message) from error
        finally:
            self._sender.hurries -= 1
        self._raise_failure()

    async def _wait_for_room(self, size: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting_for_room.append(turn)
        self._sender.enlist_all()
        try:
            await turn
            while not self._has_room(size):
                turn = asyncio.get_running_loop().create_future()
                self._waiting_for_room.appendleft(turn)
                await turn
        finally:
            if turn in self._waiting_for_room:
                self._waiting_for_room.remove(turn)
            self._wake_waiting()

    def _has_room(self, size: int) -> bool:
        return not self._buffered_bytes or self._buffered_bytes + size <= self.settings.buffer_bytes

    def _wake_waiting(self) -> None:
        """Let the first of those who wait look again."""
        if self._waiting_for_room and self._buffered_bytes < self.settings.buffer_bytes:
            turn = self._waiting_for_room.popleft()
            if not turn.done():
                turn.set_result(None)

    def _on_ended(self, supervisor: asyncio.Task[None]) -> None:
        """Without its sender nothing is written any more: let nobody wait."""
        if not supervisor.cancelled() and (failure := supervisor.exception()) is not None:
            error = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer crashed: {failure!r}")
            self._sender.give_up_all(error)

    def _raise_failure(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failure
        if self._supervisor is None or self._closing:
            raise RuntimeError("the producer is not running")
        if self._supervisor.done():
            self._supervisor.result()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unknown_partition(topic: str, partition: int, count: int) -> ProtocolError:
    message = f"{topic} has {count} partitions and no partition {partition}"
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _size_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Bytes a record takes at most in a batch."""
    size = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += _CHARACTER_BYTES_MAX * len(name) + len(content or b"") + _HEADER_OVERHEAD_BYTES
    return size
