"""The transactions of one log that keep its last stable offset back, oldest first. Pure.

A transaction is undecided until its marker is in the log, and unstable until that marker is committed too:
another leader may not have it. Below the first unstable one every record's fate is known.

    begin(offset) -> undecided, unstable
    end(offset of the marker) -> unstable
    high watermark past the marker -> gone

Transactions begin in the order of their offsets, so that both lists ascend and the first of each is what is
asked for; those at the front that ended are dropped when somebody asks. Lists and not deques: most logs have
no transaction, and an empty list is small. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NO_OFFSET = -1


class AbortedTransaction(NamedTuple):
    """One aborted transaction: its producer, first offset, the offset of its marker, and the last stable
    offset after that.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Transaction:
    """One transaction of one producer; `marker_offset` is NO_OFFSET until it ended."""

    __slots__ = ("first_offset", "marker_offset")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.marker_offset = NO_OFFSET


class Transactions:
    """See the module's description."""

    __slots__ = ("_undecided", "_unstable")

    def __init__(self, undecided: Iterable[Transaction] = ()) -> None:
        self._undecided = sorted(undecided, key=lambda transaction: transaction.first_offset)
        self._unstable = list(self._undecided)

    def __bool__(self) -> bool:
        """Whether any transaction may be unstable."""
        return bool(self._unstable)

    def begin(self, first_offset: int) -> Transaction:
        """A transaction begins with the newest record of the log."""
        transaction = Transaction(first_offset)
        self._undecided.append(transaction)
        self._unstable.append(transaction)
        return transaction

    def end(self, transaction: Transaction, marker_offset: int) -> int:
        """The marker is in the log; the last stable offset by what the log alone knows."""
        transaction.marker_offset = marker_offset
        ended = 0
        for waiting in self._undecided:
            if waiting.marker_offset == NO_OFFSET:
                break
            ended += 1
        del self._undecided[:ended]
        return self._undecided[0].first_offset if self._undecided else marker_offset + 1

    def first_unstable(self, high_watermark: int) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not committed."""
        committed = 0
        for transaction in self._unstable:
            if not NO_OFFSET < transaction.marker_offset < high_watermark:
                break
            committed += 1
        del self._unstable[:committed]
        return self._unstable[0].first_offset if self._unstable else None
