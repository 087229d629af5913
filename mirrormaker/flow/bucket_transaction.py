"""The transactions of one bucket of an exactly-once route, one after the other: data of its partitions, and
how far it takes them. Pure.

The rules:
- Its owner holds an identity that fences every earlier one, and has read the positions since. So nobody else
  can move them while it can.
- Nothing is sent to a partition before the coordinator knows that it is part of the transaction.
- When it is to end (`commit_times`), nothing new is sent, and the positions that all that was sent leads to
  are written. It is committed once every batch sent is acknowledged or known not to be there, and the
  positions written are those reached: what readers see and where a new owner starts are the same always.
- What is written down of what arrived where (`BucketBooks`) is written when all is settled.
- What goes wrong in another way loses the bucket: whoever takes it over next, this process too, gets a new
  identity, which aborts what is open, and starts where the last commit left it.

Records that were not born at the source go under producer ids of their own, one for each path that they came
on (`provenance`), and so in transactions of their own, which open and end together with the bucket's. Each of
them writes, for the partitions that it has records of, the position that it takes their records to. They
are committed first, then the bucket's own (`HOME`), whose positions stand for records of every origin. So
what a crash in between leaves is known too: records of an origin are there up to its own position, where
that is further than the bucket's.

`next_step` says what to ask of the destination; one step is under way at a time, and ends with `done`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import le

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.books import BooksStanding, BucketBooks
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.commit_times import CommitTimes
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.progress import acknowledged, furthest, has_work, is_behind, is_settled, sent_to
from mirrormaker.flow.remedies import Remedy, remedy_for
from mirrormaker.flow.transaction_steps import (
    FENCED_CODES,
    HOME,
    LOSING_CODES,
    TRANSITIONS,
    AddPartitions,
    Commit,
    LanePositions,
    Phase,
    Places,
    Step,
    TransactionTerms,
    Write,
)


class BucketTransaction:
    """See the module; of one identity, from taking the bucket over to losing it or giving it up."""

    def __init__(
        self,
        key: ProducerKey,
        identity: ProducerIdentity,
        positions_at: TopicPartition,
        terms: TransactionTerms,
        now_ms: int,
        books: BucketBooks | None = None,
    ) -> None:
        """`positions_at`: where positions are written."""
        self.key = key
        self.phase = Phase.IDLE
        self.lost_because = ""
        self.lost_with: ErrorCode | None = None
        """What the destination said, where that is known."""
        self.is_fenced = False
        self.commits = 0
        self._identities = {HOME: identity}
        self._positions_at = positions_at
        self._books = books
        self._terms = terms
        self._partitions: dict[TopicPartition, Partition] = {}
        self._committed: dict[TopicPartition, LanePositions | None] = {}
        self._times = CommitTimes(terms, now_ms)
        self._is_hurried = False
        self._under_way: Step | None = None
        self._has_sent = False
        self._to_add: set[tuple[int, TopicPartition]] = set()
        self._added: set[tuple[int, TopicPartition]] = set()
        self._refused: set[tuple[int, TopicPartition]] = set()
        self._used: set[TopicPartition] = set()
        """Destinations that an identity was admitted to: their leaders know sequences of it."""
        self._passing: dict[int, set[TopicPartition]] = defaultdict(set)
        """By origin other than `HOME`, the sources of which something was sent in this transaction."""
        self._brought: dict[tuple[int, TopicPartition], dict[tuple[int, int], int]] = defaultdict(dict)
        """Of the same, the stretches of each chunk by its lane and first offset."""
        self._promised: dict[TopicPartition, LanePositions] = {}
        """To be committed: where all that was sent leads to."""
        self._written: dict[tuple[int, TopicPartition], LanePositions] = {}
        self._is_entered = False
        """The books say what the transaction does."""
        self._ended: frozenset[int] = frozenset()
        """Origins whose part of it is committed."""

    @property
    def sources(self) -> frozenset[TopicPartition]:
        """The partitions that are in it."""
        return frozenset(self._partitions)

    @property
    def is_lost(self) -> bool:
        """Whether nothing of it counts any more but what was committed."""
        return self.phase is Phase.LOST

    def identity(self, origin: int = HOME) -> ProducerIdentity | None:
        """Under which records of the origin go; None: it has to be taken over first."""
        return self._identities.get(origin)

    def take_origin(self, origin: int, identity: ProducerIdentity) -> None:
        """Records of the origin go under this identity, which fences every earlier one."""
        self._identities[origin] = identity

    def configure(self, terms: TransactionTerms) -> None:
        """End by other terms from the next transaction on."""
        self._terms = terms
        self._times.configure(terms)

    # ---- partitions come and go

    def has_used(self, destinations: Iterable[TopicPartition]) -> bool:
        """Whether batches under an identity of it were sent to one of these: then a lane that begins there
        anew, with the first sequence, needs another identity.
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
            source in self._promised or self._is_further(partition, sent_to(partition))
        ):
            self.lose(f"{source} was given up in the midst of a transaction")
        del self._partitions[source]
        del self._committed[source]

    def committed(self, source: TopicPartition) -> LanePositions | None:
        """The positions that are sure to be stored, None for none."""
        return self._committed.get(source)

    def hurry(self) -> None:
        """Commit as soon as possible."""
        self._is_hurried = True

    def has_stored(self, sources: Iterable[TopicPartition]) -> bool:
        """Whether all that was sent of these is committed, or will never be."""
        return self.phase is Phase.LOST or all(
            source not in self._promised and not self._is_further(partition, sent_to(partition))
            for source in sources
            if (partition := self._partitions.get(source)) is not None
        )

    def lose(self, reason: str, *, is_fenced: bool = False, code: ErrorCode | None = None) -> None:
        """What is open cannot be committed any more. `code`: of the destination, where that is why."""
        if self.phase is not Phase.LOST:
            self._enter(Phase.LOST)
            self.lost_because, self.is_fenced, self.lost_with = reason, is_fenced, code

    # ---- sending

    def admit(self, lane: Lane, chunk: Chunk) -> bool:
        """Whether the chunk may be sent now; where the coordinator must be told first, that is next. What a
        transaction has no room for waits for the next.
        """
        place = chunk.origin, lane.destination
        if place in self._added:
            if self.phase is Phase.OPEN and chunk.origin != HOME and not self._has_room(lane, chunk):
                self.hurry()
                return False
            if self.phase is Phase.OPEN or (self.phase is Phase.CLOSING and self._is_promised(lane, chunk)):
                self._has_sent = True
                self._used.add(lane.destination)
                if chunk.origin != HOME:
                    self._passing[chunk.origin].add(lane.partition.source)
                return True
        elif self.phase is Phase.IDLE:
            if not self._awaits_books:
                self._open()
        elif self.phase is Phase.OPEN and place not in self._refused:
            self._want(place)
        return False

    def _has_room(self, lane: Lane, chunk: Chunk) -> bool:
        """Whether the record of positions can tell of the chunk's stretches too. One alone always goes."""
        brought = self._brought[chunk.origin, lane.partition.source]
        at, stretches = (lane.index, chunk.first_offset), max(len(chunk.runs), 1)
        others = sum(brought.values()) - brought.get(at, 0)
        if others and others + stretches > self._terms.passing_runs_max:
            return False
        brought[at] = stretches
        return True

    def _want(self, place: tuple[int, TopicPartition]) -> None:
        self._to_add |= {place, (place[0], self._positions_at)} - self._added

    def _is_promised(self, lane: Lane, chunk: Chunk) -> bool:
        """Whether it is a repeat of what the positions to be committed speak of."""
        promised = self._promised.get(lane.partition.source)
        return promised is not None and chunk.base_sequence >= 0 and chunk.first_offset < promised[lane.index]

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """What is done about a refused chunk: only what repeats the same, or is not at the destination, can
        go on in the same transaction. Else all is lost.
        """
        remedy = remedy_for(code, several_batches=chunk.batches > 1, failures=lane.attempts)
        is_written = any(each.maybe_written for each in lane.queue)
        if (
            code in LOSING_CODES
            or remedy is Remedy.NEW_PRODUCER
            or (remedy is not Remedy.REPEAT and is_written)
        ):
            self.lose(f"{lane.destination}: {code.name}", is_fenced=code in FENCED_CODES)
            return Remedy.REPEAT
        return remedy

    @property
    def _awaits_books(self) -> bool:
        return self._books is not None and self._books.standing is BooksStanding.AWAITED

    @property
    def _keeps_books(self) -> bool:
        return self._books is not None and self._books.standing is BooksStanding.KEPT

    @property
    def _owes_books(self) -> bool:
        """Whether what was committed without them can be written now."""
        return self._books is not None and self._keeps_books and self._books.is_due(self._partitions)

    def _open(self) -> None:
        """Begin a transaction with all partitions that have something to send."""
        self._enter(Phase.OPEN)
        self._to_add = {(HOME, self._positions_at)}
        if self._books is not None and self._keeps_books:
            self._to_add.add((HOME, self._books.at))
        for lane in self._lanes():
            place = (lane.queue[0].origin, lane.destination) if has_work(lane) else None
            if place is not None and place not in self._refused:
                self._want(place)

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
                return self._times.due_ms
            case Phase.CLOSING:
                return self._times.closing_since_ms + self._terms.settle_ms
            case _:
                return None

    def done(self, now_ms: int, refused: Places = frozenset()) -> None:
        """The step under way has been taken, but for partitions that the coordinator refused: nothing is sent
        there in this transaction.
        """
        step, self._under_way = self._under_way, None
        match step:
            case AddPartitions(places=places):
                self._to_add -= places
                self._added |= places - refused
                self._refused |= refused
                if not self._has_sent:
                    self._times.opened(now_ms)
            case Write(positions=written, entries=entries):
                for origin, positions in written.items():
                    self._written |= {(origin, source): at for source, at in positions.items()}
                self._is_entered |= bool(entries)
            case Commit(origins=origins) if self.phase is Phase.COMMITTING:
                self._ended |= origins
                if HOME in origins:
                    self._finish(now_ms)

    def _decide(self, now_ms: int) -> Step | None:
        is_due = self._is_hurried or now_ms >= self._times.due_ms
        if self.phase is Phase.OPEN and is_due and not self._is_hurried:
            is_opening = self._to_add and not self._has_sent
            is_due = not is_opening and not self._puts_off(now_ms)
        if self.phase is Phase.IDLE and is_due:
            if self._awaits_books or not (self._moved(acknowledged) or self._owes_books):
                self._is_hurried = False
                self._times.rest(now_ms)
                return None
            self._open()
        if self.phase is Phase.OPEN and is_due:
            self._enter(Phase.CLOSING)
            self._times.closing(now_ms)
            self._promised = self._moved(sent_to)
        if self._to_add and self.phase in (Phase.OPEN, Phase.CLOSING):
            if not self._added:
                self._times.asked(now_ms)
            return AddPartitions(places=frozenset(self._to_add))
        match self.phase:
            case Phase.CLOSING:
                return self._close(now_ms)
            case Phase.COMMITTING:
                return self._end()
            case _:
                return None

    def _close(self, now_ms: int) -> Step | None:
        """The next step toward the commit."""
        is_all_settled = all(is_settled(lane) for lane in self._lanes())
        if is_all_settled and self._lose_former_log():
            return None
        if is_all_settled and not self._is_reached():
            self._promised = self._promise_again()
        positions = self._unwritten(is_all_settled)
        entries = self._unwritten_entries() if is_all_settled else ()
        if positions or entries:
            return Write(positions=positions, entries=entries)
        if is_all_settled:
            self._enter(Phase.COMMITTING)
            return self._end()
        if now_ms - self._times.closing_since_ms >= self._terms.settle_ms:
            self.lose(f"batches were not settled within {self._terms.settle_ms} ms")
        return None

    def _lose_former_log(self) -> bool:
        """A topic that was made anew amid the transaction has only what came last: none of that is to be
        seen, and all is sent once more. Whether it is so.
        """
        anew = next((lane.destination for lane in self._lanes() if lane.logs_begun), None)
        if anew is not None:
            self.lose(f"{anew}: its log is another one than when the transaction began")
        return anew is not None

    def _unwritten(self, is_all_settled: bool) -> dict[int, dict[TopicPartition, LanePositions]]:
        """Positions of the promise that are not written; those of origins that pass once all is settled:
        along with them goes what has arrived of theirs.
        """
        missing: dict[int, dict[TopicPartition, LanePositions]] = defaultdict(dict)
        for source, positions in self._promised.items():
            origins = [HOME]
            if is_all_settled:
                origins += (origin for origin, sources in self._passing.items() if source in sources)
            for origin in origins:
                at = furthest(positions, self._partitions[source].origin_floors.get(origin, ()))
                if self._written.get((origin, source)) != at:
                    missing[origin][source] = at
        return dict(missing)

    def _unwritten_entries(self) -> tuple[Entry, ...]:
        books = self._books
        if self._is_entered or books is None or (HOME, books.at) not in self._added:
            return ()
        known = {
            source: at for source, at in self._committed.items() if at is not None and self._has(source, at)
        }  # but for those whose source lost the end of its log since
        return books.due(known | self._promised)

    def _end(self) -> Commit:
        """Of what is not ended yet, what is to end now: the bucket's own after all others."""
        others = frozenset(origin for origin, _ in self._added) - {HOME} - self._ended
        return Commit(origins=others or frozenset({HOME}))

    def _is_reached(self) -> bool:
        """Whether the destination has all that the promise speaks of. It may say more by now: offsets that
        hold no records.
        """
        return all(self._has(source, positions) for source, positions in self._promised.items())

    def _has(self, source: TopicPartition, positions: LanePositions) -> bool:
        return all(map(le, positions, acknowledged(self._partitions[source])))

    def _promise_again(self) -> dict[TopicPartition, LanePositions]:
        """What has been reached, also where more was promised and it has been written so."""
        return {
            source: acknowledged(partition)
            for source, partition in self._partitions.items()
            if source in self._promised or self._is_further(partition, acknowledged(partition))
        }

    def _moved(self, position: Callable[[Partition], LanePositions]) -> dict[TopicPartition, LanePositions]:
        """Partitions that are further than what is stored."""
        return {
            source: moved
            for source, partition in self._partitions.items()
            if self._is_further(partition, moved := position(partition))
        }

    def _is_further(self, partition: Partition, at: LanePositions) -> bool:
        """Whether something else is stored of it. Where nothing is, nothing will be of a topic that was made
        anew before copying goes on with it: with a position it would be the one that was copied.
        """
        stored = self._committed[partition.source]
        return at != stored and not (stored is None and partition.waits_to_begin)

    def _puts_off(self, now_ms: int) -> bool:
        return any(map(is_behind, self._lanes())) and self._times.put_off(now_ms)

    def _lanes(self) -> Iterator[Lane]:
        for partition in self._partitions.values():
            yield from partition.lanes

    def _finish(self, now_ms: int) -> None:
        """It is committed."""
        self.commits += 1
        self._committed.update(self._promised)
        if self._books is not None and (HOME, self._books.at) in self._added:
            self._books.settled()
        self._is_entered, self._ended = False, frozenset()
        self._passing.clear()
        self._brought.clear()
        self._promised.clear()
        self._written.clear()
        self._added.clear()
        self._refused.clear()
        self._has_sent = self._is_hurried = False
        self._enter(Phase.IDLE)
        self._times.committed(now_ms)

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"{self.key}: {self.phase} -> {phase}"
        self.phase = phase
