"""What the machine of a transactional id is told, and what it wants done: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.coordinators.record_batches import NO_PRODUCER, ProducerIdentity
from broker.errors import ErrorCode
from broker.transactions.transaction import Transaction
from broker.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialise:
    """InitProducerId. `expected` is who the producer thinks it is, None of a new one; `spare_producer_id` is
    there if the machine asked for one.
    """

    timeout_ms: int
    expected: ProducerIdentity | None = None
    spare_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """The producer is about to write to these."""

    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn. `version` is the `transaction.version` that the producer goes by."""

    producer: ProducerIdentity
    commits: bool
    version: int
    spare_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class TimeChecked:
    """It is time to see whether the open transaction is overdue."""


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of the prepared transaction has its marker, or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryChecked:
    """It is time to see whether anybody has used the id within `expiration_ms`."""

    expiration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The record of the last `Store` is committed, or failed with `error`."""

    error: ErrorCode


Event = Initialise | AddPartitions | End | TimeChecked | MarkersWritten | ExpiryChecked | Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What who asked is answered."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdentity = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Append the value to the log, a tombstone for None, and report `Stored`, whatever comes of it."""

    value: Transaction | None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth a line in the log: a past-tense name and its keys."""

    name: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What to do after one event."""

    reply: Reply | None = None
    """To whoever asked first of those who wait: an event that leads to a store is answered when it is
    stored.
    """
    store: Store | None = None
    sends_markers: bool = False
    """The transaction as it is now is prepared and stored: have its markers written."""
    needs_producer_id: bool = False
    """Draw a producer id and tell the same event again with it; nothing has changed."""
    facts: tuple[Fact, ...] = ()
    """For the log only."""
