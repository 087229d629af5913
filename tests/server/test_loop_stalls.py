"""A loop that is late is noticed, counted and told of."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from broker.server.loop_stalls import COUNTED_FROM_MS, LOGGED_FROM_MS, LOOK_MS, LoopStalls


@pytest.mark.parametrize(
    ("late_ms", "count", "is_logged"),
    [
        (-1, 0, False),
        (COUNTED_FROM_MS - 1, 0, False),
        (COUNTED_FROM_MS, 1, False),
        (LOGGED_FROM_MS, 1, True),
    ],
)
def test_stalls_are_counted_from_one_length_and_logged_from_another(
    late_ms: int, count: int, is_logged: bool
) -> None:
    stalls = LoopStalls()
    assert stalls.note(late_ms) == is_logged
    assert stalls.count == count


def test_the_longest_stall_and_their_sum_are_kept() -> None:
    stalls = LoopStalls()
    for late_ms in (20, 50, 30, 3):
        stalls.note(late_ms)
    assert (stalls.count, stalls.longest_ms, stalls.total_ms) == (3, 50, 100)


class JumpingClock:
    """Shows a time that is later by a step at each look; says when it was looked at often enough."""

    def __init__(self, step_ms: int) -> None:
        self.seen = asyncio.Event()
        self._step_ms = step_ms
        self._now_ms = 0

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        self._now_ms += self._step_ms
        if self._now_ms >= 3 * self._step_ms:
            self.seen.set()
        return self._now_ms


def test_a_timer_that_rings_late_is_a_stall() -> None:
    stalls = LoopStalls()

    async def scenario() -> None:
        clock = JumpingClock(LOOK_MS + 40)
        watching = asyncio.create_task(stalls.watch(clock))
        async with asyncio.timeout(20):
            await clock.seen.wait()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    asyncio.run(scenario())
    assert stalls.longest_ms == 40
