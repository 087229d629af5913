"""What a program may do at each stage of a record's way through a producer: change or filter it, count it,
trace it.

Handlers are called in their order, on the producer's loop, and must not block. What a handler raises before
a record is enqueued ends that `send`; later it can change nothing, so it is logged, and the producer goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.client.partitioner import Partitioner
from broker.client.producer_batch import Delivery
from broker.client.producer_settings import ProducerRecord
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """A batch as handlers see it; `size` in bytes, compressed."""

    topic_partition: TopicPartition
    count: int
    size: int
    attempts: int
    """How often it was sent."""


class EventHandler:
    """Does nothing at any stage: what a handler is made of by overriding some of it."""

    def before_enqueue(self, record: ProducerRecord) -> ProducerRecord | None:
        """The record to be sent in place of this one; None to send nothing.

        Keys and values are as they were given to `send`; encoders come after.
        """
        return record

    def after_enqueue(self, record: ProducerRecord, delivery: Delivery) -> None:
        """The record is buffered; or dropped for lack of room, then its delivery is done already."""

    def before_sending(self, batch: BatchFacts) -> None:
        """A batch is about to be sent, perhaps again."""

    def acknowledged(self, batch: BatchFacts, base_offset: int) -> None:
        """A batch is written; its first offset is -1 where the leader does not tell."""

    def given_up(self, batch: BatchFacts, error: BrokerError) -> None:
        """A batch is not written, or not known to be, and will not be sent again."""

    def close(self) -> None:
        """The producer is closed; nothing comes after this."""


def tell(handlers: Sequence[EventHandler], call: Callable[[EventHandler], None]) -> None:
    """Call every handler, and log what they raise."""
    for handler in handlers:
        try:
            call(handler)
        except Exception as error:  # noqa: BLE001 (a program's own code must not end its producer)
            _log.warning("event_handler_failed", handler=type(handler).__name__, error=repr(error))


def tell_partitioner(partitioner: Partitioner, closed: TopicPartition) -> None:
    """Tell it that a batch is complete, and log what it raises."""
    try:
        partitioner.batch_closed(*closed)
    except Exception as error:  # noqa: BLE001 (a program's own code must not end its producer)
        _log.warning("partitioner_failed", partitioner=type(partitioner).__name__, error=repr(error))
