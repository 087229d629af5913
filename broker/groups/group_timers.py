"""The timers of one group on the event loop: one wake-up for the earliest deadline.

It comes too early where that deadline was moved since, and is then set anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from broker.clock import Clock
from broker.groups.deadlines import Deadlines

Key = TypeVar("Key", bound=Hashable)


class GroupTimers(Generic[Key]):
    """Calls `fire` with every timer that runs out; that may set and cancel timers."""

    def __init__(self, clock: Clock, lateness_max_ms: int, fire: Callable[[Key], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._deadlines: Deadlines[Key] = Deadlines(lateness_max_ms)
        self._wake: asyncio.TimerHandle | None = None
        self._wake_due_ms = 0

    def set(self, timer: Key, delay_ms: int) -> None:
        """Fire `timer` after `delay_ms`, counted anew if it is set."""
        now_ms = self._clock.monotonic_ms()
        self._deadlines.set(timer, delay_ms, now_ms)
        if self._wake is None or now_ms + delay_ms < self._wake_due_ms:
            self._wake_at(now_ms + delay_ms, now_ms)

    def cancel(self, timer: Key) -> None:
        """Forget `timer`; nothing happens when it is not set."""
        self._deadlines.cancel(timer)

    def stop(self) -> None:
        """Forget all of them."""
        self._deadlines.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _wake_at(self, due_ms: int, now_ms: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_due_ms = due_ms
        self._wake = asyncio.get_running_loop().call_later(max(due_ms - now_ms, 0) / 1000, self._woken)

    def _woken(self) -> None:
        self._wake = None
        while (timer := self._deadlines.pop_due(self._clock.monotonic_ms())) is not None:
            self._fire(timer)
        self._wake_for_next()

    def _wake_for_next(self) -> None:
        due_ms = self._deadlines.next_due_ms
        if due_ms is not None and (self._wake is None or due_ms < self._wake_due_ms):
            self._wake_at(due_ms, self._clock.monotonic_ms())
