"""How many runs go side by side."""

from __future__ import annotations

import asyncio

from mirrormaker.pipelines.turns import Turns


class Run:
    """Takes a turn, and keeps it until it is told."""

    def __init__(self, turns: Turns) -> None:
        self.has_turn = False
        self.over = asyncio.Event()
        self.task = asyncio.create_task(self._run(turns))

    async def _run(self, turns: Turns) -> None:
        async with turns:
            self.has_turn = True
            await self.over.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_turns_are_taken_in_order_as_many_at_once_as_is_said_just_now() -> None:
    async def main() -> None:
        turns = Turns(2)
        runs = [Run(turns) for _ in range(6)]

        async def having() -> list[int]:
            await settle()
            return [number for number, run in enumerate(runs) if run.has_turn]

        assert await having() == [0, 1]
        runs[2].task.cancel()
        runs[0].over.set()
        assert await having() == [0, 1, 3]
        turns.limit = 1
        runs[1].over.set()
        assert await having() == [0, 1, 3]
        turns.limit = 3
        assert await having() == [0, 1, 3, 4, 5]
        runs[4].task.cancel()
        late = Run(turns)
        await settle()
        assert late.has_turn
        for run in (*runs, late):
            run.over.set()
        await asyncio.gather(*(run.task for run in (*runs, late)), return_exceptions=True)
        assert turns.limit == 3

    asyncio.run(main())
