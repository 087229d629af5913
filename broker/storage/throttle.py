"""How fast several threads or tasks may read and write, all together."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Lock


class Throttle:
    """A budget of bytes per second, shared by threads: who has spent waits until it is earned again. Where it
    is 0 that takes for ever.
    """

    def __init__(self, bytes_per_second: float, *, monotonic: Callable[[], float]) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._earned_at = monotonic()
        self._lock = Lock()

    def spend(self, size: int) -> float:
        """Count bytes that were read or written; how many seconds to wait before the next. Any thread."""
        with self._lock:
            now = self._monotonic()
            seconds = size / self._bytes_per_second if self._bytes_per_second else inf
            self._earned_at = max(self._earned_at, now) + seconds
            return self._earned_at - now
