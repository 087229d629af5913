"""What one route has still to copy, and how old that is. Pure.

What was produced and what was copied are two curves that only rise; the distance between them upwards is the
lag in bytes, sideways the lag in time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from mirrormaker.plan.simulation.limits import UNLIMITED

_NEGLIGIBLE = 1e-6
"""Part of a byte: rounding, not lag."""
_ROUNDING_MS = 0.01
"""More than rounding adds to a lag or takes from it: only what passes a bound by so much has passed it."""


@dataclass(slots=True, kw_only=True)
class Extremes:
    """The worst of a route's run."""

    lag_bytes: float = 0.0
    lag_ms: float = 0.0
    lag_at_ms: float = 0.0
    catch_up_ms: float = 0.0
    """The longest time from where a lag began to shrink to its end."""
    peak: float = 0.0
    """Bytes per second."""
    too_late_at_ms: float | None = None
    """When records first were older than the source keeps them."""


@dataclass(slots=True)
class Backlog:
    """One route's curves; time in milliseconds, `arriving` and `leaving` in bytes per second."""

    retention_ms: float
    old_ms: float = UNLIMITED
    """From which lag on what is still to be copied counts as old."""
    now_ms: float = 0.0
    produced: float = 0.0
    copied: float = 0.0
    worst: Extremes = field(default_factory=Extremes)
    _corners: deque[tuple[float, float]] = field(default_factory=deque)
    """Where the curve of what was produced bends, and is not copied yet: time, bytes; the first may be
    passed.
    """
    _rate: float = -1.0
    _shrinking_since_ms: float | None = None

    @classmethod
    def begun(cls, behind: float, rate: float, retention_ms: float, old_ms: float = UNLIMITED) -> Backlog:
        """Behind at the start by what came at `rate` before."""
        backlog = cls(retention_ms=retention_ms, old_ms=old_ms, copied=-behind)
        if behind:
            age_ms = behind / rate * 1000 if rate else 0.0
            backlog._corners.append((-age_ms, -behind))
            backlog.worst = Extremes(
                lag_bytes=behind, lag_ms=age_ms, too_late_at_ms=0.0 if age_ms > retention_ms else None
            )
        return backlog

    @property
    def bytes(self) -> float:
        """Still to be copied."""
        return self.produced - self.copied

    @property
    def is_empty(self) -> bool:
        return self.bytes <= _NEGLIGIBLE

    @property
    def is_old(self) -> bool:
        return self.old_ms != UNLIMITED and self.lag_ms > self.old_ms

    @property
    def lag_ms(self) -> float:
        """Age of the oldest byte still to be copied."""
        if self.is_empty:
            return 0.0
        (start_ms, start), (end_ms, end) = self._oldest_piece()
        part = (self.copied - start) / (end - start) if end > start else 1.0
        return self.now_ms - (start_ms + part * (end_ms - start_ms))

    def _oldest_piece(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where the oldest byte still to be copied was produced: a straight piece of the curve."""
        corners = self._corners
        while len(corners) > 1 and corners[1][1] <= self.copied:
            corners.popleft()
        return corners[0], corners[1] if len(corners) > 1 else (self.now_ms, self.produced)

    def next_turn_ms(self, arriving: float, leaving: float) -> float:
        """How long these rates may hold until something bends: all is copied, a corner is, or what is still
        to be copied becomes old or ceases to be.
        """
        left, turn_ms = self.produced - self.copied, UNLIMITED
        if left <= _NEGLIGIBLE:
            return self._first_age_ms(arriving, leaving)
        if leaving > arriving:
            turn_ms = left / (leaving - arriving) * 1000
        if leaving > 0:
            bends = [at for _, at in islice(self._corners, 2)]
            if arriving != self._rate:
                bends.append(self.produced)
            for at in bends:
                if at > self.copied:
                    turn_ms = min(turn_ms, (at - self.copied) / leaving * 1000)
        return min(turn_ms, self._next_age_ms(leaving))

    def _first_age_ms(self, arriving: float, leaving: float) -> float:
        """As `_next_age_ms` where nothing lags yet: what lags is what comes at this rate."""
        if self.old_ms == UNLIMITED or arriving <= leaving:
            return UNLIMITED
        return (self.old_ms + _ROUNDING_MS) * arriving / (arriving - leaving)

    def _next_age_ms(self, leaving: float) -> float:
        """How long until the lag has passed `old_ms`, or is back there."""
        if self.old_ms == UNLIMITED:
            return UNLIMITED
        left_ms, aging = self.old_ms - self.lag_ms, self._aging(leaving)
        if left_ms >= 0:
            return (left_ms + _ROUNDING_MS) / aging if aging > 0 else UNLIMITED
        return left_ms / aging if aging < 0 else UNLIMITED

    def _aging(self, leaving: float) -> float:
        """By how much the lag grows in a unit of time, while the oldest piece is copied."""
        (start_ms, start), (end_ms, end) = self._oldest_piece()
        return 1 - leaving / 1000 * (end_ms - start_ms) / (end - start) if end > start else 1.0

    def advance(self, span_ms: float, arriving: float, leaving: float) -> None:
        """Let time pass at these rates."""
        if arriving == leaving and self.is_empty:
            self._keep_up(span_ms, arriving)
            return
        if arriving != self._rate:
            self._corners.append((self.now_ms, self.produced))
            self._rate = arriving
        self._mark_turn(arriving, leaving)
        before_ms = self.lag_ms
        after_ms = 0.0 if self.is_empty else before_ms + span_ms * self._aging(leaving)
        self.now_ms += span_ms
        self.produced += arriving * span_ms / 1000
        self.copied += leaving * span_ms / 1000
        if self.copied >= self.produced - _NEGLIGIBLE * max(1.0, span_ms):
            self._empty()
        self._mark_worst(leaving, before_ms, max(after_ms, self.lag_ms), span_ms)

    def _keep_up(self, span_ms: float, rate: float) -> None:
        """As `advance` where nothing lags, which is most of the time."""
        self.now_ms += span_ms
        self.produced += rate * span_ms / 1000
        self.copied = self.produced
        self._corners.clear()
        self._corners.append((self.now_ms, self.produced))
        self._rate, self._shrinking_since_ms = rate, None
        self.worst.peak = max(self.worst.peak, rate)

    def _mark_turn(self, arriving: float, leaving: float) -> None:
        if self.is_empty or leaving <= arriving:
            self._shrinking_since_ms = None
        elif self._shrinking_since_ms is None:
            self._shrinking_since_ms = self.now_ms

    def _empty(self) -> None:
        self.copied = self.produced
        self._corners.clear()
        self._corners.append((self.now_ms, self.produced))
        if self._shrinking_since_ms is not None:
            self.worst.catch_up_ms = max(self.worst.catch_up_ms, self.now_ms - self._shrinking_since_ms)
            self._shrinking_since_ms = None

    def _mark_worst(self, leaving: float, before_ms: float, lag_ms: float, span_ms: float) -> None:
        """The lag grew evenly for `span_ms`, from `before_ms` to `lag_ms`. It may have fallen then: the next
        byte is younger by a pause where nothing was produced, and there is none once all is copied.
        """
        worst = self.worst
        worst.peak = max(worst.peak, leaving)
        worst.lag_bytes = max(worst.lag_bytes, self.bytes)
        if lag_ms > worst.lag_ms + _ROUNDING_MS:
            worst.lag_ms, worst.lag_at_ms = lag_ms, self.now_ms
        if lag_ms > self.retention_ms + _ROUNDING_MS and worst.too_late_at_ms is None:
            grown_ms = max(lag_ms - before_ms, lag_ms - self.retention_ms)
            worst.too_late_at_ms = self.now_ms - span_ms * (lag_ms - self.retention_ms) / grown_ms
