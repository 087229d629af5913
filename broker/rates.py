"""How much of something happened lately, and how long to wait until it is within its bound again.

A windowed rate is an amount per second over the last `windows` windows, the one under way among them; until
they have passed a short burst counts as if they had been empty. A token bucket holds what may be spent at
once and fills at a steady rate. Pure: callers bring the time, in ms on a clock that never goes back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindows:
    """What rates are measured over; each field names its setting."""

    count: int = 11
    """`quota.window.num`."""
    size_ms: int = 1_000
    """`quota.window.size.seconds`."""

    @property
    def whole_ms(self) -> int:
        """All windows that are surely over: what a rate is averaged over at least."""
        return max(self.count - 1, 1) * self.size_ms


class WindowedRate:
    """An amount per second."""

    __slots__ = ("_samples", "_total", "_windows")

    def __init__(self, windows: RateWindows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque()
        """Start and amount of each window that had any, the oldest first."""
        self._total = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount, which may be negative to take one back."""
        samples = self._samples
        self._forget(now_ms)
        if not samples or now_ms - samples[-1][0] >= self._windows.size_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        self._forget(now_ms)
        return self._total * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to rest until the average is `bound` a second again; 0 when it is not above."""
        rate = self.per_second(now_ms)
        return round((rate - bound) / bound * self._span_ms(now_ms)) if rate > bound else 0

    def room(self, bound: float, now_ms: int) -> float:
        """How much more keeps the average within `bound` a second; 0 when nothing does."""
        self._forget(now_ms)
        return max(bound * self._span_ms(now_ms) / 1000 - self._total, 0.0)

    def is_empty(self, now_ms: int) -> bool:
        """Whether nothing is remembered."""
        self._forget(now_ms)
        return not self._total

    def _forget(self, now_ms: int) -> None:
        samples, age_max_ms = self._samples, self._windows.count * self._windows.size_ms
        while samples and now_ms - samples[0][0] >= age_max_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # what rounding left

    def _span_ms(self, now_ms: int) -> int:
        """The time that the amounts are spread over: windows that are over count whole."""
        windows, elapsed_ms = self._windows, int(now_ms - self._samples[0][0]) if self._samples else 0
        missing = windows.count - 1 - elapsed_ms // windows.size_ms
        return max(elapsed_ms + max(missing, 0) * windows.size_ms, windows.size_ms)


class TokenBucket:
    """What may be spent: `rate` more each second, `burst` at most; spending may overdraw it (KIP-599)."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated_ms")

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_ms = now_ms

    def spend(self, tokens: float, now_ms: int) -> None:
        """Take tokens, also those that are not there yet."""
        self._fill(now_ms)
        self._tokens -= tokens

    def throttle_ms(self, now_ms: int) -> int:
        """How long until nothing is overdrawn; 0 when nothing is."""
        self._fill(now_ms)
        return math.ceil(-self._tokens * 1000 / self._rate) if self._tokens < 0 else 0

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._updated_ms
        self._tokens = min(self._burst, self._tokens + elapsed_ms * self._rate / 1000)
        self._updated_ms = now_ms
