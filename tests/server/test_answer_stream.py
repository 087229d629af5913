"""The way out of a connection: bytes in order, files that are not in memory, peers that do not read."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server import answer_stream
from broker.server.answer_stream import COPIED_RANGE_SIZE_MAX, COPIED_SIZE_MAX, AnswerStream, Part
from broker.storage.disk import SystemDisk
from broker.storage.file_range import FileRange
from broker.storage.open_files import FilePool, PooledFile

DEADLINE_SECONDS = 20
CONTENT = os.urandom(1 << 20)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PooledFile]:
    path = tmp_path_factory.mktemp("stream") / "segment"
    path.write_bytes(CONTENT)
    file = FilePool(SystemDisk()).file(path.parent, path.name)
    yield file
    assert not file.pinned
    file.retire()


@pytest.fixture(scope="module")
def disk_threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, thread_name_prefix="disk") as threads:
        yield threads


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def receive(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += await asyncio.get_running_loop().sock_recv(sock, size - len(received))
    return received


SPANS = st.tuples(st.integers(0, 500_000), st.integers(1, 400_000) | st.integers(1, COPIED_RANGE_SIZE_MAX))


@settings(max_examples=40, deadline=None)
@given(answers=st.lists(st.lists(st.binary(max_size=50) | SPANS, max_size=8), max_size=5))
def test_whatever_is_queued_arrives_in_order(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor, answers: list[list[bytes | tuple[int, int]]]
) -> None:
    expected = b"".join(
        part if isinstance(part, bytes) else CONTENT[part[0] : sum(part)]
        for answer in answers
        for part in answer
    )

    async def scenario() -> None:
        with pair() as (ours, theirs):
            stream = AnswerStream(ours, lambda: None, disk_threads)
            arriving = asyncio.create_task(receive(theirs, len(expected)))
            for answer in answers:
                parts: list[Part] = [
                    part if isinstance(part, bytes) else FileRange(pooled, *part, 0, 1) for part in answer
                ]
                if stream.queue(parts):
                    await stream.flush()
            await stream.flush()
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await arriving == expected

    asyncio.run(scenario())


def test_small_ranges_are_not_copied_without_end(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor
) -> None:
    async def scenario() -> None:
        with pair() as (ours, _):
            stream = AnswerStream(ours, lambda: None, disk_threads)
            count = 2 * COPIED_SIZE_MAX // COPIED_RANGE_SIZE_MAX
            ranges = [FileRange(pooled, 0, COPIED_RANGE_SIZE_MAX, 0, 1) for _ in range(count)]
            assert stream.queue(ranges)
            held = [part for part in stream._parts if isinstance(part, bytes)]
            assert sum(map(len, held)) <= COPIED_SIZE_MAX + COPIED_RANGE_SIZE_MAX
            assert pooled.pinned
            stream.close()
            assert not pooled.pinned

    asyncio.run(scenario())


def test_any_number_of_small_ranges_leaves_without_a_call_for_each(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, count = 20_000, 2 * COPIED_SIZE_MAX // 20_000
    ranges = [FileRange(pooled, 1000 * number, size, 0, 1) for number in range(count)]
    expected = b"".join(b"head" + CONTENT[1000 * number :][:size] for number in range(count))

    def refuse(*_: object) -> int:
        raise AssertionError("a small range was sent by itself")

    monkeypatch.setattr(os, "sendfile", refuse)

    async def scenario() -> None:
        with pair() as (ours, theirs):
            stream = AnswerStream(ours, lambda: None, disk_threads)
            stream.queue([part for each in ranges for part in (b"head", each)])
            flushing = asyncio.create_task(stream.flush())
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await receive(theirs, len(expected)) == expected
                await flushing

    asyncio.run(scenario())


def test_a_small_range_beyond_the_end_of_its_file_ends_the_connection(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor
) -> None:
    async def scenario() -> None:
        with pair() as (ours, _):
            stream = AnswerStream(ours, lambda: None, disk_threads)
            stream.queue([FileRange(pooled, len(CONTENT) - 10, 20, 0, 1)])
            with pytest.raises(ConnectionAbortedError):
                await stream.flush()
            stream.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [100, 300_000])
def test_others_are_served_while_a_stretch_of_a_file_is_read_from_the_disk(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_answers = threading.Event()

    def warm(*_: int) -> None:
        assert threading.current_thread().name.startswith("disk")
        disk_answers.wait(DEADLINE_SECONDS)

    monkeypatch.setattr(answer_stream, "is_resident", lambda *_: disk_answers.is_set())
    monkeypatch.setattr(answer_stream, "read_resident", lambda *_: None)
    monkeypatch.setattr(answer_stream, "warm", warm)

    async def scenario() -> None:
        with pair() as (ours, theirs), pair() as (other, others):
            cold, hot = (
                AnswerStream(ours, lambda: None, disk_threads),
                AnswerStream(other, lambda: None, disk_threads),
            )
            assert cold.queue([b"head", FileRange(pooled, 7, size, 0, 1)])
            flushing = asyncio.create_task(cold.flush())
            assert await receive(theirs, 4) == b"head"
            hot.queue([b"quick"])
            await hot.flush()
            assert await receive(others, 5) == b"quick"
            assert not flushing.done()
            disk_answers.set()
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await receive(theirs, size) == CONTENT[7 : 7 + size]
                await flushing

    asyncio.run(scenario())


def test_a_file_stays_open_while_a_thread_reads_from_it_for_a_peer_that_left(
    pooled: PooledFile, disk_threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, disk_answers = threading.Event(), threading.Event()

    def warm(*_: int) -> None:
        started.set()
        disk_answers.wait(DEADLINE_SECONDS)

    monkeypatch.setattr(answer_stream, "is_resident", lambda *_: False)
    monkeypatch.setattr(answer_stream, "warm", warm)

    async def scenario() -> None:
        with pair() as (ours, _):
            stream = AnswerStream(ours, lambda: None, disk_threads)
            stream.queue([FileRange(pooled, 0, 100_000, 0, 1)])
            flushing = asyncio.create_task(stream.flush())
            await asyncio.to_thread(started.wait, DEADLINE_SECONDS)
            flushing.cancel()
            await asyncio.wait([flushing])
            stream.close()
            assert pooled.pinned
            disk_answers.set()
        await asyncio.get_running_loop().run_in_executor(disk_threads, int)  # comes after what was begun

    asyncio.run(scenario())


def test_every_step_of_a_slow_peer_counts_as_progress(disk_threads: ThreadPoolExecutor) -> None:
    progressed = []

    async def scenario() -> None:
        with pair() as (ours, theirs):
            stream = AnswerStream(ours, lambda: progressed.append(1), disk_threads)
            stream.queue([bytes(4 << 20)])
            flushing = asyncio.create_task(stream.flush())
            for _ in range(8):
                await receive(theirs, 1 << 19)
            await flushing

    asyncio.run(scenario())
    assert len(progressed) > 1
