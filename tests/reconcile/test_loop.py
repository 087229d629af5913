"""Routes are started, changed and ended as they are desired, whatever is still on its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest

from mirrormaker.reconcile import loop
from mirrormaker.reconcile.loop import RouteLoop
from mirrormaker.reconcile.routes import RouteWork
from tests.reconcile.test_routes import ANEW, LIVE, work


@dataclass(eq=False)
class FakeRunner:
    """Ends when it is stopped and let go."""

    work: RouteWork
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    for_good: bool | None = None

    async def run(self) -> None:
        await self.may_end.wait()

    def change(self, work: RouteWork) -> None:
        self.work = work

    async def stop(self, *, for_good: bool) -> None:
        self.for_good = for_good


class World:
    """A loop, and every runner that it ever made."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.made: list[FakeRunner] = []
        self.routes = RouteLoop(self._make, tasks)

    def _make(self, work: RouteWork) -> FakeRunner:
        self.made.append(FakeRunner(work))
        return self.made[-1]

    def desire(self, *works: RouteWork) -> None:
        self.routes.desire({wanted.name: wanted for wanted in works})

    async def end(self) -> None:
        for runner in self.made:
            runner.may_end.set()
        await self.routes.close()


def played(play: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks)
            await play(world)
            await world.end()

    asyncio.run(run())


async def turns() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


A, B = work("a"), work("b")


def test_a_change_that_a_route_can_take_does_not_end_it() -> None:
    async def play(world: World) -> None:
        world.desire(A, B)
        changed = LIVE["more topics"](A)
        world.desire(changed, B)
        await turns()
        assert [runner.work for runner in world.made] == [changed, B]
        assert [runner.for_good for runner in world.made] == [None, None]

    played(play)


def test_a_route_starts_anew_only_when_its_former_self_has_ended() -> None:
    async def play(world: World) -> None:
        world.desire(A, B)
        anew = ANEW["other addresses"](A)
        world.desire(anew, B)
        await turns()
        former, other = world.made
        assert (former.for_good, other.for_good) == (False, None)
        world.desire(anew, B)
        former.may_end.set()
        await turns()
        assert [runner.work for runner in world.made] == [A, B, anew]

    played(play)


def test_a_route_that_is_wanted_no_more_leaves_for_good_and_may_come_back() -> None:
    async def play(world: World) -> None:
        world.desire(A)
        world.desire()
        await turns()
        (former,) = world.made
        assert former.for_good is True
        world.desire(A)
        await turns()
        assert world.made == [former]
        former.may_end.set()
        await turns()
        assert [runner.work for runner in world.routes.runners] == [A]
        assert world.routes.runners != [former]

    played(play)


def test_nothing_starts_any_more_once_all_are_to_end() -> None:
    async def play(world: World) -> None:
        world.desire(A)
        ending = asyncio.create_task(world.routes.close())
        await turns()
        world.desire(ANEW["other addresses"](A), B)
        (former,) = world.made
        former.may_end.set()
        await turns()
        assert ending.done()
        assert world.made == [former]

    played(play)


def test_a_route_that_does_not_end_in_time_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STOP_TIMEOUT_MS", 1)

    async def play(world: World) -> None:
        world.desire(A)
        await world.routes.close()
        assert not world.routes.runners

    played(play)
