"""Requests that wait for bytes or for commits."""

from __future__ import annotations

import asyncio
import gc

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.replication.waits import CommitWaits, FetchWait, wait_for_bytes

LONG_MS = 60_000


class HeldWaits:
    """A partition as far as fetch waits see it."""

    def __init__(self) -> None:
        self.fetch_waits: dict[FetchWait, None] = {}
        self.follower_waits: dict[FetchWait, None] = {}
        self.prompt_waits: dict[FetchWait, None] = {}
        self.stable_waits: dict[FetchWait, int] = {}
        self.last_stable_offset = 0


def test_a_fetch_waits_until_its_partitions_together_have_enough() -> None:
    async def scenario() -> None:
        first, second = HeldWaits(), HeldWaits()
        waiting = asyncio.create_task(wait_for_bytes([first, second], 100, LONG_MS))
        await asyncio.sleep(0)
        (wait,) = first.fetch_waits
        wait.grew(60, first)
        assert not waiting.done()
        wait.grew(40, first)
        assert await waiting == {first}
        assert not first.fetch_waits
        assert not second.fetch_waits

    asyncio.run(scenario())


def test_a_fetch_is_answered_when_its_time_is_up() -> None:
    held = HeldWaits()
    asyncio.run(wait_for_bytes([held], 1, 1))
    assert not held.fetch_waits


def test_a_cancelled_fetch_leaves_its_partitions() -> None:
    async def scenario() -> None:
        held = HeldWaits()
        waiting = asyncio.create_task(wait_for_bytes([held], 1, LONG_MS))
        await asyncio.sleep(0)
        assert held.fetch_waits
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not held.fetch_waits

    asyncio.run(scenario())


def test_commits_are_told_in_order_as_the_high_watermark_moves() -> None:
    async def scenario() -> None:
        waits = CommitWaits()
        futures = [waits.add(offset) for offset in (3, 5, 9)]
        waits.advance(5)
        assert [future.done() for future in futures] == [True, True, False]
        waits.advance(9)
        assert futures[2].done()
        assert not waits

    asyncio.run(scenario())


def test_a_produce_that_gave_up_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        waits = CommitWaits()
        first, second = waits.add(3), waits.add(5)
        first.cancel()
        waits.advance(5)
        assert second.done()
        assert not second.cancelled()

    asyncio.run(scenario())


def test_a_leader_that_resigns_fails_the_commits_that_wait() -> None:
    async def scenario() -> None:
        waits = CommitWaits()
        future = waits.add(3)
        waits.fail(ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(ProtocolError):
            await future
        assert not waits

    asyncio.run(scenario())


def test_a_commit_that_nobody_waits_for_any_more_fails_quietly() -> None:
    async def scenario() -> list[object]:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        waits = CommitWaits()
        waits.add(5)
        waits.fail(ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        gc.collect()
        return told

    assert asyncio.run(scenario()) == []
