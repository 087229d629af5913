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

    __slots__ = ("_rate", "_tokens", "_updated_ms")

    def __init__(self, rate: float | None, now_ms: int) -> None:
        self._rate = rate
        self._updated_ms = now_ms
        self._tokens = self._burst

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return self._rate

    @property
    def _burst(self) -> float:
        return (self._rate or 0) * BURST_MS / 1000

    def set_rate(self, rate: float | None, now_ms: int) -> None:
        """Another limit from now on. A debt is forgiven where it comes from a limit that was larger, so that
        it is not worked off at the new rate.
        """
        if rate == self._rate:
            return
        if self._rate is not None:
            self._fill(now_ms)
        self._rate, self._updated_ms = rate, now_ms
        self._tokens = max(min(self._tokens, self._burst), -self._burst)

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

    def opens_at_ms(self, now_ms: int) -> int | None:
        """When something may pass; None: not before the limit changes."""
        if self.is_open(now_ms):
            return now_ms
        return now_ms + math.ceil(-self._tokens * 1000 / self._rate) if self._rate else None

    def _fill(self, now_ms: int) -> None:
        assert self._rate is not None
        self._tokens = min(self._burst, self._tokens + (now_ms - self._updated_ms) * self._rate / 1000)
        self._updated_ms = now_ms
