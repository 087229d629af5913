"""A limit in bytes a second, which may change at any time. Pure.

What is not spent is kept for `BURST_MS`. One piece may overdraw it: whatever its size, it passes as soon as
nothing is owed, and what it owes is waited for after it. So the mean is the limit, whatever pieces are like.
"""

from __future__ import annotations

import math

BURST_MS = 250
NEGLIGIBLE = 1e-6
"""Part of a byte: rounding, not debt."""


class Bucket:
    """Filled at `rate`; None: no limit, 0: nothing passes."""

    __slots__ = ("_limit", "_rate", "_tokens", "_updated_ms", "spent")

    def __init__(self, rate: float | None, now_ms: int) -> None:
        self._limit = self._rate = rate
        self.spent = 0.0
        """Bytes, since the start, while there was a limit."""
        self._updated_ms = now_ms
        self._tokens = self._burst

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return self._rate

    @property
    def _burst(self) -> float:
        return self._burst_at(self._rate)

    @staticmethod
    def _burst_at(rate: float | None) -> float:
        return (rate or 0) * BURST_MS / 1000

    def set_rate(self, limit: float | None, now_ms: int, part: float = 1.0) -> None:
        """Another limit from now on, or another part of the same. A debt is forgiven where it comes from a
        limit that was larger, so that it is not worked off at the new rate; not where only the part is
        another, since others count on it.
        """
        rate = None if limit is None else limit * part
        if rate == self._rate:
            self._limit = limit
            return
        if self._rate is not None:
            self._fill(now_ms)
        debt_max = self._burst_at(rate) if limit != self._limit else math.inf
        self._limit, self._rate, self._updated_ms = limit, rate, now_ms
        self._tokens = max(min(self._tokens, self._burst), -debt_max)

    def is_open(self, now_ms: int) -> bool:
        """Whether something may pass now."""
        if self._rate is None:
            return True
        if not self._rate:
            return False
        self._fill(now_ms)
        return self._tokens >= -NEGLIGIBLE

    def spend(self, size: float, now_ms: int) -> None:
        """So many bytes pass; a negative size gives back."""
        if self._rate is not None:
            self._fill(now_ms)
            self._tokens -= size
            self.spent += size

    def opens_at_ms(self, now_ms: int) -> int | None:
        """When something may pass; None: not before the limit changes."""
        if self.is_open(now_ms):
            return now_ms
        return now_ms + math.ceil(-self._tokens * 1000 / self._rate) if self._rate else None

    def _fill(self, now_ms: int) -> None:
        assert self._rate is not None
        self._tokens = min(self._burst, self._tokens + (now_ms - self._updated_ms) * self._rate / 1000)
        self._updated_ms = now_ms
