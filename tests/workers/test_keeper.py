"""A worker is kept running: replaced at once or after a wait, killed when it hangs, ended when asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.workers import keeper as keeping
from mirrormaker.workers.keeper import WorkerKeeper
from mirrormaker.workers.orders import GarbledLineError, Leave, Order, Run
from tests.client.running import until

FIRST, SECOND = (Run(source=TopologyText(text=text, file=Path("t.yaml"))) for text in ("one", "two"))
PICTURE = {"routes": {}, "at_ms": 0, "digest": ""}


class FakeProcess:
    """Tells pictures until it ends."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.orders: list[Order] = []
        self.is_deaf = False
        """Ends by SIGKILL alone."""
        self.killed = False
        self._pictures: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def tell(self, picture: dict[str, Any] | Exception) -> None:
        self._pictures.put_nowait(picture)

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)
            self._pictures.put_nowait(None)

    def order(self, order: Order) -> None:
        self.orders.append(order)
        if isinstance(order, Leave) and not self.is_deaf:
            self.end(0)

    async def picture(self, timeout_ms: float) -> dict[str, Any] | None:
        told = await self._pictures.get()
        if isinstance(told, Exception):
            raise told
        return told

    def terminate(self) -> None:
        if not self.is_deaf:
            self.end(0)

    def kill(self) -> None:
        self.killed = True
        self.end(-9)

    async def ended(self) -> int:
        return await self._code


class SettableClock(SystemClock):
    """Goes on as clocks do, `ahead_ms` further."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


class World:
    """A keeper and its processes."""

    def __init__(self) -> None:
        self.processes: list[FakeProcess] = []
        self.refusals = 0
        self.absences = 0
        self.clock = SettableClock()
        self.keeper = WorkerKeeper(
            1,
            FIRST,
            start=self._start,
            on_absence=self._count_absence,
            on_picture=lambda: None,
            clock=self.clock,
        )

    async def _start(self) -> FakeProcess:
        if self.refusals:
            self.refusals -= 1
            raise OSError("no more processes")
        self.processes.append(FakeProcess(len(self.processes) + 1))
        return self.processes[-1]

    async def _count_absence(self) -> None:
        self.absences += 1

    async def started(self, count: int) -> FakeProcess:
        """Until so many processes have been started; the last one."""
        await until(lambda: len(self.processes) == count and bool(self.processes[-1].orders))
        return self.processes[-1]


def played(play: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World()
            tasks.create_task(world.keeper.run())
            await play(world)
            await world.keeper.stop(for_good=False)

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "RESTART_BACKOFF", keeping.Backoff(initial_ms=1, max_ms=2))
    monkeypatch.setattr(keeping, "STOP_TIMEOUT_MS", 50)


def test_a_worker_that_tells_nothing_any_more_is_told_of() -> None:
    async def play(world: World) -> None:
        worker = await world.started(1)
        assert world.keeper.describe()["state"] == "starting"
        for _ in range(2):
            worker.tell(PICTURE)
            await until(lambda: world.keeper.describe()["state"] == "running")
            assert world.keeper.describe()["problem"] is None
            world.clock.ahead_ms += keeping.SILENCE_TOLD_MS
            told = world.keeper.describe()
            assert (told["state"], told["pid"]) == ("silent", 1)
            assert "told nothing for 5 s" in told["problem"]

    played(play)


def test_a_worker_that_ends_is_replaced_at_once_and_runs_the_newest_topology() -> None:
    async def play(world: World) -> None:
        first = await world.started(1)
        world.keeper.order(SECOND)
        assert first.orders == [FIRST, SECOND]
        first.tell(PICTURE)
        await until(lambda: world.keeper.picture is not None)
        first.end(-9)
        second = await world.started(2)
        assert second.orders == [SECOND]
        assert (world.keeper.picture, world.keeper.pid) == (None, 2)
        assert (world.keeper.restarts, world.absences) == (1, 0)

    played(play)


def test_one_that_ends_again_and_again_leaves_its_share_to_others() -> None:
    async def play(world: World) -> None:
        for count in range(1, 5):
            (await world.started(count)).end(1)
        await world.started(5)
        assert (world.keeper.failures, world.absences) == (4, 3)

    played(play)


def test_what_failed_is_told_until_another_tells_of_itself_and_counts_until_that_has_run_for_long() -> None:
    async def play(world: World) -> None:
        (await world.started(1)).end(3)
        second = await world.started(2)
        told = world.keeper.describe()
        assert (told["state"], told["problem"]) == ("starting", "the process before ended: exit 3")
        second.tell(PICTURE)
        await until(lambda: world.keeper.picture is not None)
        told = world.keeper.describe()
        assert (told["state"], told["problem"], told["failures"]) == ("running", None, 1)
        world.clock.ahead_ms = keeping.GOOD_RUN_MS + 1
        assert (world.keeper.failures, world.keeper.restarts) == (0, 1)

    played(play)


def test_one_that_cannot_be_started_is_tried_again() -> None:
    async def play(world: World) -> None:
        world.refusals = 3
        (await world.started(1)).end(1)
        await world.started(2)
        assert not world.refusals

    played(play)


def test_one_whose_pictures_were_not_read_for_long_is_not_taken_for_silent() -> None:
    async def play(world: World) -> None:
        worker = await world.started(1)
        worker.tell(TimeoutError())
        worker.tell(PICTURE)
        await until(lambda: world.keeper.describe()["state"] == "running")
        assert (len(world.processes), worker.killed) == (1, False)

    played(play)


@pytest.mark.parametrize("troubles", [[TimeoutError(), TimeoutError()], [GarbledLineError("what?")]])
def test_one_that_is_silent_or_talks_nonsense_is_killed_and_replaced(troubles: list[Exception]) -> None:
    async def play(world: World) -> None:
        first = await world.started(1)
        first.is_deaf = True
        for trouble in troubles:
            first.tell(trouble)
        await world.started(2)
        assert first.killed

    played(play)


@pytest.mark.parametrize("for_good", [False, True])
def test_stopping_lets_it_finish_and_replaces_it_no_more(for_good: bool) -> None:
    async def play(world: World) -> None:
        process = await world.started(1)
        await world.keeper.stop(for_good=for_good)
        assert (process.orders[-1] == Leave()) is for_good
        assert len(world.processes) == 1
        assert world.keeper.pid is None

    played(play)


def test_one_that_does_not_end_when_asked_to_is_killed() -> None:
    async def play(world: World) -> None:
        process = await world.started(1)
        process.is_deaf = True
        await world.keeper.stop(for_good=True)
        assert process.killed

    played(play)
