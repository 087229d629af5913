"""How far apart the fetches of one loop are. Pure.

What an answer brings of a partition costs either node a read and an append, and the answer itself as much as
several of those. Where many partitions have a batch now and then, fetches that follow each other at once
bring few of them each: a source or a destination that has next to no time left spends a good part of it on
requests. So a source that takes its time to answer though much comes is left alone for as long again: more
comes together then, and several batches of a partition. Idle ones answer at once and are asked at once.

How long an answer takes says nothing where it waits for the next record: at the rates that are looked at here
one comes every moment, and fetches are no farther apart than it takes few parts to come. Nor does it where
the way is long: what takes longer than the longest interval is followed by the next fetch at once.
"""

from __future__ import annotations

import math

SMOOTHING_MS = 200
"""What was so long ago counts for a third of what is now."""
INTERVAL_MAX_MS = 20.0
ANSWERS_APART = 2.0
"""From one fetch to the next it takes so many times as long as an answer does."""
PARTS_MAX = 4.0
"""With one part a millisecond fetches are no more milliseconds apart."""


class FetchPace:
    """Of one fetch loop."""

    __slots__ = ("_answer_ms", "_at_ms", "_new", "_parts_per_ms")

    def __init__(self) -> None:
        self._answer_ms = 0.0
        self._parts_per_ms = 0.0
        self._at_ms: int | None = None
        self._new = 0
        """Parts that came in this millisecond."""

    def answered(self, parts: int, elapsed_ms: int, now_ms: int) -> None:
        """An answer came after so long, with records of so many partitions."""
        self._new += parts
        if self._at_ms is None:
            self._at_ms, self._new = now_ms, 0
        elif now_ms > self._at_ms:
            since_ms = now_ms - self._at_ms
            weight = 1 - math.exp(-since_ms / SMOOTHING_MS)
            self._parts_per_ms += (self._new / since_ms - self._parts_per_ms) * weight
            self._answer_ms += (elapsed_ms - self._answer_ms) * weight
            self._at_ms, self._new = now_ms, 0

    def wait_ms(self, asked_ms: int, now_ms: int) -> float:
        """How long to wait with the next fetch where the last was sent at `asked_ms`; below 0: no longer."""
        interval_ms = min(self._answer_ms * ANSWERS_APART, self._parts_per_ms * PARTS_MAX, INTERVAL_MAX_MS)
        return asked_ms + interval_ms - now_ms
