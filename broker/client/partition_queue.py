"""The batches of one partition on their way to its leader: their order, their sequence numbers, and what a
failure means.

Rules:
- Batches are sent in order, and none further than a window ahead of the oldest one unanswered: a leader
  remembers no more, so that it could not tell whether it wrote the oldest. Once one fails, nothing more is
  sent until all that are in flight are answered (draining); what is to be sent again then goes first, in its
  old order.
- A partition on which an identity has nothing acknowledged yet, or which just met an error, sends a single
  batch until that is acknowledged: a leader that knows nothing of a producer takes any first number, and
  would take a later batch before a failed earlier one.
- Under an identity batches are numbered without gaps, when first sent. A batch that is sent again keeps its
  number, so that a leader which wrote it already only says so. Without an identity the window is one batch:
  order needs no numbers.
- A batch that was refused for good was not written: those behind it move up in the sequence.
- A batch that is given up although it may have been written breaks the sequence, as does a leader that has
  forgotten it. Then the rest goes on under a new identity, numbered from 0, except batches that may have been
  written: sending them under another identity could double them, so they are given up too.

Pure but for the futures of its batches.
"""

from __future__ import annotations

from collections import deque

from broker.client.backoff import is_retriable
from broker.client.producer_batch import NO_SEQUENCE, ProducerBatch
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.client.producer_settings import NO_BOUND
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.records.batch import next_sequence
from broker.types import TopicPartition

_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Refusals for lack of the batch before it, or of anything about the producer: not written."""
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The last two tell of a leader that leads no more, perhaps only since it waits for replicas: the next one
may have the batch.
"""


