"""Whether a route keeps to what its file promises of its lag. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

QUIET_MS = 5_000
"""Kept for so long, a promise counts as kept again: a lag that swings about it is one breach."""


class Change(Enum):
    """What a look found out."""

    BREACHED = "lag_objective_breached"
    RECOVERED = "lag_objective_recovered"


@dataclass(slots=True)
class LagObjective:
    """One route's, in one process. Look about once a second."""

    lag_seconds: int | None = None
    """What is promised; None: nothing."""
    breaches: int = 0
    breached_ms: int = 0
    """In breach, all together."""
    worst_seconds: float = 0.0
    """Of the breach at hand, or the last one."""
    is_breached: bool = False
    _since_ms: int | None = None
    _kept_since_ms: int | None = None
    _looked_at_ms: int | None = None

    def look(self, lag_seconds: float | None, now_ms: int) -> Change | None:
        """The lag is so; None: not known, which leaves things as they are."""
        if self.is_breached and self._looked_at_ms is not None:
            self.breached_ms += now_ms - self._looked_at_ms
        self._looked_at_ms = now_ms
        if self.lag_seconds is None:
            return self._end() if self.is_breached else None
        if lag_seconds is None:
            return None
        if lag_seconds > self.lag_seconds:
            self._kept_since_ms = None
            return self._exceed(lag_seconds, now_ms)
        if not self.is_breached:
            return None
        if self._kept_since_ms is None:
            self._kept_since_ms = now_ms
        return self._end() if now_ms - self._kept_since_ms >= QUIET_MS else None

    def _exceed(self, lag_seconds: float, now_ms: int) -> Change | None:
        self.worst_seconds = max(lag_seconds, self.worst_seconds if self.is_breached else 0.0)
        if self.is_breached:
            return None
        self.is_breached, self._since_ms = True, now_ms
        self.breaches += 1
        return Change.BREACHED

    def _end(self) -> Change:
        self.is_breached, self._since_ms, self._kept_since_ms = False, None, None
        return Change.RECOVERED

    def _state(self, lag_seconds: float | None) -> str:
        if self.lag_seconds is None:
            return "none"
        return "breached" if self.is_breached else "unknown" if lag_seconds is None else "kept"

    def describe(self, lag_seconds: float | None, wall_shift_ms: int) -> dict[str, Any] | None:
        """As plain data, times since the epoch; None where nothing is promised, nor was. Of what was, the
        breaches go on to be told, as they go on to count when it is promised again.
        """
        if self.lag_seconds is None and not self.breaches:
            return None
        since_ms = None if self._since_ms is None else self._since_ms + wall_shift_ms
        return {
            "lag_seconds": self.lag_seconds,
            "state": self._state(lag_seconds),
            "since_ms": since_ms,
            "lag": lag_seconds,
            "worst": round(self.worst_seconds, 3),
            "breaches": self.breaches,
            "breached_ms": self.breached_ms,
        }
