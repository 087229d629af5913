"""Keeps the routes that run in step with those that should: by level, one route at a time, others untouched.

`desire` may be called at any moment, also while routes of an earlier call are still on their way out: what is
left to do is found anew whenever one has ended. Owned by the event loop of the daemon; a route is one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from broker.telemetry import logger
from mirrormaker.reconcile.routes import RouteSteps, RouteWork, compare_routes
from mirrormaker.topology.model import RouteName

STOP_TIMEOUT_MS = 20_000
"""How long a route may take to finish what is in flight before it is cut off."""

_log = logger("routes")


class Runner(Protocol):
    """A route at work."""

    async def run(self) -> None:
        """Until `stop`; failures are its own business."""
        ...

    def change(self, work: RouteWork) -> None:
        """Go on with this: differs in what may change at work."""
        ...

    async def stop(self, *, for_good: bool) -> None:
        """Finish and end `run`; `for_good`: this process does not come back to it."""
        ...


RunnerType = TypeVar("RunnerType", bound=Runner)


@dataclass(slots=True)
class _Slot(Generic[RunnerType]):
    """A route of this process, its task, and what it runs with."""

    work: RouteWork
    runner: RunnerType
    task: asyncio.Task[None]


class RouteLoop(Generic[RunnerType]):
    """See the module. `make` builds the runner of a route that is to start; `tasks` runs it."""

    def __init__(self, make: Callable[[RouteWork], RunnerType], tasks: asyncio.TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._desired: Mapping[RouteName, RouteWork] = {}
        self._slots: dict[RouteName, _Slot[RunnerType]] = {}
        self._leaving: dict[RouteName, asyncio.Task[None]] = {}
        self._is_closed = False

    @property
    def runners(self) -> Collection[RunnerType]:
        """Those at work, in the order in which they are desired."""
        return [self._slots[name].runner for name in self._desired if name in self._slots]

    @property
    def awaited(self) -> Collection[RouteName]:
        """Routes that are to run once their former selves have ended."""
        return [name for name in self._desired if name not in self._slots]

    def runner(self, name: RouteName) -> RunnerType | None:
        """That of one route, None while it does not run."""
        slot = self._slots.get(name)
        return slot.runner if slot is not None else None

    def desire(self, works: Mapping[RouteName, RouteWork]) -> RouteSteps:
        """Run these from now on; none once `close` was called. Returns what is being done about it."""
        self._desired = {} if self._is_closed else dict(works)
        return self._settle()

    async def close(self, *, for_good: bool = False) -> None:
        """End every route; unless `for_good`, the next start is to find them where they were."""
        self._is_closed, self._desired = True, {}
        for name in list(self._slots):
            self._let_go(name, for_good=for_good)
        while self._leaving:
            await asyncio.wait(self._leaving.values())

    def _settle(self) -> RouteSteps:
        running = {name: slot.work for name, slot in self._slots.items()}
        steps = compare_routes(self._desired, running, self._leaving.keys())
        for work in steps.start:
            self._start(work)
        for work in steps.change:
            slot = self._slots[work.name]
            slot.work = work
            slot.runner.change(work)
        for name in steps.restart:  # in another group nobody comes back to its place
            self._let_go(name, for_good=self._desired[name].route.group != running[name].route.group)
        for name in steps.stop:
            self._let_go(name, for_good=True)
        return steps

    def _start(self, work: RouteWork) -> None:
        runner = self._make(work)
        task = self._tasks.create_task(runner.run(), name=work.name)
        self._slots[work.name] = _Slot(work, runner, task)

    def _let_go(self, name: RouteName, *, for_good: bool) -> None:
        slot = self._slots.pop(name)
        self._leaving[name] = self._tasks.create_task(self._end(slot, for_good), name=f"stop {name}")

    async def _end(self, slot: _Slot[RunnerType], for_good: bool) -> None:
        name = slot.work.name
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await slot.runner.stop(for_good=for_good)
                await asyncio.wait([slot.task])
        except TimeoutError:
            _log.warning("route_not_drained", route=name, timeout_ms=STOP_TIMEOUT_MS)
            slot.task.cancel()
            await asyncio.wait([slot.task])
        del self._leaving[name]
        self._settle()
