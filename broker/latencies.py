"""How long things took, counted in buckets whose width is a fixed part of their value. Pure.

Memory does not grow with the number of values; a percentile is true to within a hundredth.
"""

from __future__ import annotations

import math
from collections import Counter

_GROWTH = 1.02
"""Of one bucket over the one before: its middle is within 1 % of everything in it."""
_SMALLEST_MS = 0.001


class Latencies:
    """Counted times, in milliseconds."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._total_ms = 0.0
        self.count = 0
        self.max_ms = 0.0

    def record(self, time_ms: float) -> None:
        """Count one time."""
        bucket = math.floor(math.log(max(time_ms, _SMALLEST_MS) / _SMALLEST_MS, _GROWTH))
        self._buckets[bucket] += 1
        self._total_ms += time_ms
        self.count += 1
        self.max_ms = max(self.max_ms, time_ms)

    @property
    def mean_ms(self) -> float:
        """0 when nothing was counted."""
        return self._total_ms / self.count if self.count else 0.0

    def percentile_ms(self, percent: float) -> float:
        """What so many percent took at most; 0 when nothing was counted."""
        left = self.count * percent / 100
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                middle_ms: float = _SMALLEST_MS * _GROWTH ** (bucket + 0.5)
                return min(middle_ms, self.max_ms)
        return self.max_ms
