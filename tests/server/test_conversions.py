"""Room for converted answers: bounded in all, given in order, and not left to clients that never read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from structlog.testing import capture_logs

from broker.server.conversions import ANSWER_MAX, Conversions
from broker.server.request import Session
from tests.storage.samples import ManualClock


class Reader:
    """A client's connection: it takes what was sent to it when the test says so."""

    peer = "reader"

    def __init__(self, clock: ManualClock) -> None:
        self.last_active_ms = clock.monotonic_ms()
        self._releases: list[Callable[[], None]] = []

    def release_when_sent(self, release: Callable[[], None]) -> None:
        self._releases.append(release)

    def take_all(self) -> None:
        while self._releases:
            self._releases.pop()()

    abort = take_all


def readers(clock: ManualClock, count: int) -> list[Session]:
    return [cast(Session, Reader(clock)) for _ in range(count)]


def test_who_comes_when_all_room_is_taken_waits_until_an_answer_left() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        conversions = Conversions(clock, held_max=2 * ANSWER_MAX)
        first, second, third = readers(clock, 3)
        assert not await conversions.take_room(first)
        assert not await conversions.take_room(second)
        waiting = asyncio.create_task(conversions.take_room(third))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        cast(Reader, first).take_all()
        assert await waiting
        assert conversions.held == 2 * ANSWER_MAX
        for reader in (second, third):
            cast(Reader, reader).take_all()
        assert conversions.held == 0

    asyncio.run(scenario())


def test_an_answer_holds_what_it_came_to() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        conversions = Conversions(clock, held_max=ANSWER_MAX)
        small, large, last = readers(clock, 3)
        await conversions.take_room(small)
        conversions.settle(small, 10)
        await conversions.take_room(large)
        conversions.settle(large, 2 * ANSWER_MAX)
        assert conversions.held == 2 * ANSWER_MAX + 10
        waiting = asyncio.create_task(conversions.take_room(last))
        cast(Reader, small).take_all()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        cast(Reader, large).take_all()
        await waiting

    asyncio.run(scenario())


def test_an_answer_that_is_made_anew_has_its_room_once() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        conversions = Conversions(clock)
        (reader,) = readers(clock, 1)
        for _ in range(2):
            await conversions.take_room(reader)
            assert conversions.held == ANSWER_MAX
            conversions.settle(reader, 0)
        cast(Reader, reader).take_all()
        assert conversions.held == 0

    asyncio.run(scenario())


def test_who_stands_still_is_closed_when_others_wait_for_the_room() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        conversions = Conversions(clock, held_max=2 * ANSWER_MAX, stalled_after_ms=1)
        stalled, active, waiting = readers(clock, 3)
        for reader in (stalled, active):
            await conversions.take_room(reader)
            conversions.settle(reader, ANSWER_MAX)
        clock.advance(1)
        cast(Reader, active).last_active_ms = clock.monotonic_ms()
        with capture_logs() as logs:
            async with asyncio.timeout(20):
                assert await conversions.take_room(waiting)
        assert [event["event"] for event in logs] == ["stalled_reader_closed"]
        assert conversions.held == 2 * ANSWER_MAX
        cast(Reader, active).take_all()
        assert conversions.held == ANSWER_MAX

    asyncio.run(scenario())


def test_nobody_is_closed_for_an_answer_that_is_still_being_made() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        conversions = Conversions(clock, held_max=ANSWER_MAX, stalled_after_ms=1)
        working, waiting = readers(clock, 2)
        await conversions.take_room(working)
        clock.advance(100)
        task = asyncio.create_task(conversions.take_room(waiting))
        await asyncio.wait([task], timeout=0.01)
        assert not task.done()
        conversions.settle(working, ANSWER_MAX)
        clock.advance(1)
        async with asyncio.timeout(20):
            await task

    asyncio.run(scenario())
