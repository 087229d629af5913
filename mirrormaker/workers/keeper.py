"""Keeps one worker of a daemon running, whatever becomes of its processes.

A worker that ends is replaced at once: its place in the groups of its routes is kept for it meanwhile, and
nobody else notices. One that ends again soon after its start is replaced after a wait that grows, and
`on_absence` has others take over what was its share. One that is silent is taken for one that hangs, and
killed. Owned by the daemon's event loop; `run` it as a task.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from broker.client.backoff import Backoff
from broker.clock import Clock
from broker.telemetry import logger
from mirrormaker.workers.orders import GarbledLineError, Hear, Heed, Hold, Leave, Order, Run

RESTART_BACKOFF = Backoff(initial_ms=500, max_ms=30_000)
GOOD_RUN_MS = 30_000
"""A worker that ran so long is replaced without a wait."""
SILENCE_MS = 30_000
"""A worker tells of itself every second; one that is starved of its processor may be late."""
SILENCE_TOLD_MS = 5_000
"""So late it is told of: what it told last may be true no more."""
START_MS = 120_000
"""It may be silent so long at first: killed sooner, one on a starved machine would never come to work."""
SECOND_LOOK_MS = 2_000
"""Is given to one that seems silent, as the process that stood still may be this one: what it was told
meanwhile lies there unread, and where both stood still the other wants a moment.
"""
STOP_TIMEOUT_MS = 25_000
"""How long a worker may take to end once it is asked to; its routes have a little less."""


class Process(Protocol):
    """A process of the worker; see `workers/process`."""

    pid: int

    def order(self, order: Order) -> None: ...

    async def picture(self, timeout_ms: float) -> dict[str, Any] | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def ended(self) -> int: ...


class WorkerKeeper:
    """See the module."""

    def __init__(
        self,
        number: int,
        order: Run,
        *,
        start: Callable[[], Awaitable[Process]],
        on_absence: Callable[[], Awaitable[None]],
        on_picture: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`on_picture`: there is a new one."""
        self.number = number
        self.picture: Mapping[str, Any] | None = None
        """What the process that runs told last; None while there is none, or it has not told yet."""
        self.restarts = 0
        self._failures = 0
        self._how: str | None = None
        """The process before the present one ended so."""
        self._started_ms = 0
        """When the last one was, on the clock that never goes back."""
        self._order = order
        self._told: dict[type[Order], Order] = {}
        """What a process is told at its start, besides what to run."""
        self._start = start
        self._on_absence = on_absence
        self._on_picture = on_picture
        self._clock = clock
        self._heard_ms = 0
        """When it told last."""
        self._process: Process | None = None
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()
        self._leaves = False
        self._log = logger("workers").bind(worker=number)

    @property
    def pid(self) -> int | None:
        """Of the process that runs, None while there is none."""
        return self._process.pid if self._process is not None else None

    @property
    def failures(self) -> int:
        """How often in a row a process ended soon after its start; 0 once one has run for long."""
        ran_ms = self._clock.monotonic_ms() - self._started_ms
        return 0 if self._process is not None and ran_ms > GOOD_RUN_MS else self._failures

    def order(self, order: Run) -> None:
        """Have it run this from now on."""
        self._order = order
        if self._process is not None:
            self._process.order(order)

    def tell(self, order: Heed | Hear | Hold) -> None:
        """Have it go by this from now on, and whoever takes its place."""
        self._told[type(order)] = order
        if self._process is not None:
            self._process.order(order)

    def describe(self) -> dict[str, Any]:
        """The worker as plain data; times in milliseconds since the epoch."""
        picture = self.picture or {}
        state, problem = "starting" if self._process is not None else "down", self._how
        if self.picture is not None:
            state, problem = "running", picture.get("problem")
            silent_ms = self._clock.monotonic_ms() - self._heard_ms
            if silent_ms >= SILENCE_TOLD_MS:
                state, problem = "silent", f"it told nothing for {silent_ms // 1000} s, what is told is older"
        return {
            "number": self.number,
            "pid": self.pid,
            "state": state,
            "restarts": self.restarts,
            "failures": self.failures,
            "problem": problem,
            "started_ms": picture.get("started_ms"),
            "resident_bytes": picture.get("resident_bytes"),
            "cpu_seconds": picture.get("cpu_seconds"),
            "partitions": {
                name: len(route["partitions"]) for name, route in picture.get("routes", {}).items()
            },
        }

    async def run(self) -> None:
        """Keep it running until `stop`."""
        try:
            while not self._ending.is_set():
                self._started_ms = self._clock.monotonic_ms()
                try:
                    how = await self._run_once()
                except OSError as error:
                    how = f"cannot be started: {error}"
                if not self._ending.is_set():
                    await self._replace(how, self._clock.monotonic_ms() - self._started_ms)
        finally:
            self._ended.set()

    async def stop(self, *, for_good: bool) -> None:
        """Have its process finish what is in flight and end. `for_good`: others get its partitions."""
        self._leaves = for_good
        self._ending.set()
        self._ask_to_end()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self._ended.wait()
        except TimeoutError:
            self._log.warning("worker_not_drained", timeout_ms=STOP_TIMEOUT_MS)
            if self._process is not None:
                self._process.kill()
            await self._ended.wait()

    def _ask_to_end(self) -> None:
        if self._process is None:
            return
        if self._leaves:
            self._process.order(Leave())
        else:
            self._process.terminate()

    async def _run_once(self) -> str:
        """One process, from its start to its end; returns how it ended. Raises OSError."""
        process = self._process = await self._start()
        try:
            for told in self._told.values():
                process.order(told)
            process.order(self._order)
            if self._ending.is_set():
                self._ask_to_end()
            why = await self._follow(process)
            code = await process.ended()
            return why or f"exit {code}"
        finally:
            process.kill()
            self._process = self.picture = None

    async def _follow(self, process: Process) -> str | None:
        """Take its pictures until there are no more. Returns why it was killed, None when it was not."""
        try:
            patience_ms = START_MS
            while (picture := await _next_picture(process, patience_ms)) is not None:
                self.picture, patience_ms = picture, SILENCE_MS
                self._heard_ms = self._clock.monotonic_ms()
                self._on_picture()
        except TimeoutError:
            why = f"silent for {patience_ms} ms"
        except GarbledLineError as error:
            why = str(error)
        else:
            return None
        process.kill()
        return why

    async def _replace(self, how: str, ran_ms: int) -> None:
        """Wait as long as is due before the next start."""
        self._how = f"the process before ended: {how}"
        self._failures = 1 if ran_ms > GOOD_RUN_MS else self._failures + 1
        self.restarts += 1
        wait_ms = RESTART_BACKOFF.delay_ms(self._failures - 1, random.random) if self._failures > 1 else 0
        self._log.error("worker_ended", how=how, failures=self._failures, restart_in_ms=round(wait_ms))
        if self._failures == 1:
            return
        await self._on_absence()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._ending.wait()
        except TimeoutError:
            return


async def _next_picture(process: Process, patience_ms: int) -> dict[str, Any] | None:
    """Raises as `WorkerProcess.picture`."""
    try:
        return await process.picture(patience_ms)
    except TimeoutError:
        return await process.picture(SECOND_LOOK_MS)
