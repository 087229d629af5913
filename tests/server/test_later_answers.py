"""Requests that wait for others only: those behind them are served, and answers keep their order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from broker.server import later_answers
from broker.server.connection import Answer, Connection
from broker.server.later_answers import LaterAnswer
from broker.server.request import ConnectionClosedError, Encoded
from tests.server.test_connection import connected, framed, run

LONG_MS = 60_000


class Handler:
    """Answers what begins with `later` when it is told to, `work` as work that waits for nothing, and
    everything else at once.
    """

    def __init__(self, timeout_ms: int = LONG_MS) -> None:
        self.served: list[bytes] = []
        self._came = asyncio.Event()
        self.waits: dict[bytes, asyncio.Future[None]] = {}
        self._timeout_ms = timeout_ms

    def __call__(self, _: Connection, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
        body = bytes(frame)
        self.served.append(body)
        self._came.set()
        if body == b"bad":
            raise ConnectionClosedError("unknown")
        if body == b"work":
            return self._work(body)
        if not body.startswith(b"later"):
            return (framed(body),)
        wait = self.waits[body] = asyncio.get_running_loop().create_future()
        return LaterAnswer(
            [wait], self._timeout_ms, lambda: Encoded((framed(b"late" if wait.cancelled() else body),))
        )

    def settle(self, *bodies: bytes) -> None:
        for body in bodies:
            self.waits[body].set_result(None)

    async def has_served(self, count: int) -> None:
        """Return once so many requests came."""
        while len(self.served) < count:
            self._came.clear()
            await self._came.wait()

    async def _work(self, body: bytes) -> Answer:
        return (framed(body),)


async def turns() -> None:
    """Several rounds of the event loop."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_behind_a_later_answer_are_served_and_answered_in_order() -> None:
    async def scenario() -> None:
        handler = Handler()
        bodies = [b"later 1", b"later 2", b"later 3"]
        async with connected(handler) as (peer, _, connection):
            for body in bodies:
                await peer.send(framed(body))
            await handler.has_served(3)
            assert connection.is_kept_waiting
            handler.settle(b"later 2", b"later 3")
            await turns()
            with pytest.raises(BlockingIOError):
                peer.socket.recv(1, socket.MSG_PEEK)
            handler.settle(b"later 1")
            expected = b"".join(map(framed, bodies))
            assert await peer.receive(len(expected)) == expected
            assert not connection.is_kept_waiting

    run(scenario())


@pytest.mark.parametrize("behind", [b"at once", b"work"])
def test_other_answers_leave_behind_those_that_are_later(behind: bytes) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with connected(handler) as (peer, _, _):
            await peer.send(framed(b"first") + framed(b"later") + framed(behind) + framed(b"last"))
            assert await peer.receive(9) == framed(b"first")
            await turns()
            assert handler.served == [b"first", b"later", behind]
            handler.settle(b"later")
            expected = framed(b"later") + framed(behind) + framed(b"last")
            assert await peer.receive(len(expected)) == expected

    run(scenario())


def test_an_answer_whose_time_is_up_leaves_as_it_is_then() -> None:
    async def scenario() -> None:
        async with connected(Handler(timeout_ms=1)) as (peer, _, _):
            await peer.send(framed(b"later"))
            assert await peer.receive(8) == framed(b"late")

    run(scenario())


@pytest.mark.parametrize("bound", ["ANSWERS_MAX", "REQUESTS_SIZE_MAX"])
def test_so_many_are_waited_for_before_more_is_served(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_answers, bound, 3 if bound == "ANSWERS_MAX" else len(b"later 0") * 3)

    async def scenario() -> None:
        handler = Handler()
        bodies = [b"later %d" % number for number in range(6)]
        async with connected(handler) as (peer, _, _):
            await peer.send(b"".join(map(framed, bodies)))
            await handler.has_served(3)
            await turns()
            assert len(handler.served) == 3
            handler.settle(b"later 0")
            await handler.has_served(4)
            await turns()
            assert len(handler.served) == 4
            for count, body in enumerate(bodies[1:], 2):
                await handler.has_served(min(count + 2, 6))
                handler.settle(body)
            expected = b"".join(map(framed, bodies))
            assert await peer.receive(len(expected)) == expected

    run(scenario())


def test_answers_that_the_socket_does_not_take_at_once_arrive_whole() -> None:
    async def scenario() -> None:
        bodies = [b"later %d" % number + bytes(1 << 20) for number in range(3)]
        handler = Handler()
        async with connected(handler) as (peer, _, _):
            await peer.send(b"".join(map(framed, bodies)))
            await handler.has_served(3)
            handler.settle(*bodies)
            expected = b"".join(map(framed, bodies))
            assert await peer.receive(len(expected)) == expected

    run(scenario())


@pytest.mark.parametrize("ending", ["stopped sending", "broke a rule", "node stops"])
def test_what_was_asked_for_is_answered_before_the_connection_ends(ending: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with connected(handler) as (peer, _, connection):
            await peer.send(framed(b"later"))
            await handler.has_served(1)
            match ending:
                case "stopped sending":
                    peer.socket.shutdown(socket.SHUT_WR)
                case "broke a rule":
                    await peer.send(framed(b"bad"))
                case _:
                    connection.finish()
            await turns()
            handler.settle(b"later")
            assert await peer.receive_end() == framed(b"later")

    run(scenario())


def test_nobody_is_waited_for_once_the_connection_is_closed() -> None:
    async def scenario() -> None:
        handler = Handler()
        async with connected(handler) as (peer, task, connection):
            await peer.send(framed(b"later"))
            await handler.has_served(1)
            connection.abort()
            await asyncio.wait([task])
            assert handler.waits[b"later"].cancelled()

    run(scenario())


def test_whoever_does_not_know_later_answers_awaits_them() -> None:
    async def scenario() -> None:
        wait = asyncio.get_running_loop().create_future()
        answer = LaterAnswer([wait], LONG_MS, lambda: Encoded((b"answer",)))
        task = asyncio.create_task(answer)
        await turns()
        assert not task.done()
        wait.set_result(None)
        assert await task == (b"answer",)

    run(scenario())
