"""How late the event loop comes to what is due: while it does one thing, or waits for the disk, nobody is
served.

A timer that should ring every `LOOK_MS` tells how much later it rang. What delays one by `LOGGED_FROM_MS` or
more is logged (`loop_stalled`). A stall may also be the machine's: other processes on all of its cores.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.clock import Clock
from broker.telemetry import logger

log = logger("loop")

LOOK_MS = 250
COUNTED_FROM_MS = 10
LOGGED_FROM_MS = 200


@dataclass(slots=True, kw_only=True)
class LoopStalls:
    """The stalls of one loop so far; times in milliseconds."""

    count: int = 0
    """Those of `COUNTED_FROM_MS` and longer."""
    total_ms: int = 0
    longest_ms: int = 0

    def note(self, late_ms: int) -> bool:
        """A timer rang so much too late; True when that is to be logged."""
        if late_ms >= COUNTED_FROM_MS:
            self.count += 1
            self.total_ms += late_ms
            self.longest_ms = max(self.longest_ms, late_ms)
        return late_ms >= LOGGED_FROM_MS

    async def watch(self, clock: Clock) -> None:
        """Note the stalls of the running loop; ends by cancellation, and then logs what it saw."""
        try:
            while True:
                due_ms = clock.monotonic_ms() + LOOK_MS
                await asyncio.sleep(LOOK_MS / 1000)
                late_ms = clock.monotonic_ms() - due_ms
                if self.note(late_ms):
                    log.warning("loop_stalled", stall_ms=late_ms)
        finally:
            log.info(
                "loop_stalls_counted", count=self.count, total_ms=self.total_ms, longest_ms=self.longest_ms
            )
