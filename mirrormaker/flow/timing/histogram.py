"""Latencies in buckets that grow with them: a count costs a logarithm, all of them a kilobyte. Pure.

Bucket 0 is up to 1 ms; each of the others ends `GROWTH` times where the one before it does, so that what is
read from them is right within a fifth, up to twelve days.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

STEPS_PER_DOUBLING = 4
GROWTH = 2 ** (1 / STEPS_PER_DOUBLING)
BUCKETS = 30 * STEPS_PER_DOUBLING + 1
"""The last one takes all that is longer. Sources usually keep records for a week: what an outage held up took
less.
"""

Counts = Mapping[int, int]
"""By bucket; those without any are left out."""


def bucket_of(latency_ms: float) -> int:
    """The bucket of a latency; one below zero, as clocks differ, counts as none."""
    return 0 if latency_ms <= 1 else min(ceil(log2(latency_ms) * STEPS_PER_DOUBLING), BUCKETS - 1)


def upper_ms(bucket: int) -> float:
    """Where a bucket ends, itself included."""
    return float(2 ** (bucket / STEPS_PER_DOUBLING))


def percentile_ms(counts: Counts, part: float) -> float | None:
    """What `part` of all, 0 to 1, do not exceed: the end of the bucket where that is; None of nothing."""
    total = sum(counts.values())
    wanted, passed = total * part, 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed and passed >= wanted:
            return upper_ms(bucket)
    return None


class Histogram:
    """Counts of one kind of latency since it was made."""

    __slots__ = ("counts", "seconds", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total = 0
        self.seconds = 0.0
        """Of all together."""

    def record(self, latency_ms: float, count: int) -> None:
        """`count` records took so long."""
        self.counts[bucket_of(latency_ms)] += count
        self.total += count
        self.seconds += max(latency_ms, 0) * count / 1000

    def sparse(self) -> dict[int, int]:
        """The counts of buckets that have any."""
        return {bucket: count for bucket, count in enumerate(self.counts) if count}


class RecentHistogram:
    """What the last minutes brought: the oldest minute goes as a new one begins."""

    __slots__ = ("_began_ms", "_minutes")

    MINUTE_MS = 60_000
    MINUTES = 5

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        """The minute that is last in the list."""
        self._minutes = [Histogram()]

    def record(self, latency_ms: float, count: int, now_ms: int) -> None:
        """`count` records took so long."""
        self._turn(now_ms)
        self._minutes[-1].record(latency_ms, count)

    def sparse(self, now_ms: int) -> dict[int, int]:
        """Counts of the last five minutes, the present one not complete."""
        self._turn(now_ms)
        merged: dict[int, int] = {}
        for minute in self._minutes:
            for bucket, count in minute.sparse().items():
                merged[bucket] = merged.get(bucket, 0) + count
        return merged

    def _turn(self, now_ms: int) -> None:
        passed = (now_ms - self._began_ms) // self.MINUTE_MS
        if passed <= 0:
            return
        self._began_ms += passed * self.MINUTE_MS
        self._minutes += [Histogram() for _ in range(min(passed, self.MINUTES))]
        del self._minutes[: -self.MINUTES]
