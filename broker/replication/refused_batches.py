"""What was refused of producers that number their batches and have several under way.

A producer sends the next batch before it hears of the one before. When that one is refused for now, because
the node does not lead at this moment or its disk is full, and the next one comes a moment later, when it
could be taken, it is out of turn through no fault of the producer's. Told OUT_OF_ORDER_SEQUENCE_NUMBER,
producers give their identity up and send everything that was not acknowledged under a new one, also what is
in the log: then it is there twice. And if the log knows nothing of the producer yet, the next batch would be
taken, and the one before it never again. So a batch that directly follows one that was refused for now is
refused for the same reason, and the producer sends both again in order.

Clients may hear of a leader before the leader does, so refusals are remembered of partitions, hosted or not,
and not of replicas.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import iterate_batches, next_sequence, peek_producer
from broker.storage.filenames import is_topic_name
from broker.types import Buffer, TopicPartition

REFUSALS_MAX = 10_000
"""Of more, the one that is oldest is forgotten."""


class _Refusal(NamedTuple):
    """Why a batch was refused, and what its successor is numbered.

    Not the error itself: that holds on to the request it was raised for.
    """

    producer_epoch: int
    next_sequence: int
    code: ErrorCode
    message: str


class RefusedBatches:
    """The latest refusals of a node, by partition and producer. False when there are none."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: OrderedDict[tuple[TopicPartition, int], _Refusal] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def require_in_turn(self, partition: TopicPartition, records: Buffer) -> None:
        """Raises ProtocolError with the code that the batch before these was refused with."""
        if (producer := peek_producer(records)) is None:
            return
        producer_id, epoch, sequence = producer
        before = self._refusals.get((partition, producer_id))
        if before is not None and before[:2] == (epoch, sequence):
            raise ProtocolError(before.code, before.message)

    def refused(self, partition: TopicPartition, records: Buffer, error: ProtocolError) -> None:
        """These were not appended."""
        try:
            headers = [header for _, header in iterate_batches(records)]
        except CorruptRecordsError:
            return
        if not headers or headers[0].producer_id < 0 or not is_topic_name(partition.topic):
            return
        key, last = (partition, headers[0].producer_id), headers[-1]
        self._refusals.pop(key, None)
        if error.code.retriable:
            following = next_sequence(last.last_sequence, 1)
            self._refusals[key] = _Refusal(last.producer_epoch, following, error.code, error.message)
        if len(self._refusals) > REFUSALS_MAX:
            self._refusals.popitem(last=False)

    def appended(self, partition: TopicPartition, records: Buffer) -> None:
        """Whoever sent these goes on from there."""
        if (producer := peek_producer(records)) is not None:
            self._refusals.pop((partition, producer[0]), None)
