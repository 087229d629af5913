"""A flag that one task waits for and others set; waiting takes it down again."""

from __future__ import annotations

import asyncio


class Signal:
    """Setting it before anybody waits is not lost; setting it twice is the same as once."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Return when it is set, or when time is up; at once when it is set already. Whether it was."""
        if not self._event.is_set():
            if timeout_ms is None:
                await self._event.wait()
            else:
                await self._wait_in_time(timeout_ms)
        was_set = self._event.is_set()
        self._event.clear()
        return was_set

    async def _wait_in_time(self, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return
