"""Whether a consumer's reader still comes for records: heartbeats alone would keep the partitions of one that
hangs (KIP-62).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.telemetry import logger

_log = logger("consumer")


class ReaderWatch:
    """Tells when the reader has stayed away for longer than `limit_ms`, and when it is back."""

    def __init__(self, limit_ms: float, *, on_gone: Callable[[], None], on_back: Callable[[], None]) -> None:
        self._limit_ms = limit_ms
        self._on_gone = on_gone
        self._on_back = on_back
        self._loop = asyncio.get_running_loop()
        self._readers = 0
        self._left_at = self._loop.time()
        self._back = asyncio.Event()
        self._back.set()

    def came(self) -> None:
        """The reader asks for records; `left` is to follow."""
        self._readers += 1
        if not self._back.is_set():
            self._back.set()
            self._on_back()

    def left(self) -> None:
        """The reader has what it asked for, and works on it."""
        self._readers -= 1
        self._left_at = self._loop.time()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._back.wait()
            left_s = self._limit_ms / 1000
            if not self._readers:
                left_s -= self._loop.time() - self._left_at
            if left_s > 0:
                await asyncio.sleep(left_s)
                continue
            _log.warning("reader_stayed_away", limit_ms=self._limit_ms)
            self._back.clear()
            self._on_gone()
