"""The machine of one transactional id: who owns it, and how its transactions begin and end. Pure.

Rules. One step at a time: while a record is on its way to the log everybody else is told to come again
(CONCURRENT_TRANSACTIONS), and nothing has changed until it is there. A failed record leaves all as it was:
the log may have it all the same, but whoever reads the log believes the last record, and nothing is told or
sent before a record is committed. A producer is answered as soon as the end is decided; the next transaction
waits until the markers are written.

    none --init--> Empty --add--> Ongoing --end--> Prepare* --markers--> Complete* --add--> Ongoing
                                  Ongoing --init of another, or timeout--> PrepareAbort, epoch raised

Source: Kafka's transaction coordinator, KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode
from broker.transactions.events import (
    AddPartitions,
    Effects,
    End,
    Event,
    ExpiryChecked,
    Fact,
    Initialise,
    MarkersWritten,
    Reply,
    Store,
    Stored,
    TimeChecked,
)
from broker.transactions.state import TRANSITIONS, State
from broker.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    EPOCH_LAST,
    NO_EPOCH,
    Transaction,
    completed,
    fenced,
    first,
    prepared,
    with_epoch,
    with_partitions,
    with_producer_id,
)
from broker.types import NO_PRODUCER_ID, TopicPartition

_NOTHING = Effects()
_NEEDS_PRODUCER_ID = Effects(needs_producer_id=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A record on its way to the log, and what is done once it is there."""

    value: Transaction | None
    reply: Reply | None
    facts: tuple[Fact, ...]


