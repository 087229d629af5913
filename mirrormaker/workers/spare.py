"""A process that stands ready to be any worker: most of what the start of one takes is to load the program,
and on a busy machine that can take longer than its place in a group is kept for it.

Owned by the daemon's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from broker.clock import Clock
from broker.telemetry import logger
from mirrormaker.workers.keeper import Process
from mirrormaker.workers.orders import Be

REST_MS = 30_000
"""So long after one that ended by itself, or could not be started, there is none."""

_log = logger("workers")


class ReadyProcess(Process, Protocol):
    """One that has not been told yet which worker it is."""

    @property
    def has_ended(self) -> bool: ...


class Spare:
    """See the module. `tasks` starts and ends processes; `close` before that ends."""

    def __init__(
        self, start: Callable[[], Awaitable[ReadyProcess]], clock: Clock, tasks: asyncio.TaskGroup
    ) -> None:
        self._start = start
        self._clock = clock
        self._tasks = tasks
        self._ready: ReadyProcess | None = None
        self._is_wanted = False
        self._change: asyncio.Task[None] | None = None
        """A process is being started or ended."""
        self._not_before_ms = 0

    async def take(self, number: int) -> Process:
        """A process that is this worker from now on: the one that is ready, or a new one. Raises OSError."""
        process, self._ready = self._ready, None
        if process is None or process.has_ended:
            process = await self._start()
        process.order(Be(number=number))
        return process

    def want(self, is_wanted: bool) -> None:
        """See that there is one soon, or none. To be called now and then: one that ended is replaced."""
        self._is_wanted = is_wanted
        if self._ready is not None and self._ready.has_ended:
            self._ready = None
            self._rest("it ended")
        if self._change is None and self._is_due():
            self._change = self._tasks.create_task(self._follow(), name="spare worker")

    def _is_due(self) -> bool:
        if self._is_wanted:
            return self._ready is None and self._clock.monotonic_ms() >= self._not_before_ms
        return self._ready is not None

    async def _follow(self) -> None:
        """Start or end what is wanted or not by now."""
        try:
            while self._is_due():
                if self._ready is None:
                    self._ready = await self._start()
                else:
                    process, self._ready = self._ready, None
                    process.kill()
                    await process.ended()
        except OSError as error:
            self._rest(f"cannot be started: {error}")
        finally:
            self._change = None

    def _rest(self, why: str) -> None:
        self._not_before_ms = self._clock.monotonic_ms() + REST_MS
        _log.warning("spare_worker_missing", how=why, restart_in_ms=REST_MS)

    async def close(self) -> None:
        """Have none any more."""
        self.want(False)
        if self._change is not None:
            await asyncio.wait([self._change])
