"""What a log remembers of one idempotent producer: its epochs, its newest appends, its open transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from broker.records.batch import SEQUENCE_LIMIT, BatchHeader, next_sequence
from broker.storage.transactions import NO_OFFSET, Transaction

APPENDS_REMEMBERED = 6
"""Those of five requests, which is what producers have under way; one may lie in two parts, where the leader
before had given on only the first.
"""
NO_EPOCH = -1
SEQUENCE_MASK = SEQUENCE_LIMIT - 1


class RememberedAppend(NamedTuple):
    """The records of one append: first and last sequence and offset, and when it came (ms)."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

    def offset_of(self, sequence: int) -> int | None:
        """Where the record of this sequence is, None when it is not in this append."""
        distance = (sequence - self.first_sequence) & SEQUENCE_MASK
        return self.first_offset + distance if distance <= self.last_offset - self.first_offset else None

    def followed_by(self, sequence: int, offset: int) -> bool:
        return offset == self.last_offset + 1 and sequence == next_sequence(self.last_sequence, 1)


class Original(NamedTuple):
    """Where a duplicate was stored the first time, and when (ms)."""

    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer of the log. `coordinator_epoch` is that of the last marker, NO_EPOCH before any."""

    epoch: int
    last_heard_ms: int
    coordinator_epoch: int = NO_EPOCH
    transaction: Transaction | None = None
    appends: list[RememberedAppend] = field(default_factory=list)

    def remember(self, append: RememberedAppend) -> None:
        """Take the newest append; the oldest makes room."""
        self.appends.append(append)
        if len(self.appends) > APPENDS_REMEMBERED:
            del self.appends[0]

    @property
    def last_sequence(self) -> int:
        return self.appends[-1].last_sequence if self.appends else -1

    @property
    def transaction_first_offset(self) -> int:
        """Where the open transaction begins, NO_OFFSET when there is none."""
        return NO_OFFSET if self.transaction is None else self.transaction.first_offset

    def original(self, header: BatchHeader) -> Original | None:
        """Where the batch was stored before, None when it was not or is no longer remembered."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = next_sequence(header.base_sequence, header.last_offset_delta)
        first_offset = None
        for append in self.appends:
            if first_offset is None:
                first_offset = append.offset_of(header.base_sequence)
            if first_offset is not None and (last_offset := append.offset_of(last_sequence)) is not None:
                return Original(first_offset, last_offset, append.timestamp)
        return None
