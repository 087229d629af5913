"""What the transactions of a bucket ask of the destination, step by step, and the phases that they go
through. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Entry

LanePositions = tuple[int, ...]
"""Where each lane of a partition goes on."""

HOME = 0
"""The origin of what was born at the source."""


class Phase(Enum):
    """Where a bucket's transactions stand."""

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
LOSING_CODES = FENCED_CODES | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What is open cannot be committed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTerms:
    """When transactions end."""

    interval_ms: int
    """Between commits, where all that waits can be sent in that time (see `commit_times`)."""
    phase_ms: int = 0
    """Commits are due so long after multiples of the interval: buckets take turns."""
    settle_ms: int = 10_000
    """A batch of which it is unknown whether it was written loses the bucket after so long."""
    passing_runs_max: int = 2_000
    """Stretches of a partition's records from elsewhere, of one origin, that a transaction takes: its record
    of positions says where each of them is.
    """


Places = frozenset[tuple[int, TopicPartition]]
"""Partitions of the destination, each with the origin whose transaction it is about."""


Refusals = Mapping[tuple[int, TopicPartition], ErrorCode]
"""Places that the coordinator does not add, and what it says of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Tell the coordinator that these are part of the transactions of their origins."""

    places: Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write these as part of the transactions."""

    positions: Mapping[int, Mapping[TopicPartition, LanePositions]]
    """By origin, and by source."""
    entries: tuple[Entry, ...] = field(default=())
    """Of the books, along with what was born at the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """End the transactions of these origins."""

    origins: frozenset[int]


Step = AddPartitions | Write | Commit
