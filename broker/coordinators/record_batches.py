"""Batches of a coordinator's records: keys and values as they are stored."""

from __future__ import annotations

from collections.abc import Iterable

from broker.records.builder import BatchBuilder

KeyValue = tuple[bytes, bytes | None]

_BATCH_OVERHEAD_BYTES_MAX = 96
"""Header of a batch, and then some."""
_RECORD_OVERHEAD_BYTES_MAX = 40
"""Lengths, deltas and attributes of a record at their longest."""


def encoded_size(pairs: Iterable[KeyValue]) -> int:
    """At most so many bytes do these take in a batch, its header not counted."""
    return sum(_RECORD_OVERHEAD_BYTES_MAX + len(key) + len(value or b"") for key, value in pairs)


def build_batch(pairs: list[KeyValue], timestamp_ms: int) -> bytearray:
    """One batch of all of `pairs` (at least one), base offset 0, uncompressed as Kafka's default is."""
    builder = BatchBuilder(size_max=_BATCH_OVERHEAD_BYTES_MAX + encoded_size(pairs))
    for key, value in pairs:
        fitted = builder.append(timestamp_ms, key, value)
        assert fitted, "the builder was made large enough"
    return builder.build()
