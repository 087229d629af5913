"""Batches of a producer before they are sent: opened for a first record, closed for the next batch, or taken
whole as somebody else built them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.client.event_handler import tell_partitioner
from broker.client.partition_queue import PartitionQueue
from broker.client.partitioner import Partitioner
from broker.client.producer_batch import ProducerBatch
from broker.client.producer_settings import ProducerSettings
from broker.client.sender import Sender
from broker.records.batch import TRANSACTIONAL_FLAG, BatchHeader, rebase, restamp
from broker.records.builder import BatchBuilder
from broker.records.record import Header
from broker.types import NO_PRODUCER_ID


class BatchIntake:
    """Of one producer; `watch` is told of every batch."""

    def __init__(
        self,
        settings: ProducerSettings,
        partitioner: Partitioner,
        sender: Sender,
        watch: Callable[[ProducerBatch], None],
    ) -> None:
        self._settings = settings
        self._partitioner = partitioner
        self._sender = sender
        self._watch = watch

    def open(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> ProducerBatch:
        """A batch with its first record, which is sent when it is full or has lingered."""
        settings, loop = self._settings, asyncio.get_running_loop()
        builder = BatchBuilder(
            settings.codec_for(queue.topic_partition.topic),
            size_max=settings.batch_bytes,
            level=settings.compression_level,
            transactional=settings.transactional_id is not None,
        )
        batch = ProducerBatch(queue.topic_partition, created_at=loop.time(), builder=builder)
        batch.append(timestamp_ms, key, value, headers)
        self._enqueue(queue, batch)
        if settings.linger_ms > 0:
            loop.call_later(settings.linger_ms / 1000, self._end_linger, queue, batch)
        else:
            loop.call_soon(self._end_linger, queue, batch)
        return batch

    def take_whole(
        self, queue: PartitionQueue, batch: bytearray | memoryview, header: BatchHeader
    ) -> ProducerBatch:
        """A batch with its records as they are, which is sent at once; it is stamped in place."""
        rebase(batch, 0, 0, -1)
        flag = TRANSACTIONAL_FLAG if self._settings.transactional_id is not None else 0
        restamp(
            batch,
            0,
            len(batch),
            attributes=header.attributes & ~TRANSACTIONAL_FLAG | flag,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
        )
        ready = ProducerBatch(
            queue.topic_partition,
            created_at=asyncio.get_running_loop().time(),
            records=batch,
            count=header.record_count,
        )
        ready.buffered_bytes = len(batch)
        self._enqueue(queue, ready)
        return ready

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a batch behind the open one, which takes no more records then."""
        if queue.waiting and queue.waiting[-1].is_open:
            queue.waiting[-1].close()
            tell_partitioner(self._partitioner, queue.topic_partition)
        queue.waiting.append(batch)
        self._watch(batch)
        self._sender.enlist(queue)

    def _end_linger(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.due = True
        self._sender.enlist(queue)
