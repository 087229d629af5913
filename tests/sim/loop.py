"""An event loop of several processes on virtual time, the same at every run with the same seed.

Callbacks belong to the process in whose context they were made. Each process runs its own in the order in
which they came, as one event loop does; which process goes next is drawn. Time passes only when nobody has
anything to do. Work in threads is done in one step at a drawn time and told at another. A paused process runs
nothing, while its timers ring and messages arrive; a dead one runs what its cancelled tasks have left to do,
with every port closed to it.
"""

from __future__ import annotations

import asyncio
import heapq
import struct
import zlib
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

START_MS = 1_700_000_000_000
STEPS_AT_ONCE_MAX = 50_000
"""Callbacks without any time passing: more are a loop without end."""
THREAD_SECONDS = (0.000_05, 0.002)
"""Work in a thread begins, and its end is noticed, that much later."""

_STEP = struct.Struct(">dI")


class SimulationError(AssertionError):
    """A run that does not end, or does nothing at all."""


class Process:
    """One simulated process; `number` tells it from all others of a run."""

    __slots__ = ("context", "is_dead", "is_paused", "name", "number", "ready")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.ready: deque[events.Handle] = deque()
        self.is_paused = False
        self.is_dead = False
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"<{self.name}>"


PROCESS: ContextVar[Process] = ContextVar("process")


class _Task(asyncio.Task[Any]):
    """A task that sets keep in the same order at every run."""

    serial = 0

    def __hash__(self) -> int:
        return self.serial


class SimLoop(asyncio.BaseEventLoop):
    """See the module's description. `after_step` is called with the process that made a step."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now = 1_000.0
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._serial = 0
        self._runnable: list[Process] = []
        self._processes = 0
        self._steps_at_once = 0
        self.steps = 0
        self.digest = 0
        """Of all steps so far: two runs that differ anywhere differ here."""
        self.after_step: Callable[[Process], None] = lambda process: None
        self.set_exception_handler(self._unexpected)
        self.unexpected: list[str] = []
        """Errors that no task was there to take."""
        self.root = self.new_process("world")

    def new_process(self, name: str) -> Process:
        """A process without any work."""
        self._processes += 1
        return Process(name, self._processes)

    def time(self) -> float:
        return self._now

    def pause(self, process: Process) -> None:
        """Let it run nothing until `resume`."""
        process.is_paused = True
        if process in self._runnable:
            self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        """Let it go on with what came meanwhile."""
        process.is_paused = False
        if process.ready and process not in self._runnable:
            self._runnable.append(process)

    def end(self, process: Process) -> None:
        """The process dies: its ports look at `is_dead`, its tasks are cancelled."""
        process.is_dead = True
        self.resume(process)
        tasks = [task for task in asyncio.all_tasks(self) if getattr(task, "process", None) is process]
        for task in sorted(tasks, key=hash):
            task.cancel()

    # What asyncio asks of a loop

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        self._serial += 1
        task = _Task.__new__(_Task)
        task.serial = self._serial
        task.process = (context or copy_context()).get(PROCESS, self.root)  # type: ignore[attr-defined]
        task.__init__(coro, loop=self, name=name or f"task-{self._serial}", context=context)  # type: ignore[misc]
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        process = PROCESS.get(self.root)

        def perform() -> None:
            error: BaseException | None = None
            result = None
            if process.is_dead:
                future.cancel()
                return
            try:
                result = func(*args)
            except Exception as raised:  # noqa: BLE001  as an executor does
                error = raised
            self.call_later(self._random.uniform(*THREAD_SECONDS), tell, result, error)

        def tell(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(self._random.uniform(*THREAD_SECONDS), perform)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        return

    def _write_to_self(self) -> None:
        return

    # Steps

    def _make_ready(self, handle: events.Handle) -> None:
        process: Process = handle._context.get(PROCESS, self.root)  # type: ignore[attr-defined]
        ready = process.ready
        if not ready and not process.is_paused:
            self._runnable.append(process)
        ready.append(handle)

    def _run_once(self) -> None:
        """One callback; time passes first when there is none."""
        runnable = self._runnable
        while not runnable:
            self._pass_time()
        count = len(runnable)
        index = 0 if count == 1 else int(self._random.random() * count)
        process = runnable[index]
        self._steps_at_once += 1
        if self._steps_at_once > STEPS_AT_ONCE_MAX:
            self._steps_at_once = 0
            raise SimulationError(f"{process} goes round in circles: {process.ready[0]}")
        handle = process.ready.popleft()
        if not process.ready:
            del runnable[index]
        if handle._cancelled:
            return
        self.steps += 1
        self.digest = zlib.crc32(_STEP.pack(self._now, process.number), self.digest)
        handle._run()
        self.after_step(process)

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
        if not timers:
            raise SimulationError("everybody waits for something that will never come")
        when = timers[0][0]
        if when > self._now:
            self._now = when
            self._steps_at_once = 0
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:  # type: ignore[attr-defined]
                self._make_ready(handle)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unexpected.append(f"{context['message']}: {error!r}")


class SimClock:
    """The clock port of one machine: `skew_ms` off the others, on a monotonic clock of its own."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.skew_ms + int(self._loop.time() * 1_000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1_000)
