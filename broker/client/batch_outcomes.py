"""What is done once a producer's batch is written or given up: its room is free, it is counted, and event
handlers are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from broker.client.buffer_room import BufferRoom
from broker.client.event_handler import BatchFacts, EventHandler, tell
from broker.client.producer_batch import ProducerBatch
from broker.client.producer_metrics import ProducerCounters
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("producer")


class BatchOutcomes:
    """Of one producer."""

    def __init__(
        self,
        room: BufferRoom,
        counters: ProducerCounters,
        handlers: Sequence[EventHandler],
        on_given_up: Callable[[BrokerError], None],
    ) -> None:
        self._room = room
        self._counters = counters
        self._handlers = handlers
        self._on_given_up = on_given_up
        self._told: dict[TopicPartition, str] = {}
        """Why batches were given up that nothing was acknowledged behind, as the log says it already."""

    def watch(self, batch: ProducerBatch) -> None:
        """Do it for this batch, when the time has come."""
        batch.done.add_done_callback(partial(self._settled, batch))

    def tell_sending(self, batch: ProducerBatch) -> None:
        """Tell event handlers that it is about to be sent."""
        facts = _facts_of(batch)
        tell(self._handlers, lambda handler: handler.before_sending(facts))

    def _settled(self, batch: ProducerBatch, _done: asyncio.Future[int]) -> None:
        counters = self._counters
        counters.buffered_bytes_max = max(counters.buffered_bytes_max, self._room.used)
        if batch.halves is not None:
            return  # they have its room, and are told of one by one
        self._room.give_back(batch.buffered_bytes, batch.count)
        error = batch.done.exception()
        if error is None:
            took_ms = (asyncio.get_running_loop().time() - batch.created_at) * 1000
            counters.acknowledged(count=batch.count, size=batch.size, took_ms=took_ms)
            self._told.pop(batch.topic_partition, None)
            if self._handlers:
                facts, base_offset = _facts_of(batch), batch.done.result()
                tell(self._handlers, lambda handler: handler.acknowledged(facts, base_offset))
        else:
            assert isinstance(error, BrokerError), "batches end in errors of ours"
            self._given_up(batch, error)

    def _given_up(self, batch: ProducerBatch, error: BrokerError) -> None:
        self._counters.given_up(count=batch.count)
        said = str(error)
        if self._told.get(batch.topic_partition) != said:
            self._told[batch.topic_partition] = said
            _log.warning(
                "batch_given_up",
                topic=batch.topic_partition.topic,
                partition=batch.topic_partition.partition,
                records=batch.count,
                attempts=batch.attempts,
                error=said,
            )
        self._on_given_up(error)
        if self._handlers:
            facts = _facts_of(batch)
            tell(self._handlers, lambda handler: handler.given_up(facts, error))


def _facts_of(batch: ProducerBatch) -> BatchFacts:
    return BatchFacts(
        topic_partition=batch.topic_partition, count=batch.count, size=batch.size, attempts=batch.attempts
    )
