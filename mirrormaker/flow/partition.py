"""One partition on its way: its queue of chunks, what is in flight, and what an error does to it. Pure.

Rules that keep order and lose nothing:
- Chunks are sent in order, each in a request of its own, all to one broker. From the first that is not
  acknowledged to the last that is sent there are at most `BATCHES_REMEMBERED`, acknowledged ones in between
  included: so that whichever must be repeated, the broker still remembers it.
- A fresh producer id, and one that just met an error, sends a single chunk until that is acknowledged: a
  broker that knows nothing of a producer takes any first sequence, and would take a later chunk before a
  failed earlier one.
- After the first error nothing new is sent until every chunk in flight is answered (SETTLING). Then the first
  chunk that is not acknowledged decides what happens: every earlier one is safe, so its error is not the echo
  of another.
- A repeat carries the same sequence. A new producer id, and with it sequences from 0, is taken only with
  nothing in flight.
- The position to commit is the end of the contiguous prefix of acknowledged chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk

BATCHES_REMEMBERED = 5
"""A broker deduplicates against so many last batches of a producer: more could not be repeated safely."""

FAILURES_BEFORE_SHEDDING = 3
"""A partition that failed so often in a row gives its buffer back, and takes only a little at a time."""


class PartitionState(Enum):
    """What a partition is doing."""

    AWAITING_PRODUCER = "awaiting_producer"
    """Nothing in flight; sends again once its bucket has a new producer id."""
    COPYING = "copying"
    SETTLING = "settling"
    """An error came; nothing new is sent until all in flight is answered."""
    WAITING = "waiting"
    """Nothing in flight; repeats after a pause that grows with every failure."""
    PAUSED = "paused"
    """The destination refuses the records; nothing is fetched or sent until the next attempt, long after."""
    STOPPING = "stopping"
    """About to be given away: answers are taken, nothing is sent."""


TRANSITIONS: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.AWAITING_PRODUCER: frozenset(
        {PartitionState.COPYING, PartitionState.STOPPING, PartitionState.PAUSED}
    ),
    PartitionState.COPYING: frozenset(
        {PartitionState.SETTLING, PartitionState.STOPPING, PartitionState.PAUSED}
    ),
    PartitionState.SETTLING: frozenset(
        {PartitionState.COPYING, PartitionState.WAITING, PartitionState.PAUSED, PartitionState.STOPPING}
    ),
    PartitionState.WAITING: frozenset(
        {
            PartitionState.COPYING,
            PartitionState.AWAITING_PRODUCER,
            PartitionState.STOPPING,
            PartitionState.PAUSED,
        }
    ),
    PartitionState.PAUSED: frozenset({PartitionState.AWAITING_PRODUCER, PartitionState.STOPPING}),
    PartitionState.STOPPING: frozenset(),
}


_FETCHING_STATES = frozenset({PartitionState.COPYING, PartitionState.SETTLING})


class Remedy(Enum):
    """What is done about the error of the first chunk that is not acknowledged."""

    REPEAT = "repeat"
    """The same bytes with the same sequences."""
    NEW_PRODUCER = "new_producer"
    """The same records under a new producer id: the destination has lost track of the old one."""
    FETCH_AGAIN = "fetch_again"
    """The bytes were damaged on the way."""
    ONE_BY_ONE = "one_by_one"
    """The destination takes one batch a request."""
    PAUSE = "pause"
    """Repeating would not help."""


_NEW_PRODUCER_CODES = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
_TOO_MUCH_AT_ONCE_CODES = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD}
)
SUCCESS_CODES = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""After these the leader may be elsewhere."""
UNKNOWN_OUTCOME_CODES = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""After these the records may have been written."""


def remedy_for(code: ErrorCode, *, several_batches: bool) -> Remedy:
    """What is to be done about a refused chunk; `several_batches`: it is made of more than one."""
    if code in _NEW_PRODUCER_CODES:
        return Remedy.NEW_PRODUCER
    if code is ErrorCode.CORRUPT_MESSAGE:
        return Remedy.FETCH_AGAIN
    if several_batches and code in _TOO_MUCH_AT_ONCE_CODES:
        return Remedy.ONE_BY_ONE
    if code.retriable or code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE):
        return Remedy.REPEAT
    return Remedy.PAUSE


class ProducerIdentity(NamedTuple):
    """What the mirror stamps on batches."""

    producer_id: int
    epoch: int


class Partition:
    """The machine's record of one partition; only the machine changes it."""

    __slots__ = (
        "acknowledged",
        "answered_at_ms",
        "attempts",
        "broker",
        "bucket",
        "buffered_bytes",
        "committed",
        "copied_bytes",
        "copied_offsets",
        "destination",
        "error",
        "fetch_bytes",
        "fetch_not_before_ms",
        "in_flight",
        "last_timestamp",
        "leader",
        "needs_producer",
        "next_sequence",
        "one_by_one",
        "position",
        "producer",
        "proven",
        "queue",
        "queued",
        "retry_at_ms",
        "sent",
        "source",
        "source_end",
        "source_failures",
        "source_problem",
        "state",
    )

    def __init__(
        self,
        source: TopicPartition,
        destination: TopicPartition,
        bucket: int,
        position: int,
        fetch_bytes: int,
    ) -> None:
        self.source = source
        self.destination = destination
        self.bucket = bucket
        self.state = PartitionState.AWAITING_PRODUCER
        self.queue: deque[Chunk] = deque()
        """Not acknowledged, in order; the first `sent` of them have been sent, since the last failure."""
        self.sent = 0
        self.in_flight = 0
        self.position = position
        """The source offset to fetch next."""
        self.acknowledged = position
        """The source offset up to which the destination has everything."""
        self.committed = position
        self.producer: ProducerIdentity | None = None
        self.needs_producer = True
        self.next_sequence = 0
        self.proven = False
        self.leader: BrokerId | None = None
        """Of the destination partition, as far as known."""
        self.broker: BrokerId | None = None
        """Where what is in flight went."""
        self.queued = False
        """Whether it stands in its broker's line of those that have something to send."""
        self.error: ErrorCode | None = None
        self.answered_at_ms = 0
        """When the destination last acknowledged something."""
        self.attempts = 0
        """Failures since the last success."""
        self.retry_at_ms = 0
        self.one_by_one = False
        self.buffered_bytes = 0
        self.fetch_bytes = fetch_bytes
        """Asked for at a time; grows while no whole batch fits."""
        self.fetch_not_before_ms = 0
        self.source_problem: str | None = None
        self.source_failures = 0
        """Fetches that failed since the last one that brought something."""
        self.source_end = -1
        """First source offset that readers of committed records do not see yet; -1: not heard of."""
        self.last_timestamp = -1
        self.copied_bytes = 0
        self.copied_offsets = 0

    @property
    def condition(self) -> str:
        """What it is doing or lacking, in a word, for `status`."""
        if self.source_problem is not None:
            return "unreadable"
        if self.leader is None and self.state is not PartitionState.PAUSED:
            return "leaderless"
        return self.state.value

    def enter(self, state: PartitionState) -> None:
        """Change state, by the table."""
        assert state in TRANSITIONS[self.state], f"{self.source}: {self.state} -> {state}"
        self.state = state

    def may_fetch(self, now_ms: int) -> bool:
        """Whether more of it is wanted now; the buffer's bounds are the machine's business.

        A partition that cannot send at the moment takes no memory from those that can.
        """
        if self.leader is None or self.fetch_not_before_ms > now_ms:
            return False
        if self.attempts >= FAILURES_BEFORE_SHEDDING and (self.buffered_bytes or self.in_flight):
            return False
        return self.state in _FETCHING_STATES or (
            self.state is PartitionState.WAITING and self.attempts < FAILURES_BEFORE_SHEDDING
        )

    def next_to_send(self) -> Chunk | None:
        """The chunk to send now: in order, within the window, nothing while another broker owes an answer."""
        if self.state is not PartitionState.COPYING or self.leader is None:
            return None
        if self.in_flight and (self.broker != self.leader or not self.proven):
            return None
        while self.sent < len(self.queue) and self.queue[self.sent].acknowledged:
            self.sent += 1
        if self.sent >= min(len(self.queue), BATCHES_REMEMBERED):
            return None
        return self.queue[self.sent]

    def take_acknowledged(self) -> list[Chunk]:
        """Remove the acknowledged prefix of the queue and move the acknowledged offset past it."""
        taken: list[Chunk] = []
        while self.queue and self.queue[0].acknowledged:
            chunk = self.queue.popleft()
            self.sent = max(self.sent - 1, 0)
            self.acknowledged = chunk.next_offset
            self.last_timestamp = max(self.last_timestamp, chunk.max_timestamp)
            self.copied_bytes += chunk.size
            self.copied_offsets += max(chunk.next_offset - chunk.first_offset, chunk.count)
            taken.append(chunk)
        return taken

    def sheddable_from(self) -> int:
        """Chunks of the queue from here on can be thrown away and fetched again, and nothing comes twice."""
        if not any(chunk.maybe_written for chunk in self.queue):
            return 0
        return sum(chunk.base_sequence >= 0 for chunk in self.queue)

    def extend_to(self, offset: int) -> None:
        """Everything of the source before `offset` is dealt with once the present queue is acknowledged."""
        self.position = offset
        if self.queue:
            self.queue[-1].next_offset = offset
        else:
            self.acknowledged = offset

    def begin_anew(self, offset: int) -> None:
        """The source is another log now, from `offset` on: offsets of the former mean nothing in it."""
        self.position = self.acknowledged = offset
        for chunk in self.queue:
            chunk.next_offset = offset

    def return_to(self, offset: int) -> None:
        """The source ends at `offset` now: what is queued or acknowledged beyond that moves no position."""
        self.position = offset
        self.acknowledged = min(self.acknowledged, offset)
        for chunk in self.queue:
            chunk.next_offset = min(chunk.next_offset, offset)
