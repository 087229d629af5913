"""Says when it has been looked anew which topics a route copies, to those who wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

LOOKS = 2
"""The first to end may have begun before."""
RETRY_SECONDS = 1.0
"""A look that fails does not end."""


class TopicLooks:
    """Of one copier. `look_soon`: has what the route copies decided about anew."""

    def __init__(self, look_soon: Callable[[], None]) -> None:
        self._look_soon = look_soon
        self._count = 0
        self._wanted = 0
        self._ended = asyncio.Event()

    def looked(self) -> None:
        """A look has ended."""
        self._count += 1
        self._ended.set()
        self._ended = asyncio.Event()
        if self._count < self._wanted:
            self._look_soon()

    def ask(self) -> int:
        """Have one begin; its number, for `has_ended`."""
        self._wanted = self._count + LOOKS
        self._look_soon()
        return self._wanted

    def has_ended(self, number: int) -> bool:
        """Whether the look of that number has."""
        return self._count >= number

    async def another(self) -> None:
        """Return once one has ended that began after this was called, however long that takes."""
        wanted = self.ask()
        while not self.has_ended(wanted):
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._ended.wait()
                    continue
            self._look_soon()
