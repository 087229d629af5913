"""The transactions of one bucket of an exactly-once route, one after the other: data of its partitions, and
how far it takes them. Pure.

The rules:
- Its owner holds an identity that fences every earlier one, and has read the positions since. So nobody else
  can move them while it can.
- Nothing is sent to a partition before the coordinator knows that it is part of the transaction.
- When it is to end, nothing new is sent, and the positions that all that was sent leads to are written. It
  is committed once every batch sent is acknowledged or known not to be there, and the positions written are
  those reached: what readers see and where a new owner starts are the same always.
- What goes wrong in another way loses the bucket: whoever takes it over next, this process too, gets a new
  identity, which aborts what is open, and starts where the last commit left it.

`next_step` says what to ask of the destination; one step is under way at a time, and ends with `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.remedies import Remedy, remedy_for

LanePositions = tuple[int, ...]
"""Where each lane of a partition goes on."""


class Phase(Enum):
    """Where a bucket's transaction stands."""

    IDLE = "idle"
    """Nothing is open; nothing has been sent since the last commit."""
    OPEN = "open"
    CLOSING = "closing"
    """Nothing new is sent; positions are written, answers awaited."""
    COMMITTING = "committing"
    """The coordinator has been asked."""
    LOST = "lost"
    """Nothing of it counts any more but what was committed."""


TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset({Phase.OPEN, Phase.LOST}),
    Phase.OPEN: frozenset({Phase.CLOSING, Phase.LOST}),
    Phase.CLOSING: frozenset({Phase.COMMITTING, Phase.LOST}),
    Phase.COMMITTING: frozenset({Phase.IDLE, Phase.LOST}),
    Phase.LOST: frozenset(),
}


