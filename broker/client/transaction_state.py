"""One transactional id as its producer knows it: where its transaction stands, and what errors mean. Pure.

Rules:
- Only one call is under way at a time: initialize, then begin, write, end, again and again.
- A partition takes no records of a transaction before its coordinator knows that it is part of it. Under the
  first protocol the producer tells (AddPartitionsToTxn) and holds its batches back until that is answered;
  under the second (KIP-890, `transaction.version` 2) the leader tells, and nothing is held.
- What goes wrong within a transaction leaves it to be aborted, and only that: whatever was refused once can
  no longer be committed. What a newer producer of the same id did ends this one.
- Under the first protocol an epoch lasts until an abort, after which it is replaced: batches that were given
  up leave gaps in its sequences. Under the second every end of a transaction brings a new epoch.
- A transaction that touched nothing is not ended at the coordinator, which does not know of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.types import TopicPartition

PARTITIONS_ADDED_BY_LEADERS = 2
"""The `transaction.version` from which on they are."""


class TransactionStatus(Enum):
    """What a transactional producer is doing."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    """Between transactions."""
    OPEN = "open"
    COMMITTING = "committing"
    """An attempt that ran out of time leaves it so: it may be repeated, nothing else."""
    ABORTING = "aborting"
    ABORTABLE = "abortable"
    """Something failed: the transaction can only be aborted."""
    DEAD = "dead"
    """Nothing can be written any more."""


TRANSITIONS: Mapping[TransactionStatus, frozenset[TransactionStatus]] = {
    TransactionStatus.UNINITIALIZED: frozenset({TransactionStatus.READY, TransactionStatus.DEAD}),
    TransactionStatus.READY: frozenset({TransactionStatus.OPEN, TransactionStatus.DEAD}),
    TransactionStatus.OPEN: frozenset(
        {
            TransactionStatus.COMMITTING,
            TransactionStatus.ABORTING,
            TransactionStatus.ABORTABLE,
            TransactionStatus.DEAD,
        }
    ),
    TransactionStatus.COMMITTING: frozenset(
        {
            TransactionStatus.COMMITTING,
            TransactionStatus.READY,
            TransactionStatus.ABORTABLE,
            TransactionStatus.DEAD,
        }
    ),
    TransactionStatus.ABORTING: frozenset(
        {TransactionStatus.ABORTING, TransactionStatus.READY, TransactionStatus.DEAD}
    ),
    TransactionStatus.ABORTABLE: frozenset({TransactionStatus.ABORTING, TransactionStatus.DEAD}),
    TransactionStatus.DEAD: frozenset(),
}


class TransactionAbortableError(BrokerError):
    """The transaction must be aborted; the producer can go on then with another one. The cause tells why."""


class ProducerFencedError(ProtocolError):
    """Another producer took over the transactional id, or the coordinator gave this one up for its silence:
    this producer can only be closed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.PRODUCER_FENCED, message)


class TransactionStateError(ProtocolError):
    """A call that does not fit where the transaction stands: a mistake of the program; nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)


class Severity(Enum):
    """What an error within a transaction means for it."""

    ABORTABLE = "abortable"
    FATAL = "fatal"


_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_FATAL_FOR_BATCHES = _FATAL - {ErrorCode.INVALID_TXN_STATE} | {ErrorCode.PRODUCER_FENCED}
"""A leader that knows of no open transaction says INVALID_TXN_STATE, and a stale epoch may be the fault of a
timeout at the coordinator: aborting finds out."""


def severity_at_coordinator(error: BrokerError) -> Severity:
    """What a coordinator's refusal that is not to be repeated means."""
    return _severity(error, _FENCED | _FATAL)


def severity_of_batch(error: BrokerError) -> Severity:
    """What a batch that was given up means."""
    return _severity(error, _FATAL_FOR_BATCHES)


def _severity(error: BrokerError, fatal: frozenset[ErrorCode]) -> Severity:
    if isinstance(error, AuthenticationError | ConfigurationError):
        return Severity.FATAL
    return Severity.FATAL if isinstance(error, ProtocolError) and error.code in fatal else Severity.ABORTABLE


