"""Room in a producer's buffer: how much is taken, and who waits for more. Owned by the producer's loop."""

from __future__ import annotations

import asyncio
from collections import deque


class BufferRoom:
    """So many bytes and records at most, but always one record; those who wait are served in order."""

    def __init__(self, size_max: int, records_max: int) -> None:
        self.used = self.records = 0
        """Bytes and records within. Whoever takes room adds to them, in the same turn of the loop as `fits`
        said yes.
        """
        self._size_max = size_max
        self._records_max = records_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def fits(self, size: int) -> bool:
        """Whether there is room for `size` bytes, and nobody who waits for room already."""
        records = self.records
        return not self._waiting and (
            not records or (records < self._records_max and self.used + size <= self._size_max)
        )

    async def wait_for(self, size: int) -> None:
        """Return when it is one's turn and there is room."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
            while not self._has(size):
                turn = asyncio.get_running_loop().create_future()
                self._waiting.appendleft(turn)
                await turn
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
            self.wake()

    def give_back(self, size: int, records: int) -> None:
        """Bytes and records have left."""
        self.used -= size
        self.records -= records
        self.wake()

    def wake(self) -> None:
        """Let the first of those who wait look again."""
        if self._waiting and self._has(1):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _has(self, size: int) -> bool:
        return not self.records or (self.records < self._records_max and self.used + size <= self._size_max)
