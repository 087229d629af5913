"""A batch on its way to a partition, and what its records' senders hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.errors import BrokerError
from broker.records.batch import Codec, next_sequence, read_header, restamp
from broker.records.builder import BatchBuilder
from broker.records.reader import read_records
from broker.records.record import Header
from broker.types import Buffer, TopicPartition

NO_SEQUENCE = -1
NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 when the node does not tell: acks 0, or a duplicate of long ago."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProducerBatch:
    """Records of one partition that travel together. Open until `close`; then its bytes are there."""

    __slots__ = (
        "_builder",
        "_records",
        "attempts",
        "base_sequence",
        "buffered_bytes",
        "codec",
        "count",
        "created_at",
        "done",
        "due",
        "halves",
        "identity",
        "log_append_time_ms",
        "ordinal",
        "outcome_unknown",
        "splittable",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        created_at: float,
        builder: BatchBuilder | None = None,
        records: bytearray | memoryview | None = None,
        count: int = 0,
    ) -> None:
        """An open batch with a `builder`, or a closed one of `count` records.

        `created_at` is in seconds, any clock.
        """
        self.topic_partition = topic_partition
        self.created_at = created_at
        self.count = count
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The base offset, or why it could not be written."""
        self.due = builder is None
        """To be sent without waiting for more records."""
        self.buffered_bytes = 0
        """Its share of the producer's buffer."""
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.ordinal = 0
        """Its number among the batches of the partition, counted when it got its sequence number."""
        self.attempts = 0
        self.outcome_unknown = False
        """Some attempt may have been written although no answer said so."""
        self.log_append_time_ms = -1
        self.splittable = builder is not None
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None
        self._builder = builder
        self._records = records

    @property
    def is_open(self) -> bool:
        """Whether records can still be added."""
        return self._builder is not None

    @property
    def is_sequenced(self) -> bool:
        """Whether it has a place in the sequence of an identity: it was sent, or is about to be."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def size(self) -> int:
        """Bytes of the batch as it travels, 0 while it is open."""
        return len(self._records) if self._records is not None else 0

    @property
    def records(self) -> bytearray | memoryview:
        """The whole batch. It must be closed."""
        assert self._records is not None
        return self._records

    def append(
        self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Iterable[Header]
    ) -> bool:
        """Add a record; False when the batch is closed or full. Raises TypeError for what is no record."""
        if self._builder is None or not self._builder.append(timestamp_ms, key, value, headers):
            return False
        self.count += 1
        return True

    def close(self) -> None:
        """Compress and finish the bytes; nothing happens to a closed batch."""
        if self._builder is not None:
            self._records = self._builder.build()
            self._builder = None
            self.due = True

    def stamp(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Give the closed batch its producer fields, in place."""
        self.identity, self.base_sequence = identity, base_sequence
        restamp(
            self.records,
            0,
            len(self.records),
            attributes=read_header(self.records).attributes,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=base_sequence,
        )

    def unsequence(self) -> None:
        """Take its place in the sequence away: it was not written, and will be numbered anew."""
        self.identity, self.base_sequence = NO_IDENTITY, NO_SEQUENCE

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        """It is written."""
        self.log_append_time_ms = log_append_time_ms
        if not self.done.done():
            self.done.set_result(base_offset)

    def fail(self, error: BrokerError) -> None:
        """It is given up; whoever awaits a delivery is told."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # retrieved: whether anybody awaits it is the sender's choice

    def split(
        self, *, codec: Codec, level: int | None, transactional: bool = False, decoded_bytes_max: int
    ) -> list[ProducerBatch]:
        """Two batches with half the records each, numbered as the whole was; done when both are.

        Needs two records.
        """
        header = read_header(self.records)
        records = read_records(self.records, header, size_max=decoded_bytes_max)
        middle = len(records) // 2
        halves: list[ProducerBatch] = []
        for part in (records[:middle], records[middle:]):
            builder = BatchBuilder(
                codec, size_max=decoded_bytes_max, level=level, transactional=transactional
            )
            half = ProducerBatch(self.topic_partition, created_at=self.created_at, builder=builder)
            for record in part:
                half.append(record.timestamp, record.key, record.value, record.headers)
            half.close()
            if self.is_sequenced:
                half.stamp(
                    self.identity, next_sequence(self.base_sequence, sum(earlier.count for earlier in halves))
                )
                half.ordinal = self.ordinal
            half.done.add_done_callback(self._on_half_done)
            halves.append(half)
        halves[0].buffered_bytes = self.buffered_bytes // 2
        halves[1].buffered_bytes = self.buffered_bytes - halves[0].buffered_bytes
        self.buffered_bytes = 0
        self.halves = (halves[0], halves[1])
        return halves

    def _on_half_done(self, _done: asyncio.Future[int]) -> None:
        assert self.halves is not None
        if all(half.done.done() for half in self.halves) and not self.done.done():
            self.done.set_result(NO_OFFSET)

    def outcome(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where record `index` went; `done` must be. Raises why it went nowhere."""
        if self.halves is not None:
            first, second = self.halves
            if index < first.count:
                return first.outcome(index, timestamp_ms)
            return second.outcome(index - first.count, timestamp_ms)
        base_offset = self.done.result()
        offset = base_offset + index if base_offset != NO_OFFSET else NO_OFFSET
        if self.log_append_time_ms >= 0:
            timestamp_ms = self.log_append_time_ms
        return RecordMetadata(*self.topic_partition, offset, timestamp_ms)


class Delivery:
    """The fate of one record: await it for its RecordMetadata.

    Awaiting it or not makes no difference to its sending.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the record is written or given up."""
        return self._batch.done.done()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have `callback` called with this delivery once it is done, on the producer's loop."""
        self._batch.done.add_done_callback(lambda _: callback(self))

    def is_with(self, other: Delivery) -> bool:
        """Whether both records are in one batch, which is written or given up as a whole."""
        return self._batch is other._batch

    def result(self) -> RecordMetadata:
        """Where the record went.

        Raises BrokerError when it was given up, asyncio.InvalidStateError before it is done.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the record is still on its way")
        return self._batch.outcome(self._index, self._timestamp_ms)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from asyncio.wait([self._batch.done]).__await__()
        return self._batch.outcome(self._index, self._timestamp_ms)


def settled_delivery(
    topic: str, partition: int | None, timestamp_ms: int, error: BrokerError | None = None
) -> Delivery:
    """The fate of a record that is not sent: an error, or without one no offset."""
    nowhere = TopicPartition(topic, -1 if partition is None else partition)
    batch = ProducerBatch(nowhere, created_at=0)
    if error is None:
        batch.succeed(NO_OFFSET)
    else:
        batch.fail(error)
    return Delivery(batch, 0, timestamp_ms)
