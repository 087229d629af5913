"""Memory for large requests: bounded, handed out in order, never lost."""

from __future__ import annotations

import asyncio

from broker.server.request_memory import RequestMemory


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_without_a_bound_nobody_waits() -> None:
    async def scenario() -> None:
        memory = RequestMemory(-1)
        for _ in range(10):
            await memory.take(1 << 40)

    asyncio.run(scenario())


def test_one_request_may_take_more_than_is_left_and_the_next_waits() -> None:
    async def scenario() -> None:
        memory = RequestMemory(10)
        await memory.take(8)
        await memory.take(8)
        assert memory.left == -6
        waiting = asyncio.create_task(memory.take(1))
        memory.give(5)
        await turns()
        assert not waiting.done()
        memory.give(3)
        await waiting
        assert memory.left == 1

    asyncio.run(scenario())


def test_who_asked_first_is_served_first() -> None:
    order: list[int] = []

    async def ask(memory: RequestMemory, number: int) -> None:
        await memory.take(10)
        order.append(number)
        memory.give(10)

    async def scenario() -> None:
        memory = RequestMemory(10)
        await memory.take(10)
        asking = [asyncio.create_task(ask(memory, number)) for number in range(5)]
        await turns()
        memory.give(10)
        await asyncio.gather(*asking)
        assert memory.left == 10

    asyncio.run(scenario())
    assert order == list(range(5))


def test_who_gives_up_waiting_keeps_nobody_else_from_it() -> None:
    async def scenario() -> None:
        memory = RequestMemory(10)
        await memory.take(10)
        leaving, staying = (asyncio.create_task(memory.take(10)) for _ in range(2))
        await turns()
        memory.give(10)
        leaving.cancel()
        async with asyncio.timeout(20):
            await staying
        assert memory.left == 0

    asyncio.run(scenario())
