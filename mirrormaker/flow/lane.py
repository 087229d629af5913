"""A source partition's way to one destination partition: its queue of chunks, what is in flight, and what an
error does to it. Pure.

Rules that keep order and lose nothing:
- Chunks are sent in order, each in a request of its own, all to one broker. From the first that is not
  acknowledged to the last that is sent there are at most `BATCHES_REMEMBERED`, acknowledged ones in between
  included: so that whichever must be repeated, the broker still remembers it.
- While chunks of one producer id are in flight, none of another is sent: brokers keep order only within one.
- A fresh producer id, and one that just met an error, sends a single chunk until that is acknowledged: a
  broker that knows nothing of a producer takes any first sequence, and would take a later chunk before a
  failed earlier one.
- After the first error nothing new is sent until every chunk in flight is answered (SETTLING). Then the first
  chunk that is not acknowledged decides what happens: every earlier one is safe, so its error is not the echo
  of another.
- A repeat carries the same sequence. A new producer id, and with it sequences from 0, is taken only with
  nothing in flight.
- `acknowledged` is the end of the contiguous prefix of acknowledged chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.producers import LaneProducer, ProducerIdentity, ProducerKey, ProducerProblem

if TYPE_CHECKING:
    from mirrormaker.flow.partition import Partition

BATCHES_REMEMBERED = 5
"""A broker deduplicates against so many last batches of a producer: more could not be repeated safely."""

PIECES_LOOKED_AT = 64
"""So many chunks that wait are looked at to tell whether they came in pieces."""
FAILURES_BEFORE_SHEDDING = 3
"""A lane that failed so often in a row gives its buffer back, and takes only a little at a time."""


class LaneState(Enum):
    """What a lane is doing; the later ones weigh more when a partition has several."""

    COPYING = "copying"
    SETTLING = "settling"
    """An error came; nothing new is sent until all in flight is answered."""
    AWAITING_PRODUCER = "awaiting_producer"
    """Nothing in flight; sends again once there is a producer id for the next chunk."""
    WAITING = "waiting"
    """Nothing in flight; repeats after a pause that grows with every failure."""
    PAUSED = "paused"
    """The destination refuses the records; nothing is fetched or sent until the next attempt, long after."""
    STOPPING = "stopping"
    """About to be given away: answers are taken, nothing is sent."""


TRANSITIONS: Mapping[LaneState, frozenset[LaneState]] = {
    LaneState.AWAITING_PRODUCER: frozenset({LaneState.COPYING, LaneState.STOPPING, LaneState.PAUSED}),
    LaneState.COPYING: frozenset(
        {LaneState.SETTLING, LaneState.AWAITING_PRODUCER, LaneState.STOPPING, LaneState.PAUSED}
    ),
    LaneState.SETTLING: frozenset(
        {LaneState.COPYING, LaneState.WAITING, LaneState.PAUSED, LaneState.STOPPING}
    ),
    LaneState.WAITING: frozenset(
        {LaneState.COPYING, LaneState.AWAITING_PRODUCER, LaneState.STOPPING, LaneState.PAUSED}
    ),
    LaneState.PAUSED: frozenset({LaneState.AWAITING_PRODUCER, LaneState.COPYING, LaneState.STOPPING}),
    LaneState.STOPPING: frozenset(),
}

_FETCHING_STATES = frozenset({LaneState.COPYING, LaneState.SETTLING})
_SENDING_STATES = frozenset({LaneState.AWAITING_PRODUCER, *_FETCHING_STATES})


class Lane:
    """The machine's record of one lane; only the machine changes it."""

    __slots__ = (
        "acknowledged",
        "attempts",
        "awaits",
        "broker",
        "committed",
        "destination",
        "error",
        "in_flight",
        "index",
        "leader",
        "logs_begun",
        "partition",
        "position",
        "producer",
        "producer_problem",
        "producers",
        "queue",
        "queued",
        "retry_at_ms",
        "said",
        "sent",
        "state",
        "written_at",
    )

    def __init__(self, partition: Partition, index: int, destination: TopicPartition, position: int) -> None:
        """`index`: its place among the lanes of the partition, which chunks name."""
        self.partition = partition
        self.index = index
        self.destination = destination
        self.state = LaneState.AWAITING_PRODUCER
        self.queue: deque[Chunk] = deque()
        """Not acknowledged, in order; the first `sent` of them have been sent, since the last failure."""
        self.sent = 0
        self.in_flight = 0
        self.position = position
        """The source offset up to which everything is in the queue, at the destination, or not for it."""
        self.acknowledged = position
        """The source offset up to which the destination has everything that is for it."""
        self.written_at = -1
        """The offset of the destination where the last of that begins, as far as it tells."""
        self.logs_begun = 0
        """How often that was before the one before: in another log, as of a topic that was made anew."""
        self.committed = position
        """At most once: the source offset before which it sends nothing after a crash, as that is stored."""
        self.producers: dict[int, LaneProducer] = {}
        """By origin."""
        self.producer: LaneProducer | None = None
        """The one that sent last."""
        self.awaits: ProducerKey | None = None
        """The identity without which it cannot go on."""
        self.producer_problem: ProducerProblem | None = None
        """What keeps that from being there."""
        self.leader: BrokerId | None = None
        """Of the destination partition, as far as known."""
        self.broker: BrokerId | None = None
        """Where what is in flight went."""
        self.queued = False
        """Whether it stands in its broker's line of those that have something to send."""
        self.error: ErrorCode | None = None
        self.said: str | None = None
        """What the destination said along with it, for people."""
        self.attempts = 0
        """Failures since the last success."""
        self.retry_at_ms = 0

    def enter(self, state: LaneState) -> None:
        """Change state, by the table."""
        assert state in TRANSITIONS[self.state], f"{self.destination}: {self.state} -> {state}"
        self.state = state

    @property
    def has_enough(self) -> bool:
        """Whether a window's worth of chunks waits to be sent: what comes later may become fewer, bigger."""
        return len(self.queue) - self.sent >= BATCHES_REMEMBERED

    @property
    def waits_in_pieces(self) -> bool:
        """Whether a window's worth of answers waits to be sent, each with little: what comes later may come
        in fewer, bigger ones.
        """
        if not self.has_enough:
            return False
        waiting = islice(self.queue, self.sent, self.sent + PIECES_LOOKED_AT)
        return len({id(chunk.frame) for chunk in waiting}) >= BATCHES_REMEMBERED

    @property
    def refused_with(self) -> ErrorCode | None:
        """What the destination last said, instead of giving the identity or taking the records that are
        next; None: nothing since it took something.
        """
        return self.error if self.producer_problem is None else self.producer_problem.code

    @property
    def may_go_on(self) -> bool:
        """Whether what it has to send is taken, as far as is known."""
        return self.leader is not None and self.state in _SENDING_STATES

    @property
    def sent_to(self) -> int:
        """The source offset that all that was sent leads to."""
        sent = takewhile(lambda chunk: chunk.base_sequence >= 0, self.queue)
        return max((chunk.next_offset for chunk in sent), default=self.acknowledged)

    def dealt_with(self, offset: int) -> int:
        """The source offset that it comes to with all that begins before `offset`."""
        ends = (chunk.next_offset for chunk in self.queue if chunk.first_offset < offset)
        return max(ends, default=offset)

    def lacks(self, offset: int | None) -> bool:
        """Whether something before that is not acknowledged."""
        return offset is not None and bool(self.queue) and self.queue[0].first_offset < offset

    def may_take(self) -> bool:
        """Whether it can do with more: one that cannot send at the moment takes no memory from those that
        can.
        """
        if self.leader is None:
            return False
        if self.attempts >= FAILURES_BEFORE_SHEDDING and (self.queue or self.in_flight):
            return False
        return self.state in _FETCHING_STATES or (
            self.state is LaneState.WAITING and self.attempts < FAILURES_BEFORE_SHEDDING
        )

    def next_to_send(self) -> Chunk | None:
        """The chunk to send now: in order, within the window, nothing while another broker owes an answer or
        another identity has something in flight. There may be no identity for it yet (see `take_producer`).
        """
        if self.state is not LaneState.COPYING or self.leader is None:
            return None
        producer = self.producer
        if self.in_flight and (self.broker != self.leader or producer is None or not producer.proven):
            return None
        while self.sent < len(self.queue) and self.queue[self.sent].acknowledged:
            self.sent += 1
        if self.sent >= min(len(self.queue), BATCHES_REMEMBERED):
            return None
        chunk = self.queue[self.sent]
        if (end := self.partition.leaves_at) is not None and chunk.first_offset >= end:
            return None
        if self.in_flight and producer is not None and producer.origin != chunk.origin:
            return None
        return chunk

    def take_acknowledged(self) -> list[Chunk]:
        """Remove the acknowledged prefix of the queue and move the acknowledged offset past it."""
        taken: list[Chunk] = []
        while self.queue and self.queue[0].acknowledged:
            chunk = self.queue.popleft()
            self.sent = max(self.sent - 1, 0)
            self.acknowledged = chunk.next_offset
            if chunk.base_offset is not None:
                self.logs_begun += chunk.base_offset <= self.written_at
                self.written_at = chunk.base_offset
            taken.append(chunk)
        return taken

    def give_up_written(self, let_go: Callable[[Lane, Chunk], None]) -> list[Chunk]:
        """Move on behind the last chunk that may be at the destination; those that are gone so, but for the
        ones that are sure to be there.
        """
        given_up: list[Chunk] = []
        while any(chunk.maybe_written for chunk in self.queue):
            chunk = self.queue.popleft()
            self.acknowledged = chunk.next_offset
            let_go(self, chunk)
            if not chunk.acknowledged:
                given_up.append(chunk)
        return given_up

    def sheddable_from(self) -> int:
        """Chunks of the queue from here on can be thrown away and fetched again, and nothing comes twice."""
        if not any(chunk.maybe_written for chunk in self.queue):
            return 0
        return sum(chunk.base_sequence >= 0 for chunk in self.queue)

    # ---- identities

    def key_of(self, origin: int) -> ProducerKey:
        """Whose identity chunks of this origin carry here."""
        partition = self.partition
        return ProducerKey(partition.bucket, origin, partition.source if partition.is_merged else None)

    def take_producer(self, origin: int) -> bool:
        """Go on with the identity for chunks of this origin; False when there is none: await it then.

        Only with nothing in flight, or of the same identity.
        """
        producer = self.producers.get(origin)
        if producer is not None:
            self.producer = producer
            return True
        self.awaits = self.key_of(origin)
        return False

    def adopt(self, key: ProducerKey, identity: ProducerIdentity) -> None:
        """The identity that it awaits is there."""
        self.producers[key.origin] = LaneProducer(key.origin, identity)
        self.awaits = self.producer_problem = None

    def forget_producer(self, origin: int) -> None:
        """Chunks of this origin need another identity, and sequences from 0."""
        assert not self.in_flight
        self.producers.pop(origin, None)
        self.producer = None
        self.awaits = self.key_of(origin)
        for chunk in self.queue:
            if chunk.origin == origin:
                chunk.base_sequence = -1

    def forget_producers(self) -> None:
        """Whatever comes next needs another identity; the queue is empty."""
        assert not self.in_flight
        assert not self.queue
        self.producers.clear()
        self.producer = None
        self.awaits = self.key_of(0)

    # ---- positions

    def append(self, chunk: Chunk) -> None:
        """Queue a chunk. It lies before the position only if it holds what was not thought of at first, such
        as a note about a record that now turned out to be too large: then the position is not safe again
        until the chunk is.
        """
        first = chunk.first_offset
        if first < self.position:
            self.acknowledged = min(self.acknowledged, first)
            for each in self.queue:
                each.next_offset = min(each.next_offset, first)
            chunk.next_offset = max(chunk.next_offset, self.position)
        self.queue.append(chunk)

    def extend_to(self, offset: int) -> None:
        """Everything of the source before `offset` is dealt with once the present queue is acknowledged."""
        if offset <= self.position:
            return
        self.position = offset
        if self.queue:
            self.queue[-1].next_offset = offset
        else:
            self.acknowledged = offset

    def begin_anew(self, offset: int) -> None:
        """The source is another log now, from `offset` on: offsets of the former mean nothing in it."""
        self.position = self.acknowledged = offset
        self.committed = min(self.committed, offset)
        for chunk in self.queue:
            chunk.next_offset = offset
            chunk.former_from = 0

    def return_to(self, offset: int) -> None:
        """The source ends at `offset` now: what is queued or acknowledged beyond that moves no position."""
        self.position = offset
        self.acknowledged = min(self.acknowledged, offset)
        self.committed = min(self.committed, offset)
        for chunk in self.queue:
            if chunk.next_offset > offset:
                chunk.former_from = offset if chunk.former_from is None else min(chunk.former_from, offset)
            chunk.next_offset = min(chunk.next_offset, offset)

    def go_back_to(self, position: int) -> None:
        """Take records from `position` on once more: what was queued from there on has been thrown away."""
        self.position = position
        self.partition.position = min(lane.position for lane in self.partition.lanes)
