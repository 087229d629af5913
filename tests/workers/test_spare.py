"""A process stands ready to be any worker, as long as it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from broker.clock import SystemClock
from mirrormaker.workers import spare as sparing
from mirrormaker.workers.orders import Be
from mirrormaker.workers.spare import Spare
from tests.client.running import until
from tests.workers.test_keeper import FakeProcess


class ReadyProcess(FakeProcess):
    """One that has not been told yet which worker it is."""

    has_ended = False

    def end(self, code: int) -> None:
        self.has_ended = True
        super().end(code)


class World:
    """A spare and all processes that were started."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.started: list[ReadyProcess] = []
        self.refusals = self.attempts = 0
        self.gate = asyncio.Event()
        """Nothing starts before it is set."""
        self.gate.set()
        self.spare = Spare(self._start, SystemClock(), tasks)

    async def _start(self) -> ReadyProcess:
        self.attempts += 1
        await self.gate.wait()
        if self.refusals:
            self.refusals -= 1
            raise OSError("no more processes")
        self.started.append(ReadyProcess(len(self.started) + 1))
        return self.started[-1]


def played(play: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks)
            await play(world)
            await world.spare.close()
            assert all(process.has_ended for process in world.started if not process.orders)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_one_that_is_ready_becomes_a_worker_and_another_takes_its_place() -> None:
    async def play(world: World) -> None:
        world.spare.want(True)
        await until(lambda: len(world.started) == 1)
        taken = await world.spare.take(7)
        assert taken is world.started[0]
        assert world.started[0].orders == [Be(number=7)]
        world.spare.want(True)
        await until(lambda: len(world.started) == 2)
        assert world.started[1].orders == []

    played(play)


def test_without_one_or_where_it_has_ended_a_process_is_started() -> None:
    async def play(world: World) -> None:
        assert (await world.spare.take(1)).pid == 1
        world.spare.want(True)
        await until(lambda: len(world.started) == 2)
        world.started[1].end(1)
        assert (await world.spare.take(2)).pid == 3

    played(play)


def test_one_that_is_wanted_no_more_is_ended_even_if_it_is_just_being_started() -> None:
    async def play(world: World) -> None:
        world.gate.clear()
        world.spare.want(True)
        await until(lambda: world.attempts == 1)
        world.spare.want(False)
        world.gate.set()
        await until(lambda: bool(world.started) and world.started[0].killed)
        world.spare.want(True)
        await until(lambda: len(world.started) == 2)
        world.spare.want(False)
        await until(lambda: world.started[1].killed)

    played(play)


@pytest.mark.parametrize("rest_ms", [0, 3_600_000])
def test_after_one_that_ended_or_could_not_be_started_there_is_none_for_a_while(
    monkeypatch: pytest.MonkeyPatch, rest_ms: int
) -> None:
    monkeypatch.setattr(sparing, "REST_MS", rest_ms)

    async def play(world: World) -> None:
        world.spare.want(True)
        await until(lambda: len(world.started) == 1)
        world.started[0].end(1)
        world.spare.want(True)
        world.refusals = 1
        for _ in range(5):
            await asyncio.sleep(0)
            world.spare.want(True)
        assert world.refusals == (1 if rest_ms else 0)
        world.refusals = 0
        assert (await world.spare.take(1)).pid == 2

    played(play)
