"""Memory for large requests while they are received and served: `queued.max.request.bytes`.

Whoever is promised memory for a request may finish it, so as long as any is left the next one is let in even
if it takes more than that, as in Kafka; so the bound is exceeded by one request at most, and nobody waits for
anybody who waits. What every connection has anyway, a buffer for small requests, does not count.
"""

from __future__ import annotations

import asyncio
from collections import deque


class RequestMemory:
    """One for the connections of a loop; `bytes_max` below 1: any amount."""

    def __init__(self, bytes_max: int) -> None:
        self.is_bounded = bytes_max > 0
        self._left = bytes_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def left(self) -> int:
        """Bytes that nobody has; below 0 when the last request let in was larger than what was left."""
        return self._left

    @property
    def is_free(self) -> bool:
        """Whether nobody who asks now has to wait."""
        return not self.is_bounded or (self._left > 0 and not self._waiting)

    async def take(self, size: int) -> None:
        """Return once `size` bytes may be used, in the order of asking; they are to be given back."""
        if not self.is_bounded:
            return
        must_queue = bool(self._waiting)
        while self._left <= 0 or must_queue:
            must_queue = False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()
                raise
        self._left -= size
        self._wake()

    def give(self, size: int) -> None:
        """Bytes that were taken are free again."""
        if self.is_bounded:
            self._left += size
            self._wake()

    def _wake(self) -> None:
        """Let the first one in that waits, if there is anything left; he wakes the next."""
        if self._left > 0:
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