class TransactionMachine:
    """See the module's description. Owned by the driver of the id's partition."""

    __slots__ = ("_step", "transaction")

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction
        """What the log says; None before the first record, and after the last."""
        self._step: _Step | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a record is on its way to the log."""
        return self._step is not None

    @property
    def state(self) -> State:
        """Dead while it is being removed, and when there is nothing."""
        if self.transaction is None or (self._step is not None and self._step.value is None):
            return State.DEAD
        return self.transaction.state

    def handle(self, event: Event, now_ms: int) -> Effects:
        """Decide."""
        match event:
            case Stored():
                return self._stored(event.error)
            case Initialise():
                return self._initialise(event, now_ms)
            case AddPartitions():
                return self._add_partitions(event, now_ms)
            case End():
                return self._end(event, now_ms)
            case TimeChecked():
                return self._check_time(now_ms)
            case MarkersWritten():
                return self._complete(now_ms)
            case ExpiryChecked():
                return self._check_expiry(event, now_ms)
            case _:
                assert_never(event)

    def verify(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are part of the producer's open transaction: NONE, or why not."""
        error = self._ownership_error(producer)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        assert self.transaction is not None, "owned by the producer"
        if self.transaction.state.is_prepared:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        known = self.transaction.partitions
        return {
            partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # Steps

    def _begin(self, value: Transaction | None, reply: Reply | None, *facts: Fact) -> Effects:
        if self.transaction is not None:
            following = State.DEAD if value is None else value.state
            assert following in TRANSITIONS[self.transaction.state], "a step that the table does not have"
        self._step = _Step(value=value, reply=reply, facts=facts)
        return Effects(store=Store(value=value))

    def _stored(self, error: ErrorCode) -> Effects:
        step, self._step = self._step, None
        assert step is not None, "only what was begun is stored"
        if error is not ErrorCode.NONE:
            return Effects(reply=None if step.reply is None else Reply(error=error))
        self.transaction = step.value
        is_prepared = step.value is not None and step.value.state.is_prepared
        return Effects(reply=step.reply, sends_markers=is_prepared, facts=step.facts)

    def _ownership_error(self, producer: ProducerIdentity) -> ErrorCode:
        """Why the id is not the producer's, NONE when it is."""
        transaction = self.transaction
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        owner = transaction.told_producer if transaction.state.is_prepared else transaction.producer
        if producer in (owner, transaction.producer):
            return ErrorCode.NONE
        if producer.producer_id not in (owner.producer_id, transaction.producer_id):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.PRODUCER_FENCED

    # InitProducerId

    def _initialise(self, event: Initialise, now_ms: int) -> Effects:
        transaction, expected = self.transaction, event.expected
        if self.is_busy:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction is None:
            if event.spare_producer_id is None:
                return _NEEDS_PRODUCER_ID
            return self._own(first(event.spare_producer_id, event.timeout_ms, now_ms))
        if expected is not None and not _may_continue(transaction, expected):
            return _refused(ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            if expected is not None and expected.epoch not in (transaction.epoch, transaction.last_epoch):
                return _refused(ErrorCode.PRODUCER_FENCED)
            return self._fence(transaction, Reply(error=ErrorCode.CONCURRENT_TRANSACTIONS), now_ms)
        return self._renew(transaction, event, now_ms)

    def _renew(self, transaction: Transaction, event: Initialise, now_ms: int) -> Effects:
        """The producer of an id at rest begins anew, another one or the same."""
        expected, timeout_ms = event.expected, event.timeout_ms
        last_epoch = NO_EPOCH if expected is None else transaction.epoch
        if expected is not None and expected != transaction.producer:
            if expected.epoch != transaction.last_epoch:
                return _refused(ErrorCode.PRODUCER_FENCED)
            again = with_epoch(
                transaction, transaction.epoch, transaction.last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
            )
            return self._own(again)
        if not transaction.is_exhausted:
            raised = with_epoch(
                transaction, transaction.epoch + 1, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
            )
            return self._own(raised)
        if event.spare_producer_id is None:
            return _NEEDS_PRODUCER_ID
        rotated = with_producer_id(
            transaction, event.spare_producer_id, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
        )
        return self._own(rotated)

    def _own(self, transaction: Transaction) -> Effects:
        producer = transaction.producer
        fact = Fact("producer_initialised", {"producer_id": producer.producer_id, "epoch": producer.epoch})
        return self._begin(transaction, Reply(producer=producer), fact)

    def _fence(self, transaction: Transaction, reply: Reply | None, now_ms: int) -> Effects:
        value = fenced(transaction, now_ms)
        fact = Fact(
            "transaction_aborted_for_producer",
            {
                "producer_id": value.producer_id,
                "epoch": value.epoch,
                "open_ms": now_ms - value.started_ms,
                "reason": "timeout" if reply is None else "producer initialised",
            },
        )
        return self._begin(value, reply, fact)

    # Partitions

    def _add_partitions(self, event: AddPartitions, now_ms: int) -> Effects:
        error = self._ownership_error(event.producer)
        if error is not ErrorCode.NONE:
            return _refused(error)
        transaction = self.transaction
        assert transaction is not None, "owned by the producer"
        if self.is_busy or transaction.state.is_prepared:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING and event.partitions <= transaction.partitions:
            return Effects(reply=Reply())
        return self._begin(with_partitions(transaction, event.partitions, now_ms), Reply())

    # Ends

    def _end(self, event: End, now_ms: int) -> Effects:
        transaction = self.transaction
        if transaction is None:
            return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_repeated = _is_repeated_end(transaction, event)
        if not is_repeated:
            error = self._ownership_error(event.producer)
            if error is not ErrorCode.NONE:
                return _refused(error)
        if self.is_busy:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        match transaction.state:
            case State.ONGOING:
                return self._prepare(transaction, event, now_ms)
            case State.PREPARE_COMMIT | State.PREPARE_ABORT:
                is_same = event.commits is (transaction.state is State.PREPARE_COMMIT)
                if is_same or (event.version >= EPOCH_BUMP_VERSION and not is_repeated):
                    return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
                return _refused(ErrorCode.INVALID_TXN_STATE)
            case State.COMPLETE_COMMIT | State.COMPLETE_ABORT if is_repeated:
                is_same = event.commits is (transaction.state is State.COMPLETE_COMMIT)
                if is_same:
                    return Effects(reply=Reply(producer=transaction.producer))
                return _refused(ErrorCode.INVALID_TXN_STATE)
            case _:
                return self._end_nothing(transaction, event, now_ms)

    def _end_nothing(self, transaction: Transaction, event: End, now_ms: int) -> Effects:
        """No transaction was begun that is known here. One whose writes went astray may yet be aborted by
        those who begin transactions by writing: the raised epoch keeps the writes away.
        """
        if event.commits or event.version < EPOCH_BUMP_VERSION:
            return _refused(ErrorCode.INVALID_TXN_STATE)
        return self._prepare(transaction, event, now_ms)

    def _prepare(self, transaction: Transaction, event: End, now_ms: int) -> Effects:
        next_producer_id: int = NO_PRODUCER_ID
        if event.version >= EPOCH_BUMP_VERSION and transaction.is_exhausted:
            if event.spare_producer_id is None:
                return _NEEDS_PRODUCER_ID
            next_producer_id = event.spare_producer_id
        value = prepared(
            transaction,
            commits=event.commits,
            version=event.version,
            next_producer_id=next_producer_id,
            now_ms=now_ms,
        )
        return self._begin(value, Reply(producer=value.told_producer))

    def _complete(self, now_ms: int) -> Effects:
        transaction = self.transaction
        if transaction is None or not transaction.state.is_prepared or self.is_busy:
            return _NOTHING
        return self._begin(completed(transaction, now_ms), None)

    # Time

    def _check_time(self, now_ms: int) -> Effects:
        transaction = self.transaction
        if transaction is None or self.is_busy or not transaction.is_overdue(now_ms):
            return _NOTHING
        return self._fence(transaction, None, now_ms)

    def _check_expiry(self, event: ExpiryChecked, now_ms: int) -> Effects:
        transaction = self.transaction
        if transaction is None or self.is_busy or not transaction.is_expired(now_ms, event.expiration_ms):
            return _NOTHING
        fact = Fact("transactional_id_expired", {"unused_ms": now_ms - transaction.updated_ms})
        return self._begin(None, None, fact)


def _refused(error: ErrorCode) -> Effects:
    return Effects(reply=Reply(error=error))


def _may_continue(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Whether who asks is the producer, or was it until its epochs were used up and did not hear of that."""
    is_rotated = expected.producer_id == transaction.previous_producer_id and expected.epoch >= EPOCH_LAST
    return expected.producer_id == transaction.producer_id or is_rotated


def _is_repeated_end(transaction: Transaction, event: End) -> bool:
    """Whether the transaction was ended by this very request before."""
    if event.version < EPOCH_BUMP_VERSION or transaction.client_version < EPOCH_BUMP_VERSION:
        is_ended = transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        return event.version < EPOCH_BUMP_VERSION and is_ended and event.producer == transaction.producer
    before = ProducerIdentity(transaction.producer_id, transaction.epoch - 1)
    if event.producer == before:
        return transaction.state is not State.EMPTY and transaction.state is not State.ONGOING
    rotated = ProducerIdentity(transaction.previous_producer_id, EPOCH_LAST)
    return event.producer == rotated and transaction.epoch == 0 and transaction.state.is_at_rest
