"""Batches of a coordinator's records: keys and values as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.records.builder import BatchBuilder
from broker.types import NO_PRODUCER_ID

KeyValue = tuple[bytes, bytes | None]


class ProducerIdentity(NamedTuple):
    """A producer of transactions: its id, and its epoch, which fences those before it."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, -1)

_BATCH_OVERHEAD_BYTES_MAX = 96
"""Header of a batch, and then some."""
_RECORD_OVERHEAD_BYTES_MAX = 40
"""Lengths, deltas and attributes of a record at their longest."""


def encoded_size(pairs: Iterable[KeyValue]) -> int:
    """At most so many bytes do these take in a batch, its header not counted."""
    return sum(_RECORD_OVERHEAD_BYTES_MAX + len(key) + len(value or b"") for key, value in pairs)


def build_batch(
    pairs: list[KeyValue], timestamp_ms: int, producer: ProducerIdentity = NO_PRODUCER
) -> bytearray:
    """One batch of all of `pairs` (at least one), base offset 0, uncompressed as Kafka's default is; part of
    the transaction of `producer`, if one is given.
    """
    builder = BatchBuilder(
        size_max=_BATCH_OVERHEAD_BYTES_MAX + encoded_size(pairs),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transactional=producer is not NO_PRODUCER,
    )
    for key, value in pairs:
        fitted = builder.append(timestamp_ms, key, value)
        assert fitted, "the builder was made large enough"
    return builder.build()
