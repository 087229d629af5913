"""The producer: records gathered into batches per partition, sent several at a time per node, order kept per
partition.

`send` chooses a partition and adds the record to that partition's open batch (`batch_intake`); it waits only
while the buffer is full or the topic is not known. Batches become due when they are full, have lingered, or
somebody flushes or waits for room; `sender` does the rest, and `batch_outcomes` what there is to do then.
Idempotent by default: what `partition_queue` numbers is written once and in order however often it has to be
sent. Every send ends: in an offset, in an error, or in RequestTimedOutError after `delivery_timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self

from broker.client.backoff import Backoff, Random
from broker.client.batch_intake import BatchIntake
from broker.client.batch_outcomes import BatchOutcomes
from broker.client.buffer_room import BufferRoom
from broker.client.cluster import Cluster
from broker.client.event_handler import tell, tell_partitioner
from broker.client.partitioner import Murmur2Partitioner, Partitioner
from broker.client.producer_batch import Delivery, RecordMetadata, settled_delivery
from broker.client.producer_metrics import ProducerCounters, ProducerMetrics
from broker.client.producer_parts import ProducerParts
from broker.client.producer_settings import ProducerRecord, ProducerSettings, WhenFull
from broker.client.record_size import record_size_max
from broker.client.sender import Sender, SenderHooks
from broker.client.topic_routes import TopicRoute, TopicRoutes
from broker.client.transactions import TransactionManager
from broker.clock import Clock, SystemClock
from broker.errors import (
    BrokerError,
    BufferFullError,
    ConfigurationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.records.batch import read_header
from broker.records.record import NO_TIMESTAMP, Header
from broker.telemetry import logger
from broker.types import TopicPartition

__all__ = [
    "Delivery",
    "Producer",
    "ProducerParts",
    "ProducerRecord",
    "ProducerSettings",
    "RecordMetadata",
    "WhenFull",
]

_log = logger("producer")


class Producer:
    """Writes records. Started by `async with`, ended by `close`, which sends what is buffered."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: ProducerSettings | None = None,
        parts: ProducerParts | None = None,
        partitioner: Partitioner | None = None,
        backoff: Backoff | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`partitioner` stands for one in `parts`."""
        self.settings = settings or ProducerSettings()
        parts = parts or ProducerParts()
        self._cluster = cluster
        self._partitioner = partitioner or parts.partitioner or Murmur2Partitioner(random or cluster.random)
        self._parts = parts
        self._handlers = tuple(parts.handlers)
        self._is_plain = not self._handlers and parts.key_encoder is None and parts.value_encoder is None
        self._clock = clock or SystemClock()
        self._routes = TopicRoutes(cluster, timeout_ms=self.settings.max_block_ms)
        self._counters = ProducerCounters()
        self._room = BufferRoom(self.settings.buffer_bytes, self.settings.buffer_records)
        outcomes = BatchOutcomes(self._room, self._counters, self._handlers, self._batch_given_up)
        self._sender = Sender(
            cluster,
            self.settings,
            backoff=backoff or cluster.backoff,
            random=random or cluster.random,
            counters=self._counters,
            hooks=SenderHooks(
                enqueued=outcomes.watch,
                closed=partial(tell_partitioner, self._partitioner),
                sending=outcomes.tell_sending if self._handlers else None,
                failed=self._close_intake,
            ),
        )
        self._transactions: TransactionManager | None = None
        """Set by producers that write transactions."""
        self._intake = BatchIntake(self.settings, self._partitioner, self._sender, outcomes.watch)
        self._is_sync = self.settings.sync
        self._size_max = self.settings.max_request_bytes
        self._batch_records = self.settings.batch_records
        self._is_closing = False
        self._is_open = False
        """Whether records are taken: started, not closed, and nothing failed for good."""
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the background.

        Raises ConfigurationError when the settings name transactions: those are a TransactionalProducer's.
        """
        if self._is_transactional and self._transactions is None:
            raise ConfigurationError(["transactional_id is set: a TransactionalProducer is needed"])
        if self._supervisor is not None:
            raise RuntimeError("the producer was started already")
        self._supervisor = asyncio.create_task(self._sender.run(), name="producer")
        self._supervisor.add_done_callback(self._on_ended)
        await asyncio.sleep(0)  # the sender takes work from now on
        self._is_open = True

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Send what is buffered, for at most `timeout_ms`; what is not written by then is given up."""
        if self._supervisor is None or self._is_closing:
            return
        self._is_closing, self._is_open = True, False
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._finish()
        except TimeoutError:
            _log.warning("producer_closed_unflushed", batches=len(self._sender.unsettled()))
        finally:
            self._sender.give_up_all(RequestTimedOutError("the producer was closed before this was written"))
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            await self._sender.close()
            tell(self._handlers, lambda handler: handler.close())

    async def _finish(self) -> None:
        """What is done before the background ends."""
        await self.flush()

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Buffer a record; returns its Delivery, to be awaited for the offset or the error, or not at all.

        Keys and values are bytes or None, or what the producer's encoders make bytes of. Waits for the
        topic's metadata and for room in the buffer, for `max_block_ms`, unless records are dropped then; a
        synchronous producer waits until the record is written. Raises RequestTimedOutError when that takes
        too long, ProtocolError for a topic or partition that is not there, also one that the partitioner
        chose, or a record over `max_request_bytes`, TypeError; a synchronous producer also what the delivery
        would.
        """
        if self._is_plain:
            delivery = self._buffer_now(topic, value, key, partition, timestamp_ms, headers)
            if delivery is None:
                delivery = await self._buffer(topic, value, key, partition, timestamp_ms, headers)
        else:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            delivery = await self._buffer_handled(record)
        if self._is_sync:
            await self._write_through([delivery])
        return delivery

    async def _buffer(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[Header],
    ) -> Delivery:
        """As `_buffer_now`, after waiting for what that lacks."""
        self._raise_failure()
        route, size = await self._routes.find(topic), record_size_max(key, value, headers)
        try:
            await self._make_room(size)
        except BufferFullError as error:
            self._counters.records_dropped += 1
            return settled_delivery(topic, partition, timestamp_ms or NO_TIMESTAMP, error)
        return self._append(route, size, topic, value, key, partition, timestamp_ms, headers)

    def _buffer_now(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[Header],
    ) -> Delivery | None:
        """Buffer a record at once; None where something has to be waited for, or stands against it."""
        route, size, room = self._routes.known(topic), record_size_max(key, value, headers), self._room
        if route is None or not self._is_open or size > self._size_max or not room.fits(size):
            return None
        return self._append(route, size, topic, value, key, partition, timestamp_ms, headers)

    def _append(
        self,
        route: TopicRoute,
        size: int,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[Header],
    ) -> Delivery:
        """Add a record, for which there is room, to the open batch of its partition."""
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        if partition is None:
            partition = self._partitioner.partition(topic, key, route.partition_count, route.available)
        route.require(partition)
        queue = self._sender.queues.get((topic, partition)) or self._sender.queue(
            TopicPartition(topic, partition)
        )
        if self._transactions is not None:
            self._transactions.require_open()
        batch = queue.waiting[-1] if queue.waiting else None
        if (
            batch is None
            or batch.count >= self._batch_records
            or not batch.append(timestamp_ms, key, value, headers)
        ):
            batch = self._intake.open(queue, timestamp_ms, key, value, headers)
        if self._transactions is not None:
            self._transactions.include(queue)  # only now, as what is no record is refused by then
        batch.buffered_bytes += size
        self._room.used += size
        self._room.records += 1
        return Delivery(batch, batch.count - 1, timestamp_ms)

    async def _buffer_handled(self, record: ProducerRecord) -> Delivery:
        """As `_buffer`, by way of event handlers and encoders."""
        given = record
        for handler in self._handlers:
            changed = handler.before_enqueue(record)
            if changed is None:
                self._counters.records_filtered += 1
                timestamp_ms = NO_TIMESTAMP if given.timestamp_ms is None else given.timestamp_ms
                return settled_delivery(given.topic, given.partition, timestamp_ms)
            record = changed
        key, value = record.key, record.value
        if self._parts.key_encoder is not None:
            key = self._parts.key_encoder.encode(record.topic, key)
        if self._parts.value_encoder is not None:
            value = self._parts.value_encoder.encode(record.topic, value)
        delivery = await self._buffer(
            record.topic, value, key, record.partition, record.timestamp_ms, record.headers
        )
        tell(self._handlers, lambda handler: handler.after_enqueue(record, delivery))
        return delivery

    async def send_all(self, records: Iterable[ProducerRecord]) -> list[Delivery]:
        """Buffer records one after the other; a synchronous producer writes them all before it returns.

        Raises as `send` does; records before the failing one stay buffered.
        """
        deliveries = []
        for record in records:
            if self._is_plain:
                delivery = self._buffer_now(*record) or await self._buffer(*record)
            else:
                delivery = await self._buffer_handled(record)
            deliveries.append(delivery)
        if self._is_sync:
            await self._write_through(deliveries)
        return deliveries

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
        self._raise_failure()
        (await self._routes.find(topic)).require(partition)
        try:
            await self._make_room(len(batch))
        except BufferFullError as error:
            self._counters.records_dropped += 1
            return settled_delivery(topic, partition, header.base_timestamp, error)
        queue = self._sender.queue(topic_partition)
        if self._transactions is not None:
            self._transactions.include(queue)
        self._room.used += len(batch)
        self._room.records += header.record_count
        ready = self._intake.take_whole(queue, batch, header)
        delivery = Delivery(ready, 0, header.base_timestamp)
        if self._is_sync:
            await self._write_through([delivery])
        return delivery

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
        return self._room.used

    @property
    def metrics(self) -> ProducerMetrics:
        """Figures of what was done so far, and of this moment."""
        return self._counters.snapshot(
            buffered_bytes=self._room.used,
            buffered_batches=len(self._sender.unsettled()),
            requests_in_flight=self._sender.requests_in_flight,
            senders_waiting=self._room.waiting,
        )

    async def _write_through(self, deliveries: Sequence[Delivery]) -> None:
        """Wait until records are written, without lingering. Raises the first error."""
        self._sender.hurries += 1
        try:
            self._sender.enlist_all()
            for delivery in deliveries:
                await delivery
        finally:
            self._sender.hurries -= 1

    # Room in the buffer

    async def _make_room(self, size: int) -> None:
        """Wait until `size` bytes more fit into the buffer; those who wait are served in order.

        Raises RequestTimedOutError after `max_block_ms`, or BufferFullError after `drop_after_ms` where
        records are dropped that do not fit.
        """
        if size > self.settings.max_request_bytes:
            message = f"a record of {size} bytes, over the limit of {self.settings.max_request_bytes}"
            raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, message)
        self._raise_failure()
        if self._room.fits(size):
            return
        drops = self.settings.when_full is WhenFull.DROP
        wait_ms = self.settings.drop_after_ms if drops else self.settings.max_block_ms
        self._sender.hurries += 1
        try:
            self._sender.hasten()
            async with asyncio.timeout(wait_ms / 1000):
                await self._room.wait_for(size)
        except TimeoutError as error:
            message = (
                f"no room for {size} bytes in the producer's buffer within {wait_ms} ms: "
                f"{self._room.records} records of {self._room.used} bytes are not written yet"
            )
            raise (BufferFullError if drops else RequestTimedOutError)(message) from error
        finally:
            self._sender.hurries -= 1
        self._raise_failure()

    def _batch_given_up(self, error: BrokerError) -> None:
        if self._transactions is not None:
            self._transactions.batch_given_up(error)

    def _close_intake(self) -> None:
        self._is_open = False

    def _on_ended(self, supervisor: asyncio.Task[None]) -> None:
        """Without its sender nothing is written any more: let nobody wait."""
        self._is_open = False
        if not supervisor.cancelled() and (failure := supervisor.exception()) is not None:
            error = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer crashed: {failure!r}")
            self._sender.give_up_all(error)

    def _raise_failure(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failure
        if self._supervisor is None or self._is_closing:
            raise RuntimeError("the producer is not running")
        if self._supervisor.done():
            self._supervisor.result()

    @property
    def _is_transactional(self) -> bool:
        return self.settings.transactional_id is not None
