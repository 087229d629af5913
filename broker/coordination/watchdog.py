"""Notices from outside that the event loop hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable


class LoopWatchdog:
    """A thread that notices when the event loop has not turned for `limit_ms`, and says so once until
    `reset`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_ms: int, on_hang: Callable[[], None]) -> None:
        self._loop = loop
        self._limit_seconds = limit_ms / 1000
        self._on_hang = on_hang
        self._beat_seconds = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="zookeeper-watchdog", daemon=True)
        self.fired = False

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def reset(self) -> None:
        """Watch again after a hang. Called on the loop."""
        self._beat_seconds = time.monotonic()
        self.fired = False

    def stop(self) -> None:
        """End the thread and the beat; not to be called on the loop's thread."""
        self._stopped.set()
        self._thread.join()
        if self._timer is not None:
            self._loop.call_soon_threadsafe(self._timer.cancel)

    def _beat(self) -> None:
        self._beat_seconds = time.monotonic()
        self._timer = self._loop.call_later(self._limit_seconds / 4, self._beat)

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit_seconds / 4):
            if not self.fired and time.monotonic() - self._beat_seconds > self._limit_seconds:
                self.fired = True
                self._on_hang()
