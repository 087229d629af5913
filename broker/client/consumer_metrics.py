"""What a consumer counts, and the snapshot that it gives of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far one partition is read; offsets are None while they are not known."""

    position: int | None
    """The next offset to be handed out."""
    processed: int | None
    """Up to here the reader is done: it came back for more."""
    end: int | None
    """Up to here there are records to be read, as its node said last."""
    lag: int | None
    """Offsets from position to end."""
    buffered_bytes: int
    is_paused: bool
    is_resting: bool
    """After an error, until `seek` or `resume`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics:
    """A consumer's figures since its start, sizes in bytes."""

    records_taken: int
    fetches: int
    fetches_failed: int
    fetched_bytes: int
    """Records in answers, compressed."""
    buffered_bytes: int
    """Fetched and not yet taken."""
    lag_max: int | None
    """Of all partitions whose lag is known."""
    partitions: Mapping[TopicPartition, PartitionProgress]


@dataclass(slots=True)
class FetchCounters:
    """The fetcher's own side of a consumer's metrics."""

    fetches: int = 0
    fetches_failed: int = 0
    fetched_bytes: int = 0
