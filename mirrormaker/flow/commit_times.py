"""When the transactions of a bucket end. Pure.

Commits are due at multiples of the interval, and buckets take turns. A commit over a long way takes several
round trips, in which nothing of the bucket is sent. So one that is due is put off while the bucket is behind
(`progress.is_behind`): until the transaction has been open `STALLS` times as long as commits keep the bucket
from sending, at most `PUT_OFF_MAX_MS`. Readers of committed records wait longer for what comes late anyway,
and the bucket has nine tenths of the time for sending.
"""

from __future__ import annotations

from mirrormaker.flow.transaction_steps import TransactionTerms

STALLS = 15
PUT_OFF_MAX_MS = 10_000
LOOKS = 4
"""While it is put off, so many looks whether it is still worth that, in the time that a commit takes."""


class CommitTimes:
    """Of one bucket; told what its transactions do. All times are those of a monotonic clock, in ms."""

    def __init__(self, terms: TransactionTerms, now_ms: int) -> None:
        self._terms = terms
        self.due_ms = self._next_due_ms(now_ms)
        """When the next commit is due."""
        self.closing_since_ms = 0
        self._asked_at_ms = self._open_since_ms = now_ms
        self._opening_ms = self._committing_ms = 0
        """What the last ones took."""

    def configure(self, terms: TransactionTerms) -> None:
        """Other terms, from the next transaction on."""
        self._terms = terms

    def asked(self, now_ms: int) -> None:
        """The coordinator is asked to begin a transaction."""
        self._asked_at_ms = now_ms

    def opened(self, now_ms: int) -> None:
        """Something may be sent: what it was opened for gets its time, however long that took."""
        self._open_since_ms = now_ms
        self._opening_ms = now_ms - self._asked_at_ms
        self.due_ms = max(self.due_ms, now_ms + self._terms.interval_ms // 2)

    def closing(self, now_ms: int) -> None:
        """Nothing new is sent from now on."""
        self.closing_since_ms = now_ms

    def committed(self, now_ms: int) -> None:
        """The transaction has ended."""
        self._committing_ms = now_ms - self.closing_since_ms
        self.rest(now_ms)

    def rest(self, now_ms: int) -> None:
        """Nothing is to be committed before the next turn."""
        self.due_ms = self._next_due_ms(now_ms)

    def put_off(self, now_ms: int) -> bool:
        """Put a commit off that is due, though more waits to be sent; False: it has been for long enough."""
        stall_ms = self._opening_ms + self._committing_ms
        until_ms = self._open_since_ms + min(STALLS * stall_ms, PUT_OFF_MAX_MS)
        if now_ms >= until_ms:
            return False
        self.due_ms = min(now_ms + max(stall_ms // LOOKS, 1), until_ms)
        return True

    def _next_due_ms(self, now_ms: int) -> int:
        interval_ms, phase_ms = self._terms.interval_ms, self._terms.phase_ms
        return ((now_ms - phase_ms) // interval_ms + 1) * interval_ms + phase_ms
