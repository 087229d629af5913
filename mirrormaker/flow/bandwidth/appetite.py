"""How much of a limit a process could use: all of it while pieces wait for it, else some more than it does.
Pure.
"""

from __future__ import annotations

import math

from mirrormaker.flow.bandwidth.shares import Share

SMOOTHING_MS = 1_500
"""What was measured so long ago counts for a third of what is measured now."""
LOOK_MS = 100
"""No two measurements are closer."""
HUNGRY_FROM, HUNGRY_TO = 0.5, 0.2
"""The part of the time in which pieces waited: it begins to be hungry, and is so no longer."""
HEADROOM = 1.25
"""Who is not hungry could use so much more than it does."""


class Appetite:
    """Of the node of a tree of shares that has the limit."""

    def __init__(self, share: Share) -> None:
        self.is_hungry = False
        """Pieces wait for the limit most of the time."""
        self._share = share
        self._held = 0.0
        """Part of the time in which pieces waited, lately."""
        self._rate = 0.0
        """Bytes a second, lately."""
        self._spent = 0.0
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> None:
        """Measure. To be called some times a second."""
        bucket = self._share.bucket
        if bucket is None:
            return
        if self._looked_ms is None:
            self._spent, self._looked_ms = bucket.spent, now_ms
            return
        elapsed_ms = now_ms - self._looked_ms
        if elapsed_ms < LOOK_MS:
            return
        new = 1 - math.exp(-elapsed_ms / SMOOTHING_MS)
        is_held = self._share.is_waiting and not bucket.is_open(now_ms)
        self._held += (is_held - self._held) * new
        self._rate += ((bucket.spent - self._spent) * 1000 / elapsed_ms - self._rate) * new
        self._spent, self._looked_ms = bucket.spent, now_ms
        self.is_hungry = self._held > (HUNGRY_TO if self.is_hungry else HUNGRY_FROM)

    def part_of(self, limit: float) -> float:
        """What it could use of a limit of so many bytes a second; 1: all of it."""
        return 1.0 if self.is_hungry else min(max(self._rate * HEADROOM / limit, 0.0), 1.0)