class PartitionQueue:
    """What waits for one partition, and what is in flight to it."""

    __slots__ = (
        "_broken",
        "_failed",
        "_next_ordinal",
        "_next_sequence",
        "_proven",
        "_refused_from",
        "_retries",
        "_window",
        "enlisted",
        "held",
        "identity",
        "in_flight",
        "left_identity",
        "node_id",
        "resting",
        "topic_partition",
        "waiting",
    )

    def __init__(self, topic_partition: TopicPartition, *, window: int, retries: int = NO_BOUND) -> None:
        """`window` batches are in flight at most, and each is sent again `retries` times at most."""
        self.topic_partition = topic_partition
        self.waiting: deque[ProducerBatch] = deque()
        """Not in flight, in order; only the last one may be open."""
        self.in_flight: list[ProducerBatch] = []
        self.node_id = -1
        """Where those in flight were sent."""
        self.identity = NO_IDENTITY
        self.left_identity = NO_IDENTITY
        """The identity whose sequence broke here: it is of no use to this partition any more."""
        self.resting = False
        """Set and cleared by the owner: between a failure and the next attempt."""
        self.held = False
        """Set and cleared by the owner: the partition is not part of the open transaction yet."""
        self.enlisted = False
        """Set and cleared by the owner: it is listed for sending."""
        self._window = window
        self._retries = retries
        self._failed: list[ProducerBatch] = []
        """Answered with an error while others are in flight; to be sent again, or given up, after those."""
        self._next_sequence = 0
        self._next_ordinal = 0
        self._refused_from: int | None = None
        """Sequence number of a batch that was refused for good: the next one takes it."""
        self._broken = False
        self._proven = False
        """Whether the leader answered for a batch of this identity, and for none with an error since."""

    @property
    def is_draining(self) -> bool:
        """Whether nothing is sent before everything in flight is answered."""
        return bool(self._failed) or self._broken or self._refused_from is not None

    def sendable(self, *, hurry: bool) -> bool:
        """Whether a batch may be sent now; in a `hurry` one that could still grow is sent too."""
        if (
            not self.waiting
            or self.resting
            or self.held
            or self.is_draining
            or not self._is_within_window(self.waiting[0])
        ):
            return False
        return hurry or self.waiting[0].due or len(self.waiting) > 1

    def _is_within_window(self, batch: ProducerBatch) -> bool:
        if not self.in_flight:
            return True
        if not self._proven:
            return False
        ordinal = batch.ordinal if batch.is_sequenced else self._next_ordinal
        return len(self.in_flight) < self._window and ordinal - self.in_flight[0].ordinal < self._window

    def take(self, identity: ProducerIdentity, node_id: int) -> ProducerBatch:
        """The next batch to send, closed and numbered; it is in flight from now on.

        `identity` is taken up, numbering from 0, as soon as no batch has its place in the sequence of
        another.
        """
        batch = self.waiting.popleft()
        batch.close()
        batch.attempts += 1
        if identity is not NO_IDENTITY and not batch.is_sequenced:
            if self.identity != identity and not self._has_sequenced():
                self._take_up(identity)
            batch.stamp(self.identity, self._next_sequence)
            self._next_sequence = next_sequence(self._next_sequence, batch.count)
            batch.ordinal = self._next_ordinal
            self._next_ordinal += 1
        self.in_flight.append(batch)
        self.node_id = node_id
        return batch

    def _take_up(self, identity: ProducerIdentity) -> None:
        """Number from 0 under an identity. Its leader knows a producer by its id, whatever the epoch."""
        self._proven &= identity.producer_id == self.identity.producer_id
        self.identity, self._next_sequence = identity, 0

    def settle(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """A batch in flight is written."""
        self.in_flight.remove(batch)
        batch.succeed(base_offset, log_append_time_ms)
        self._proven = not self.is_draining
        self._end_drain()

    def fail(self, batch: ProducerBatch, error: BrokerError) -> None:
        """A batch in flight failed: it will be sent again where that may help, else it is given up."""
        earlier = batch is not self.in_flight[0] or self.is_draining
        self.in_flight.remove(batch)
        self._proven = False
        code = error.code if isinstance(error, ProtocolError) else None
        maybe_written = code in _MAYBE_WRITTEN or isinstance(
            error, ConnectionFailedError | RequestTimedOutError
        )
        batch.outcome_unknown |= maybe_written
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.succeed(-1)
        elif code in _SEQUENCE_LOST and batch.is_sequenced:
            self._broken |= not earlier
            self._failed.append(batch)
        elif is_retriable(error) and batch.attempts <= self._retries:
            self._failed.append(batch)
        else:
            self._give_up(batch, error)
        self._end_drain()

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch in flight was refused for its size: its parts are sent in its place."""
        self.in_flight.remove(batch)
        self._failed += parts
        self._end_drain()

    def expire(self, created_before: float, error: BrokerError) -> None:
        """Give up what waits since before then. What is in flight has its answer coming."""
        while self.waiting and self.waiting[0].created_at < created_before:
            self._give_up(self.waiting.popleft(), error)
        self._end_drain()

    def give_up_all(self, error: BrokerError) -> None:
        """Give up everything, in flight or not."""
        for batch in [*self.in_flight, *self._failed, *self.waiting]:
            batch.fail(error)
        self.in_flight.clear()
        self._failed.clear()
        self.waiting.clear()

    def give_up_waiting(self, error: BrokerError) -> None:
        """Give up everything that is not in flight: what is numbered anew after this, is so under another
        identity.
        """
        for batch in [*self._failed, *self.waiting]:
            batch.fail(error)
        self._failed.clear()
        self.waiting.clear()
        self._end_drain()

    @property
    def batches(self) -> list[ProducerBatch]:
        """Everything that is not settled."""
        return [*self.in_flight, *self._failed, *self.waiting]

    def _give_up(self, batch: ProducerBatch, error: BrokerError) -> None:
        if batch.is_sequenced:
            if batch.outcome_unknown:
                self._broken = True
            elif self._refused_from is None or self._place(batch.base_sequence) < self._place(
                self._refused_from
            ):
                self._refused_from = batch.base_sequence
        batch.fail(error)

    def _end_drain(self) -> None:
        """Once nothing is in flight, put what failed back in line, and the sequence in order."""
        if self.in_flight or not self.is_draining:
            return
        self._failed.sort(key=lambda batch: self._place(batch.base_sequence))
        self.waiting.extendleft(reversed(self._failed))
        self._failed.clear()
        refused_from, self._refused_from = self._refused_from, None
        behind = [] if refused_from is None else self._sequenced_behind(refused_from)
        if self._broken or any(batch.outcome_unknown for batch in behind):
            self._leave_identity()
        elif refused_from is not None:
            for batch in behind:
                batch.unsequence()
            self._next_sequence = refused_from
        self._broken = False

    def _leave_identity(self) -> None:
        """The sequence is broken: number the rest anew, under another identity.

        Gives up what may have been written.
        """
        kept: list[ProducerBatch] = []
        for batch in self.waiting:
            if batch.outcome_unknown:
                message = (
                    f"{self.topic_partition}: a batch before this one was lost, and this one may be written"
                )
                batch.fail(ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message))
            else:
                batch.unsequence()
                kept.append(batch)
        self.waiting = deque(kept)
        self.left_identity, self.identity = self.identity, NO_IDENTITY

    def _sequenced_behind(self, sequence: int) -> list[ProducerBatch]:
        place = self._place(sequence)
        return [
            batch for batch in self.waiting if batch.is_sequenced and self._place(batch.base_sequence) > place
        ]

    def _place(self, sequence: int) -> int:
        """How far a number is from the next one, negative: an order that survives the wrap of sequence
        numbers.
        """
        return 0 if sequence == NO_SEQUENCE else -next_sequence(self._next_sequence, -sequence)

    def _has_sequenced(self) -> bool:
        return any(batch.is_sequenced for batch in (*self.in_flight, *self.waiting))
