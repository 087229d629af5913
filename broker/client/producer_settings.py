"""Settings of a producer, and the records it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.client.setting_bounds import find_too_small
from broker.errors import ConfigurationError
from broker.records.batch import Codec
from broker.records.record import Header

ALL_IN_SYNC = -1
"""The acks that wait for every in-sync replica."""

IDEMPOTENT_WINDOW = 5
"""A leader remembers as many batches of each producer (KIP-98): more in flight could not be told from
duplicates.
"""
ORDERED_WINDOW = 1
"""Without sequence numbers only one batch at a time keeps its order when it must be sent again."""


NO_BOUND = 2**31 - 1


class WhenFull(Enum):
    """What `send` does while there is no room for a record."""

    BLOCK = "block"
    """Wait, for `max_block_ms`."""
    DROP = "drop"
    """Drop the record, at once or after `drop_after_ms`: its delivery ends in BufferFullError."""


_LEAST = {
    "linger_ms": 0,
    "batch_bytes": 0,
    "batch_records": 1,
    "buffer_bytes": 0,
    "buffer_records": 1,
    "drop_after_ms": 0,
    "max_in_flight": 1,
    "max_request_bytes": 1,
    "request_timeout_ms": 1,
    "delivery_timeout_ms": 0,
    "retries": 0,
    "max_block_ms": 0,
    "metadata_max_age_ms": 0,
    "transaction_timeout_ms": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer behaves; sizes in bytes, times in milliseconds."""

    acks: int = ALL_IN_SYNC
    """Replicas that must have a batch before it counts as written: -1 all in sync, 1 the leader, 0 none (no
    answer).
    """
    idempotent: bool = True
    codec: Codec = Codec.NONE
    compressed_topics: frozenset[str] = frozenset()
    """Only these are compressed, where there are any."""
    compression_level: int | None = None
    linger_ms: float = 5.0
    batch_bytes: int = 64 * 1024
    """Uncompressed; a larger record still gets a batch of its own."""
    batch_records: int = NO_BOUND
    buffer_bytes: int = 32 * 1024 * 1024
    """Records not yet settled; see `when_full` for what comes on top."""
    buffer_records: int = NO_BOUND
    when_full: WhenFull = WhenFull.BLOCK
    drop_after_ms: int = 0
    sync: bool = False
    """`send` returns when the record is written and raises why it could not be, and nothing lingers."""
    max_in_flight: int = 5
    """Requests per node."""
    max_request_bytes: int = 1024 * 1024
    """Bound of a request, and of a single record."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retries: int = NO_BOUND
    """Times that a batch is sent again, within `delivery_timeout_ms`."""
    max_block_ms: int = 60_000
    """How long `send` may wait for room or for a topic's metadata."""
    metadata_max_age_ms: int = 300_000
    transactional_id: str | None = None
    """Names the transactions of a TransactionalProducer; whoever initializes it last may use it."""
    transaction_timeout_ms: int = 60_000
    """After so long the coordinator aborts a transaction by itself."""

    @property
    def window(self) -> int:
        """Batches of one partition in flight."""
        return IDEMPOTENT_WINDOW if self.idempotent else ORDERED_WINDOW

    def codec_for(self, topic: str) -> Codec:
        """What batches of the topic are compressed with."""
        return self.codec if not self.compressed_topics or topic in self.compressed_topics else Codec.NONE

    def __post_init__(self) -> None:
        problems = []
        if self.acks not in (-1, 0, 1):
            problems.append(f"acks is {self.acks}, not one of -1, 0 and 1")
        if self.idempotent and self.acks != ALL_IN_SYNC:
            problems.append(f"an idempotent producer needs acks -1, not {self.acks}")
        if self.transactional_id is not None and not self.idempotent:
            problems.append("a transactional producer is idempotent")
        problems += find_too_small(self, _LEAST)
        if problems:
            raise ConfigurationError(problems)


class ProducerRecord(NamedTuple):
    """A record to send; without `partition` the partitioner chooses, without `timestamp_ms` it is now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()
