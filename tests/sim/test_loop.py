"""What the simulator's event loop promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tests.sim.loop import PROCESS, SimLoop, SimulationError


def run(live: Callable[[SimLoop], Coroutine[Any, Any, None]], seed: int = 1) -> SimLoop:
    """Run something in the world's own process."""
    loop = SimLoop(Random(seed))
    try:
        loop.run_until_complete(live(loop))
    finally:
        loop.close()
    return loop


def test_time_passes_only_while_nobody_has_anything_to_do() -> None:
    async def live(loop: SimLoop) -> None:
        begun = loop.time()
        for _ in range(100):
            await asyncio.sleep(0)
        assert loop.time() == begun
        await asyncio.sleep(3600)
        assert loop.time() == begun + 3600

    run(live)


def test_a_process_does_its_own_things_in_order_and_others_in_between() -> None:
    done: list[tuple[str, int]] = []

    async def live(loop: SimLoop) -> None:
        for name in ("a", "b"):
            process = loop.new_process(name)
            for number in range(20):
                loop.call_soon(done.append, (name, number), context=process.context)
        await asyncio.sleep(1)

    run(live)
    assert [number for name, number in done if name == "a"] == list(range(20))
    assert [number for name, number in done if name == "b"] == list(range(20))
    assert done != sorted(done)


def test_a_paused_process_does_what_it_missed_when_it_goes_on() -> None:
    done: list[float] = []

    async def live(loop: SimLoop) -> None:
        process = loop.new_process("p")
        begun = loop.time()
        loop.pause(process)
        loop.call_later(1, lambda: done.append(loop.time() - begun), context=process.context)
        await asyncio.sleep(5)
        assert not done
        loop.resume(process)
        await asyncio.sleep(1)

    run(live)
    assert done == [5]


def test_a_process_that_ends_has_its_tasks_cancelled_and_no_work_done_in_threads() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            done.append(PROCESS.get().name)
            await asyncio.to_thread(done.append, "in a thread")

    async def live(loop: SimLoop) -> None:
        process = loop.new_process("p")
        task = loop.create_task(work(), context=process.context)
        await asyncio.sleep(1)
        loop.end(process)
        await asyncio.wait([task])

    run(live)
    assert done == ["p"]


def test_work_in_threads_is_done_later_and_its_errors_are_told() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def live(loop: SimLoop) -> None:
        begun = loop.time()
        assert await asyncio.to_thread(lambda: 7) == 7
        assert loop.time() > begun
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(fail)

    run(live)


def test_a_wait_for_nothing_and_a_loop_without_end_are_told() -> None:
    async def wait(loop: SimLoop) -> None:
        await loop.create_future()

    async def circle(loop: SimLoop) -> None:
        while loop.is_running():  # noqa: ASYNC110  just that
            await asyncio.sleep(0)

    for live, told in ((wait, "never come"), (circle, "circles")):
        loop = SimLoop(Random(1))
        task = loop.create_task(live(loop))
        with pytest.raises(SimulationError, match=told):
            loop.run_until_complete(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
