"""One connection: answers in order, pipelining, waiting requests, peers that leave or do not read."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.errors import WireError
from broker.server.answer_stream import COPIED_RANGE_SIZE_MAX
from broker.server.config import ConnectionLimits
from broker.server.connection import Answer, Connection, Dispatch
from broker.server.request import ConnectionClosedError
from broker.server.request_memory import RequestMemory
from broker.server.security import Listener, SecurityProtocol
from broker.storage.disk import SystemDisk
from broker.storage.file_range import FileRange
from broker.storage.open_files import FilePool
from broker.types import HostPort

LISTENER = Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, address=HostPort("127.0.0.1", 0))
DEADLINE_SECONDS = 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Peer:
    """The client's end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def receive(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        received = b""
        while len(received) < count:
            chunk = await self._loop.sock_recv(self.socket, count - len(received))
            assert chunk, f"closed after {len(received)} of {count} bytes"
            received += chunk
        return received

    async def receive_end(self) -> bytes:
        """Everything until the other end closes."""
        received = b""
        while chunk := await self._loop.sock_recv(self.socket, 65536):
            received += chunk
        return received


@asynccontextmanager
async def connected(
    dispatch: Dispatch, limits: ConnectionLimits | None = None, memory: RequestMemory | None = None
) -> AsyncIterator[tuple[Peer, asyncio.Task[None], Connection]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    disk_threads = ThreadPoolExecutor(1)
    connection = Connection(
        ours,
        HostPort("peer", 1),
        LISTENER,
        dispatch=dispatch,
        limits=limits or ConnectionLimits(),
        memory=memory or RequestMemory(-1),
        clock=SystemClock(),
        disk_threads=disk_threads,
    )
    task = asyncio.create_task(connection.run())
    try:
        yield Peer(theirs), task, connection
    finally:
        theirs.close()
        task.cancel()
        await asyncio.wait([task])
        disk_threads.shutdown()


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario

    asyncio.run(bounded())


def echo(connection: Connection, frame: memoryview) -> Answer:
    return (framed(bytes(frame)),)


def test_pipelined_requests_of_one_read_are_all_answered_in_order() -> None:
    async def scenario() -> None:
        async with connected(echo) as (peer, _, _):
            stream = b"".join(framed(str(number).encode()) for number in range(1000))
            await peer.send(stream)
            assert await peer.receive(len(stream)) == stream

    run(scenario())


def test_a_request_that_waits_holds_back_the_answers_behind_it_and_no_earlier_ones() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def later(body: bytes) -> Answer:
            await gate.wait()
            return (framed(body),)

        def dispatch(_: Connection, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
            body = bytes(frame)
            return later(body) if body == b"wait" else (framed(body),)

        async with connected(dispatch) as (peer, _, _):
            await peer.send(framed(b"before") + framed(b"wait") + framed(b"after"))
            assert await peer.receive(10) == framed(b"before")
            gate.set()
            assert await peer.receive(17) == framed(b"wait") + framed(b"after")

    run(scenario())


def test_what_need_not_wait_is_answered_without_waking_the_connections_task() -> None:
    async def scenario() -> None:
        tasks: list[asyncio.Task[Any] | None] = []

        def dispatch(connection: Connection, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
            tasks.append(asyncio.current_task())
            return later(frame) if frame == b"later" else (framed(bytes(frame)),)

        async def later(frame: memoryview) -> Answer:
            tasks.append(asyncio.current_task())
            return (framed(bytes(frame)),)

        async with connected(dispatch) as (peer, task, _):
            for body in (b"first", b"later", b"last"):
                await peer.send(framed(body))
                assert await peer.receive(4 + len(body)) == framed(body)
            assert tasks == [None, None, task, None]

    run(scenario())


def test_work_that_the_task_has_not_begun_is_closed_with_the_connection() -> None:
    async def scenario() -> None:
        begun: list[bytes] = []

        async def work(frame: memoryview) -> Answer:
            begun.append(bytes(frame))
            return None

        def dispatch(connection: Connection, frame: memoryview) -> Coroutine[Any, Any, Answer]:
            connection.abort()
            return work(frame)

        async with connected(dispatch) as (peer, task, _):
            await peer.send(framed(b"request"))
            assert await peer.receive_end() == b""
            await asyncio.wait([task])
            assert (task.cancelled(), begun) == (True, [])

    run(scenario())


def test_an_error_of_ours_ends_the_connection_and_reaches_its_owner() -> None:
    async def scenario() -> None:
        def dispatch(connection: Connection, frame: memoryview) -> Answer:
            raise LookupError(bytes(frame))

        async with connected(dispatch) as (peer, task, _):
            await peer.send(framed(b"request"))
            assert await peer.receive_end() == b""
            await asyncio.wait([task])
            assert isinstance(task.exception(), LookupError)

    run(scenario())


def test_a_request_may_have_no_answer() -> None:
    async def scenario() -> None:
        def dispatch(_: Connection, frame: memoryview) -> Answer:
            return None if bytes(frame) == b"quiet" else (framed(bytes(frame)),)

        async with connected(dispatch) as (peer, _, _):
            await peer.send(framed(b"quiet") + framed(b"loud"))
            assert await peer.receive(8) == framed(b"loud")

    run(scenario())


def test_a_reset_cancels_the_request_that_waits() -> None:
    async def scenario() -> None:
        cancelled = asyncio.Event()
        waiting = asyncio.Event()

        async def forever() -> Answer:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return None

        def dispatch(_: Connection, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
            return [framed(b"now")] if bytes(frame) == b"now" else forever()

        async with connected(dispatch) as (peer, task, _):
            await peer.send(framed(b"now") + framed(b"poll"))
            await waiting.wait()
            peer.socket.close()  # with the first answer unread, which makes it a reset
            await cancelled.wait()
            await asyncio.wait([task])

    run(scenario())


def test_a_request_that_waits_is_answered_to_a_peer_that_only_stopped_sending() -> None:
    async def scenario() -> None:
        waiting, due = asyncio.Event(), asyncio.Event()

        async def later() -> Answer:
            waiting.set()
            await due.wait()
            return [framed(b"answer")]

        async with connected(lambda *_: later()) as (peer, _, connection):
            await peer.send(framed(b"poll"))
            await waiting.wait()
            waits_before = connection.is_kept_waiting
            peer.socket.shutdown(socket.SHUT_WR)
            for _ in range(10):  # turns of the loop, in which the end is read
                await asyncio.sleep(0)
            assert (waits_before, connection.is_kept_waiting) == (True, False)
            due.set()
            assert await peer.receive_end() == framed(b"answer")

    run(scenario())


def test_what_was_received_is_answered_when_the_peer_only_stops_sending() -> None:
    async def scenario() -> None:
        async with connected(echo) as (peer, _, _):
            await peer.send(framed(b"last"))
            peer.socket.shutdown(socket.SHUT_WR)
            assert await peer.receive_end() == framed(b"last")

    run(scenario())


@pytest.mark.parametrize("error", [WireError("torn"), ConnectionClosedError("unknown")])
def test_a_broken_rule_closes_the_connection_after_the_earlier_answers(error: Exception) -> None:
    async def scenario() -> None:
        def dispatch(_: Connection, frame: memoryview) -> Answer:
            if bytes(frame) == b"bad":
                raise error
            return (framed(bytes(frame)),)

        async with connected(dispatch) as (peer, _, _):
            await peer.send(framed(b"good") + framed(b"bad"))
            assert await peer.receive_end() == framed(b"good")

    run(scenario())


def test_a_frame_over_the_limit_closes_the_connection() -> None:
    async def scenario() -> None:
        async with connected(echo, ConnectionLimits(request_size_max=100)) as (peer, _, _):
            await peer.send(framed(bytes(101)))
            assert await peer.receive_end() == b""

    run(scenario())


def test_an_answer_larger_than_the_socket_takes_arrives_whole_while_others_are_served() -> None:
    answer = os.urandom(8 << 20)

    async def scenario() -> None:
        async with connected(lambda *_: (answer,)) as (slow, _, _), connected(echo) as (quick, _, _):
            await slow.send(framed(b"all of it"))
            await quick.send(framed(b"quick"))
            assert await quick.receive(9) == framed(b"quick")
            assert await slow.receive(len(answer)) == answer

    run(scenario())


def test_nothing_more_is_read_from_a_peer_that_does_not_take_its_answers() -> None:
    served = 0

    async def scenario() -> None:
        def dispatch(_: Connection, frame: memoryview) -> Answer:
            nonlocal served
            served += 1
            return (bytes(1 << 20),)

        async with connected(dispatch) as (peer, _, _):
            await peer.send(framed(b"one") * 1000)
            for _ in range(100):
                await asyncio.sleep(0)
            assert served < 10

    run(scenario())


@pytest.mark.parametrize("size", [COPIED_RANGE_SIZE_MAX, COPIED_RANGE_SIZE_MAX + 1, 3 << 20])
def test_ranges_of_files_are_sent_between_the_bytes_around_them(size: int) -> None:
    content = os.urandom(size + 100)

    async def scenario(path: str) -> None:
        pooled = FilePool(SystemDisk()).file(Path(path).parent, Path(path).name)
        span = FileRange(pooled, 50, size, 0, 1)
        async with connected(lambda *_: (b"head", span, b"tail")) as (peer, _, _):
            await peer.send(framed(b"fetch"))
            expected = b"head" + content[50 : 50 + size] + b"tail"
            assert await peer.receive(len(expected)) == expected
        assert not pooled.pinned
        pooled.retire()

    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        run(scenario(file.name))


def test_finish_answers_what_was_received_and_closes() -> None:
    async def scenario() -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def later() -> Answer:
            started.set()
            await gate.wait()
            return (framed(b"done"),)

        async with connected(lambda *_: later()) as (peer, _, connection):
            await peer.send(framed(b"work"))
            await started.wait()
            connection.finish()
            gate.set()
            assert await peer.receive_end() == framed(b"done")

    run(scenario())


def test_large_requests_wait_for_memory_and_small_ones_do_not() -> None:
    large = framed(bytes(1 << 20))

    async def scenario() -> None:
        memory = RequestMemory(1 << 20)
        async with (
            connected(echo, memory=memory) as (first, _, _),
            connected(echo, memory=memory) as (second, _, _),
            connected(echo, memory=memory) as (third, _, _),
        ):
            await first.send(large[:-1])
            for _ in range(100):
                await asyncio.sleep(0)
            assert memory.left <= 0
            sending = asyncio.create_task(second.send(large))
            await third.send(framed(b"small"))
            assert await third.receive(9) == framed(b"small")
            assert not sending.done()
            await first.send(large[-1:])
            assert await first.receive(len(large)) == large
            assert await second.receive(len(large)) == large
            await sending
        assert memory.left == 1 << 20

    run(scenario())