class TransactionState:
    """The machine. Its methods are events; those that a program calls raise what forbids them."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.status = TransactionStatus.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.version = 0
        """The cluster's finalized `transaction.version`."""
        self.error: BrokerError | None = None
        """Why the status is ABORTABLE or DEAD."""
        self._partitions: set[TopicPartition] = set()
        """Known to the coordinator as part of the transaction, or made known by their leaders."""
        self._unknown: set[TopicPartition] = set()
        """Written to, and the coordinator is to be told."""
        self._has_offsets = False

    @property
    def adds_partitions(self) -> bool:
        """Whether the coordinator is told of partitions by the producer."""
        return self.version < PARTITIONS_ADDED_BY_LEADERS

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that are part of the transaction."""
        return frozenset(self._partitions)

    @property
    def partitions_to_add(self) -> frozenset[TopicPartition]:
        """Those that the coordinator has to be told of."""
        return frozenset(self._unknown)

    @property
    def is_known_to_coordinator(self) -> bool:
        """Whether there is anything to end."""
        return bool(self._partitions) or self._has_offsets

    def initialized(self, identity: ProducerIdentity, version: int) -> None:
        """The coordinator gave an identity to begin with, and ended what an earlier producer left open."""
        self.identity, self.version = identity, version
        self._enter(TransactionStatus.READY)

    def begin(self) -> None:
        """Open a transaction."""
        self._require(TransactionStatus.READY, to="begin a transaction")
        self._enter(TransactionStatus.OPEN)

    def write(self, topic_partition: TopicPartition) -> bool:
        """A record is about to be written there; whether its batch can be sent at once."""
        self.require_open("send")
        if topic_partition in self._partitions:
            return True
        if self.adds_partitions:
            self._unknown.add(topic_partition)
            return False
        self._partitions.add(topic_partition)
        return True

    def added(self, partitions: Collection[TopicPartition]) -> None:
        """The coordinator knows of these partitions."""
        self._unknown.difference_update(partitions)
        self._partitions.update(partitions)

    def require_open(self, what: str) -> None:
        """Raise unless a transaction is open in which `what` can be done."""
        if self.status is not TransactionStatus.OPEN:
            self._require(TransactionStatus.OPEN, to=what)

    def offsets_sent(self) -> None:
        """Offsets of some group are, or may be, part of the transaction."""
        self._has_offsets = True

    def begin_commit(self) -> None:
        """Nothing more is written; to be committed."""
        if self.status is not TransactionStatus.COMMITTING:
            self._require(TransactionStatus.OPEN, to="commit")
        self._enter(TransactionStatus.COMMITTING)

    def begin_abort(self) -> None:
        """Nothing more is written; to be aborted."""
        if self.status not in (TransactionStatus.ABORTABLE, TransactionStatus.ABORTING):
            self._require(TransactionStatus.OPEN, to="abort")
        self._unknown.clear()
        self._enter(TransactionStatus.ABORTING)

    def ended(self, identity: ProducerIdentity | None, version: int) -> None:
        """The transaction is over; the next one is written under `identity`, where that is a new one."""
        if identity is not None:
            self.identity = identity
        self.version = version
        self.error = None
        self._partitions.clear()
        self._unknown.clear()
        self._has_offsets = False
        self._enter(TransactionStatus.READY)

    def failed(self, error: BrokerError, severity: Severity) -> None:
        """Something went wrong that repeating does not help. Between transactions only what is fatal counts,
        as there is nothing to abort; and while aborting.
        """
        if self.status is TransactionStatus.DEAD:
            return
        if severity is Severity.FATAL:
            self.error = _as_fatal(error)
            self._enter(TransactionStatus.DEAD)
        elif self.status in (TransactionStatus.OPEN, TransactionStatus.COMMITTING):
            self.error = error
            self._enter(TransactionStatus.ABORTABLE)

    def raise_error(self) -> None:
        """Raise what stands against the transaction, if anything does."""
        if self.status is TransactionStatus.DEAD:
            assert self.error is not None, "what is dead died of something"
            raise self.error
        if self.status is TransactionStatus.ABORTABLE:
            message = f"transaction of {self.transactional_id}: to be aborted, because of {self.error}"
            raise TransactionAbortableError(message) from self.error

    def _require(self, status: TransactionStatus, *, to: str) -> None:
        self.raise_error()
        if self.status is not status:
            message = f"{self.transactional_id}: cannot {to} while {self.status.value}"
            raise TransactionStateError(message)

    def _enter(self, status: TransactionStatus) -> None:
        assert status in TRANSITIONS[self.status], f"{self.transactional_id}: {self.status} -> {status}"
        self.status = status


def _as_fatal(error: BrokerError) -> BrokerError:
    if isinstance(error, ProtocolError) and error.code in _FENCED:
        return ProducerFencedError(error.message)
    return error
