"""Running a test's coroutine, and waiting inside one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.backoff import Backoff

_Result = TypeVar("_Result")

QUICK = Backoff(initial_ms=1, max_ms=20)
"""Attempts that follow each other at once, nearly."""
_TIME_LIMIT_S = 20.0


def run(main: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run `main()` on a loop of its own, within a time limit."""

    async def limited() -> _Result:
        async with asyncio.timeout(_TIME_LIMIT_S):
            return await main()

    return asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; it is looked at whenever the loop has had a turn."""
    while not condition():  # noqa: ASYNC110 (any condition at all, so there is no event to wait for)
        await asyncio.sleep(0.001)


async def until_told(expected: _Result, ask: Callable[[], Awaitable[_Result]]) -> None:
    """Return once a cluster, whose nodes may hear of changes later, answers as expected."""
    while await ask() != expected:  # noqa: ASYNC110 (as `until`)
        await asyncio.sleep(0.01)
