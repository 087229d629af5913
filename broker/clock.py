"""The clock port: every place that needs the time is handed one, so that a simulator can own time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for waits and timeouts; both in whole milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may step when the machine's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
