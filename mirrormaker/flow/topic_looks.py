"""Lets others wait until it has been looked anew which topics a route copies."""

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
        self._ended = asyncio.Event()

    def looked(self) -> None:
        """A look has ended."""
        self._count += 1
        self._ended.set()
        self._ended = asyncio.Event()

    async def another(self) -> None:
        """Return once one has ended that began after this was called, however long that takes."""
        wanted = self._count + LOOKS
        while self._count < wanted:
            self._look_soon()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._ended.wait()
