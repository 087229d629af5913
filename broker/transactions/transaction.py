"""One transactional id as `__transaction_state` keeps it, and its steps: each makes the next value. Pure.

Epochs: a producer's epoch fences those before it. `EPOCH_LAST` is the last that a producer gets; the one
above is left to fence it, and then another producer id is due. With transactions of version 2 (KIP-890) every
end raises the epoch, so that nothing of the ended transaction can reach the next one. `last_epoch` is what
the producer had before it was raised at its own request: who asks again with it did not hear of that. It is
not stored, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.coordinators.record_batches import ProducerIdentity
from broker.transactions.state import State
from broker.types import NO_PRODUCER_ID, TopicPartition

NO_EPOCH = -1
NO_TIMESTAMP_MS = -1
EPOCH_LAST = (1 << 15) - 2
EPOCH_BUMP_VERSION = 2
"""First `transaction.version` that raises the epoch with every end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """See the module's description; times are milliseconds since the epoch."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    started_ms: int = NO_TIMESTAMP_MS
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer's id once the markers are written, where its epochs are used up."""
    last_epoch: int = NO_EPOCH
    client_version: int = 0
    """The `transaction.version` that ended the transaction."""

    @property
    def producer(self) -> ProducerIdentity:
        """Whose the id is; of a prepared transaction: whom its markers name."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def told_producer(self) -> ProducerIdentity:
        """What the producer of an ended transaction is told to be from now on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.producer

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left for a producer of this id."""
        return self.epoch >= EPOCH_LAST

    def is_overdue(self, now_ms: int) -> bool:
        """Whether an open transaction has outlived its timeout."""
        return self.state is State.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether nobody used the id for so long."""
        return self.state.is_at_rest and self.updated_ms + expiration_ms <= now_ms


def first(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id that nobody had before, with its first producer."""
    return Transaction(
        producer_id=producer_id, epoch=0, timeout_ms=timeout_ms, state=State.EMPTY, updated_ms=now_ms
    )


def with_epoch(
    transaction: Transaction, epoch: int, last_epoch: int, *, timeout_ms: int, now_ms: int
) -> Transaction:
    """Its producer begins anew, with this epoch."""
    anew = _anew(transaction, timeout_ms, now_ms)
    return replace(anew, epoch=epoch, last_epoch=last_epoch)


def with_producer_id(
    transaction: Transaction, producer_id: int, last_epoch: int, *, timeout_ms: int, now_ms: int
) -> Transaction:
    """Its producer begins anew, with another id."""
    anew = _anew(transaction, timeout_ms, now_ms)
    return replace(anew, producer_id=producer_id, epoch=0, last_epoch=last_epoch)


def _anew(transaction: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    return replace(
        transaction,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP_MS,
        updated_ms=now_ms,
        client_version=0,
    )


def with_partitions(
    transaction: Transaction, partitions: frozenset[TopicPartition], now_ms: int
) -> Transaction:
    """The transaction, begun if need be, writes to these, too."""
    return replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions | partitions,
        started_ms=transaction.started_ms if transaction.state is State.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=0,
    )


def prepared(
    transaction: Transaction, *, commits: bool, version: int, next_producer_id: int, now_ms: int
) -> Transaction:
    """Its end is decided by its producer, or for it."""
    raises_epoch = version >= EPOCH_BUMP_VERSION
    return replace(
        transaction,
        state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT,
        epoch=transaction.epoch + 1 if raises_epoch else transaction.epoch,
        last_epoch=transaction.epoch if raises_epoch else transaction.last_epoch,
        next_producer_id=next_producer_id,
        started_ms=transaction.started_ms if transaction.state is State.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=version,
    )


def fenced(transaction: Transaction, now_ms: int) -> Transaction:
    """It is aborted over its producer's head, whose epoch counts no more."""
    return replace(
        transaction,
        state=State.PREPARE_ABORT,
        epoch=transaction.epoch + 1,
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
        client_version=0,
    )


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All its markers are written."""
    producer = transaction.told_producer
    is_new = producer.producer_id != transaction.producer_id
    return replace(
        transaction,
        state=State.COMPLETE_COMMIT if transaction.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        previous_producer_id=transaction.producer_id if is_new else transaction.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
