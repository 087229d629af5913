"""When the source will delete what is not copied yet, if all goes on as it does. Pure.

Three things bring a source's oldest record nearer to what a route copies, and the nearest counts:
- Age. A record goes `retention.ms` after its timestamp; so time is won as fast as the route comes forward in
  the time of records: at a second each second the distance stays. Times that go back, as those of
  several producers do, are no pace.
- Size. Of a partition `retention.bytes` are kept, and what is written beyond what is copied uses that up.
- What is seen: where the settings are not told, how fast the source's start comes on.

Sources delete by whole segments, so a record may stay longer than this says; it does not go before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

WINDOW_MS = 60_000
SPACING_MS = 2_000
START_MOVES = 4
"""Of the source's start, that its pace is taken from: it moves by leaps."""


class Cause(Enum):
    """What deletes."""

    AGE = "retention.ms"
    SIZE = "retention.bytes"
    SEEN = "log start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a topic of the source keeps. None: no bound."""

    ms: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a partition stands at one moment."""

    at_ms: int
    position: int
    """The first record that is not copied."""
    start: int
    """The first record of the source, -1 when it does not tell."""
    end: int
    oldest_ms: int | None
    """The timestamp of the record at `position`, on the clock of `at_ms`."""
    bytes_per_offset: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What is not copied will be deleted."""

    seconds: float
    """From now; 0: it may go any time."""
    cause: Cause


class Course:
    """How one partition has moved lately; observe it about once a second."""

    __slots__ = ("_standings", "_starts")

    def __init__(self) -> None:
        self._standings: deque[Standing] = deque()
        self._starts: deque[tuple[int, int]] = deque(maxlen=START_MOVES)
        """When the source's start was first seen where."""

    def observe(self, now: Standing) -> None:
        """It stands so now. One that went back starts anew."""
        standings = self._standings
        if standings and (now.position < standings[-1].position or now.end < standings[-1].end):
            standings.clear()
            self._starts.clear()
        if now.start >= 0 and (not self._starts or self._starts[-1][1] != now.start):
            self._starts.append((now.at_ms, now.start))
        while len(standings) > 1 and now.at_ms - standings[1].at_ms >= WINDOW_MS:
            standings.popleft()
        if len(standings) > 1 and now.at_ms - standings[-2].at_ms < SPACING_MS:
            standings.pop()
        standings.append(now)

    def risk(self, retention: Retention | None) -> Risk | None:
        """The nearest; None: nothing that is not copied is in sight of being deleted. `retention` None: the
        source does not tell.
        """
        if not self._standings:
            return None
        now, then = self._standings[-1], self._standings[0]
        if now.position >= now.end:
            return None
        if retention is None:
            risks = [self._by_start(now, then)]
        else:
            risks = [_by_age(now, then, retention.ms), _by_size(now, then, retention.bytes)]
        return min((risk for risk in risks if risk is not None), key=lambda risk: risk.seconds, default=None)

    def _by_start(self, now: Standing, then: Standing) -> Risk | None:
        if len(self._starts) < 2:
            return None
        (first_ms, first), (_, last) = self._starts[0], self._starts[-1]
        pace = (last - first) / max(now.at_ms - first_ms, 1)
        closing = pace - _pace(then.position, now.position, then, now)
        left = max(now.position - last, 0)
        return _after(left / closing, Cause.SEEN) if closing > 0 else None


def _by_age(now: Standing, then: Standing, retention_ms: int | None) -> Risk | None:
    if retention_ms is None or now.oldest_ms is None:
        return None
    left_ms = max(now.oldest_ms + retention_ms - now.at_ms, 0)
    if not left_ms or then.oldest_ms is None or now.at_ms == then.at_ms:
        return _after(left_ms, Cause.AGE)
    closing = 1 - max(_pace(then.oldest_ms, now.oldest_ms, then, now), 0)
    return _after(left_ms / closing, Cause.AGE) if closing > 0 else None


def _by_size(now: Standing, then: Standing, retention_bytes: int | None) -> Risk | None:
    size = now.bytes_per_offset
    if retention_bytes is None or size is None:
        return None
    left = max(retention_bytes - (now.end - now.position) * size, 0.0)
    if not left:
        return _after(left, Cause.SIZE)
    growth = _pace(then.end - then.position, now.end - now.position, then, now) * size
    return _after(left / growth, Cause.SIZE) if growth > 0 else None


def _pace(before: float, after: float, then: Standing, now: Standing) -> float:
    """What it gained a millisecond."""
    return (after - before) / max(now.at_ms - then.at_ms, 1)


def _after(left_ms: float, cause: Cause) -> Risk:
    return Risk(seconds=left_ms / 1000, cause=cause)