FENCED_CODES = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""There is a newer identity of the bucket."""
_LOSING_CODES = FENCED_CODES | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTerms:
    """When transactions end."""

    interval_ms: int
    """Between commits."""
    phase_ms: int = 0
    """Commits are due so long after multiples of the interval: buckets take turns."""
    bytes_max: int = 64 << 20
    """Ends earlier once so much has been sent in it."""
    settle_ms: int = 10_000
    """A batch of which it is unknown whether it was written loses the bucket after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Tell the coordinator that these are part of the transaction."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePositions:
    """Write these positions, by source, as part of the transaction."""

    positions: Mapping[TopicPartition, LanePositions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """End the transaction."""


Step = AddPartitions | WritePositions | Commit


class BucketTransaction:
    """See the module; of one identity, from taking the bucket over to losing it or giving it up."""

    def __init__(
        self,
        key: ProducerKey,
        identity: ProducerIdentity,
        positions_at: TopicPartition,
        terms: TransactionTerms,
        now_ms: int,
    ) -> None:
        """`positions_at`: where positions are written."""
        self.key = key
        self.identity = identity
        self.phase = Phase.IDLE
        self.lost_because = ""
        self.is_fenced = False
        self.commits = 0
        self._positions_at = positions_at
        self._terms = terms
        self._partitions: dict[TopicPartition, Partition] = {}
        self._committed: dict[TopicPartition, LanePositions | None] = {}
        self._due_ms = self._next_due_ms(now_ms)
        self._closing_since_ms = 0
        self._is_hurried = False
        self._under_way: Step | None = None
        self._bytes = 0
        self._to_add: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._refused: set[TopicPartition] = set()
        self._used: set[TopicPartition] = set()
        """Destinations that the identity was admitted to: their leaders know sequences of it."""
        self._promised: dict[TopicPartition, LanePositions] = {}
        """To be committed: where all that was sent leads to."""
        self._written: dict[TopicPartition, LanePositions] = {}

    @property
    def sources(self) -> frozenset[TopicPartition]:
        """The partitions that are in it."""
        return frozenset(self._partitions)

    @property
    def is_lost(self) -> bool:
        """Whether nothing of it counts any more but what was committed."""
        return self.phase is Phase.LOST

    def configure(self, terms: TransactionTerms) -> None:
        """End by other terms from the next transaction on."""
        self._terms = terms

    # ---- partitions come and go

    def has_used(self, destinations: Iterable[TopicPartition]) -> bool:
        """Whether batches under this identity were sent to one of these: then a lane that begins there anew,
        with the first sequence, needs another identity.
        """
        return any(destination in self._used for destination in destinations)

    def join(self, partition: Partition, stored: LanePositions | None) -> None:
        """A partition is copied from where it stands; `stored` are its positions at the destination."""
        self._partitions[partition.source] = partition
        self._committed[partition.source] = stored

    def leave(self, source: TopicPartition) -> None:
        """A partition is not copied any more; to be told before the machine forgets it. Unless what was sent
        of it is committed, all is lost.
        """
        partition = self._partitions.get(source)
        if partition is None:
            return
        if self.phase is not Phase.IDLE and (
            source in self._promised or _sent_to(partition) != self._committed[source]
        ):
            self.lose(f"{source} was given up in the midst of a transaction")
        del self._partitions[source]
        del self._committed[source]

    def committed(self, source: TopicPartition) -> int | None:
        """The position that is sure to be stored, None for none."""
        stored = self._committed.get(source)
        return None if stored is None else min(stored)

    def hurry(self) -> None:
        """Commit as soon as possible."""
        self._is_hurried = True

    def has_stored(self, sources: Iterable[TopicPartition]) -> bool:
        """Whether all that was sent of these is committed, or will never be."""
        return self.phase is Phase.LOST or all(
            source not in self._promised and _sent_to(self._partitions[source]) == self._committed[source]
            for source in sources
            if source in self._partitions
        )

    def lose(self, reason: str, *, is_fenced: bool = False) -> None:
        """What is open cannot be committed any more."""
        if self.phase is not Phase.LOST:
            self._enter(Phase.LOST)
            self.lost_because, self.is_fenced = reason, is_fenced

    # ---- sending

    def admit(self, lane: Lane, chunk: Chunk) -> bool:
        """Whether the chunk may be sent now; where the coordinator must be told first, that is next."""
        if lane.destination in self._added:
            if self.phase is Phase.OPEN or (self.phase is Phase.CLOSING and self._is_promised(lane, chunk)):
                self._bytes += chunk.size
                self._used.add(lane.destination)
                return True
        elif self.phase is Phase.IDLE:
            self._open()
        elif self.phase is Phase.OPEN and lane.destination not in self._refused:
            self._to_add.add(lane.destination)
        return False

    def _is_promised(self, lane: Lane, chunk: Chunk) -> bool:
        """Whether it is a repeat of what the positions to be committed speak of."""
        promised = self._promised.get(lane.partition.source)
        return promised is not None and chunk.base_sequence >= 0 and chunk.first_offset < promised[lane.index]

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """What is done about a refused chunk: only what repeats the same, or is not at the destination, can
        go on in the same transaction. Else all is lost.
        """
        remedy = remedy_for(code, several_batches=len(chunk.batches) > 1)
        is_written = any(each.maybe_written for each in lane.queue)
        if (
            code in _LOSING_CODES
            or remedy is Remedy.NEW_PRODUCER
            or (remedy is not Remedy.REPEAT and is_written)
        ):
            self.lose(f"{lane.destination}: {code.name}", is_fenced=code in FENCED_CODES)
            return Remedy.REPEAT
        return remedy

    def _open(self) -> None:
        """Begin a transaction with all partitions that have something to send."""
        self._enter(Phase.OPEN)
        self._to_add = {lane.destination for lane in self._lanes() if _has_work(lane)} - self._refused
        self._to_add.add(self._positions_at)

    # ---- steps

    def next_step(self, now_ms: int) -> Step | None:
        """What to ask of the destination now; it counts as under way until `done`."""
        if self._under_way is None:
            self._under_way = self._decide(now_ms)
            return self._under_way
        return None

    def wake_at_ms(self) -> int | None:
        """When `next_step` may have something though nothing happens."""
        match self.phase:
            case Phase.IDLE | Phase.OPEN:
                return self._due_ms
            case Phase.CLOSING:
                return self._closing_since_ms + self._terms.settle_ms
            case _:
                return None

    def done(self, now_ms: int, refused: frozenset[TopicPartition] = frozenset()) -> None:
        """The step under way has been taken, but for partitions that the coordinator refused: nothing is sent
        there in this transaction.
        """
        step, self._under_way = self._under_way, None
        match step:
            case AddPartitions(partitions=partitions):
                self._to_add -= partitions
                self._added |= partitions - refused
                self._refused |= refused
                if not self._bytes:  # it took long: what it was opened for gets its time
                    self._due_ms = max(self._due_ms, now_ms + self._terms.interval_ms // 2)
            case WritePositions(positions=positions):
                self._written.update(positions)
            case Commit() if self.phase is Phase.COMMITTING:
                self._finish(now_ms)

    def _decide(self, now_ms: int) -> Step | None:
        is_due = self._is_hurried or now_ms >= self._due_ms or self._bytes >= self._terms.bytes_max
        if self.phase is Phase.OPEN and self._to_add and not self._bytes and not self._is_hurried:
            is_due = False
        if self.phase is Phase.IDLE and is_due:
            if not self._moved(_acknowledged):
                self._rest(now_ms)
                return None
            self._open()
        if self.phase is Phase.OPEN and is_due:
            self._enter(Phase.CLOSING)
            self._closing_since_ms = now_ms
            self._promised = self._moved(_sent_to)
        if self._to_add and self.phase in (Phase.OPEN, Phase.CLOSING):
            return AddPartitions(partitions=frozenset(self._to_add))
        return self._close(now_ms) if self.phase is Phase.CLOSING else None

    def _close(self, now_ms: int) -> Step | None:
        """The next step toward the commit."""
        is_settled = all(_is_settled(lane) for lane in self._lanes())
        if is_settled and not self._is_reached():
            self._promised = self._promise_again()
        missing = {
            source: positions
            for source, positions in self._promised.items()
            if self._written.get(source) != positions
        }
        if missing:
            return WritePositions(positions=missing)
        if is_settled:
            self._enter(Phase.COMMITTING)
            return Commit()
        if now_ms - self._closing_since_ms >= self._terms.settle_ms:
            self.lose(f"batches were not settled within {self._terms.settle_ms} ms")
        return None

    def _is_reached(self) -> bool:
        """Whether the destination has all that the promise speaks of. It may say more by now: offsets that
        hold no records.
        """
        return all(
            lane.acknowledged >= promised
            for source, positions in self._promised.items()
            for lane, promised in zip(self._partitions[source].lanes, positions, strict=True)
        )

    def _promise_again(self) -> dict[TopicPartition, LanePositions]:
        """What has been reached, also where more was promised and it has been written so."""
        return {
            source: _acknowledged(partition)
            for source, partition in self._partitions.items()
            if source in self._promised or _acknowledged(partition) != self._committed[source]
        }

    def _moved(self, position: Callable[[Partition], LanePositions]) -> dict[TopicPartition, LanePositions]:
        """Partitions that are further than what is stored."""
        return {
            source: moved
            for source, partition in self._partitions.items()
            if (moved := position(partition)) != self._committed[source]
        }

    def _lanes(self) -> Iterator[Lane]:
        for partition in self._partitions.values():
            yield from partition.lanes

    def _finish(self, now_ms: int) -> None:
        """It is committed."""
        self.commits += 1
        self._committed.update(self._promised)
        self._promised.clear()
        self._written.clear()
        self._added.clear()
        self._refused.clear()
        self._bytes = 0
        self._enter(Phase.IDLE)
        self._rest(now_ms)

    def _rest(self, now_ms: int) -> None:
        """Nothing is to be committed before the next turn."""
        self._is_hurried = False
        self._due_ms = self._next_due_ms(now_ms)

    def _next_due_ms(self, now_ms: int) -> int:
        interval_ms, phase_ms = self._terms.interval_ms, self._terms.phase_ms
        return ((now_ms - phase_ms) // interval_ms + 1) * interval_ms + phase_ms

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"{self.key}: {self.phase} -> {phase}"
        self.phase = phase


def _has_work(lane: Lane) -> bool:
    return bool(lane.queue) and lane.leader is not None and lane.state is not LaneState.STOPPING


def _sent(lane: Lane) -> Iterator[Chunk]:
    """What was sent and is not acknowledged together with all before it."""
    return takewhile(lambda chunk: chunk.base_sequence >= 0, lane.queue)


def _sent_to(partition: Partition) -> LanePositions:
    """Where all that was sent leads to."""
    return tuple(
        max((chunk.next_offset for chunk in _sent(lane)), default=lane.acknowledged)
        for lane in partition.lanes
    )


def _acknowledged(partition: Partition) -> LanePositions:
    return tuple(lane.acknowledged for lane in partition.lanes)


def _is_settled(lane: Lane) -> bool:
    """Whether all that the destination has of it, and nothing else, is before its acknowledged position."""
    return not lane.in_flight and not any(chunk.maybe_written for chunk in _sent(lane))
