"""The way out of one connection: parts of answers, in order, as fast as the peer takes them.

Buffers leave by `sendmsg`, together with small ranges of files, which are read for that; larger ranges leave
by `sendfile`. The owner's task queues and flushes; while the socket is full the loop's callback sends, and
the task is woken once all is gone. Nothing here waits for the disk: a stretch of a file that is not in memory
is read in a thread first, one stretch (`STRETCH_SIZE`) at a time.

What is held for a peer that does not read: what was queued, as the owner queued it. A range holds a
descriptor instead of bytes, until it was sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from enum import Enum
from functools import partial
from typing import TypeAlias

from broker.storage.file_range import FileRange
from broker.storage.page_cache import is_resident, read_resident, warm
from broker.types import Buffer

PENDING_SIZE_MAX = 256 * 1024
"""Answers to pipelined requests are sent at the latest when this many bytes of them wait; a part larger than
that may come on top.
"""
COPIED_RANGE_SIZE_MAX = 32 * 1024
"""File ranges up to this size are read and sent with the answer's other bytes: that is cheaper than the four
system calls more that a range takes of its own (two probes, sendfile, and sending what follows it).
"""
COPIED_SIZE_MAX = 2 * PENDING_SIZE_MAX
"""Once so many bytes wait, small ranges are copied when these have left: an answer may have very many."""
STRETCH_SIZE = 2 * 1024 * 1024
"""Of a range of a file, this much is looked for in memory, and read into it, at a time."""
_SENDMSG_PARTS_MAX = 512

Part: TypeAlias = Buffer | FileRange


class _Step(Enum):
    """How far sending came."""

    DONE = "done"
    BLOCKED = "blocked"
    """The socket takes nothing more for now."""
    COLD = "cold"
    """The next bytes are not in memory."""


class AnswerStream:
    """Owned by one connection; `socket` is non-blocking."""

    __slots__ = (
        "_disk_threads",
        "_fd",
        "_holds_range",
        "_loop",
        "_on_progress",
        "_parts",
        "_queued_size",
        "_range_end",
        "_range_start",
        "_resident_to",
        "_socket",
    )

    def __init__(self, sock: socket.socket, on_progress: Callable[[], None], disk_threads: Executor) -> None:
        """`on_progress` is called whenever a full socket took something more; `disk_threads` read what is not
        in memory.
        """
        self._disk_threads = disk_threads
        self._socket = sock
        self._on_progress = on_progress
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._parts: deque[Part] = deque()
        self._queued_size = 0
        self._holds_range = False
        self._range_start = self._range_end = 0
        """What is left of the range under way, as positions in its file; equal when none is."""
        self._resident_to = 0
        """Up to where the file was seen, or brought, in memory."""

    @property
    def is_empty(self) -> bool:
        """Whether all that was queued is sent."""
        return not self._parts

    def queue(self, parts: Sequence[Part]) -> bool:
        """Take an answer for sending; True when it must be flushed before anything else is done.

        Raises StorageError when a file cannot be opened.
        """
        must_flush = False
        for part in parts:
            if isinstance(part, FileRange):
                part.pin()
                part = _copied(part, self._queued_size)
            if isinstance(part, FileRange):
                must_flush = self._holds_range = True
            else:
                self._queued_size += len(part)
            self._parts.append(part)
        return must_flush or self._queued_size > PENDING_SIZE_MAX

    def send_at_once(self) -> bool:
        """Send what was queued if it is buffers only; whether all is gone. Raises OSError as `flush` does.

        Ranges are left to `flush`, which can wait for the disk and for the socket.
        """
        if self._holds_range or (self._parts and self._send() is not _Step.DONE):
            return False
        self._queued_size = 0
        return True

    async def flush(self) -> None:
        """Return when all that was queued is sent. Raises OSError when the peer is gone or the disk fails."""
        while self._parts:
            step = self._send()
            if step is _Step.BLOCKED:
                step = await self._send_when_writable()
            if step is _Step.COLD:
                await self._warm()
        self._queued_size = 0
        self._holds_range = False

    def close(self) -> None:
        """Let go of everything that was not sent."""
        for part in self._parts:
            if isinstance(part, FileRange):
                part.release()
        self._parts.clear()

    # Sending

    def _send(self) -> _Step:
        """Send until there is nothing left or something to wait for."""
        parts = self._parts
        while parts:
            head = parts[0]
            if isinstance(head, FileRange) and self._range_start == self._range_end:
                parts[0] = head = _copied(head, 0)
            step = self._send_range(head) if isinstance(head, FileRange) else self._send_buffers()
            if step is not _Step.DONE:
                return step
        return _Step.DONE

    def _send_buffers(self) -> _Step:
        """Send the buffers, and small ranges with them, up to a range that is to leave by itself."""
        parts = self._parts
        run: list[Buffer] = []
        size = more = 0
        for index, part in enumerate(parts):
            if isinstance(part, FileRange):
                parts[index] = part = _copied(part, size)
            if isinstance(part, FileRange) or len(run) == _SENDMSG_PARTS_MAX:
                more = socket.MSG_MORE
                break
            size += len(part)
            run.append(part)
        try:
            sent = self._socket.sendmsg(run, (), more)
        except (BlockingIOError, InterruptedError):
            return _Step.BLOCKED
        for part in run:
            if sent < len(part):
                parts[0] = memoryview(part)[sent:]
                return _Step.BLOCKED
            sent -= len(part)
            parts.popleft()
        return _Step.DONE

    def _send_range(self, part: FileRange) -> _Step:
        source = part.file.fileno()
        if self._range_start == self._range_end:
            self._range_start, self._range_end = part.position, part.position + len(part)
            self._resident_to = part.position
        while self._range_start < self._range_end:
            if self._range_start >= self._resident_to:
                self._resident_to = min(self._range_start + STRETCH_SIZE, self._range_end)
                if not is_resident(source, self._range_start, self._resident_to - self._range_start):
                    return _Step.COLD
            try:
                sent = os.sendfile(self._fd, source, self._range_start, self._resident_to - self._range_start)
            except (BlockingIOError, InterruptedError):
                return _Step.BLOCKED
            if not sent:
                raise ConnectionAbortedError("a log file ended before the range that was to be sent")
            self._range_start += sent
            if self._range_start < self._resident_to:
                return _Step.BLOCKED
        part.release()
        self._parts.popleft()
        return _Step.DONE

    # Waiting

    async def _send_when_writable(self) -> _Step:
        """Send whenever the peer takes bytes, until there is nothing left or the disk is to be waited for."""
        waiter: asyncio.Future[_Step] = self._loop.create_future()
        self._loop.add_writer(self._fd, partial(self._on_writable, waiter))
        try:
            return await waiter
        finally:
            self._loop.remove_writer(self._fd)

    def _on_writable(self, waiter: asyncio.Future[_Step]) -> None:
        if waiter.done():
            return
        try:
            step = self._send()
        except OSError as error:
            waiter.set_exception(error)
            return
        self._on_progress()
        if step is not _Step.BLOCKED:
            waiter.set_result(step)

    async def _warm(self) -> None:
        """Have the stretch that comes next in memory."""
        part = self._parts[0]
        assert isinstance(part, FileRange), "only ranges of files are cold"
        start, size = self._range_start, self._resident_to - self._range_start
        reading = self._loop.run_in_executor(self._disk_threads, warm, part.file.fileno(), start, size)
        try:
            await asyncio.shield(reading)
        finally:
            if not reading.done():  # cancelled: the descriptor must stay open while a thread reads from it
                self._parts.popleft()
                reading.add_done_callback(partial(_let_go, part))


def _copied(part: FileRange, size_before: int) -> Part:
    """The bytes of a small range that is in memory, if not too many wait already; else the range, also when
    its file ends too early, which is for `sendfile` to tell.
    """
    size = len(part)
    if size > COPIED_RANGE_SIZE_MAX or size_before > COPIED_SIZE_MAX:
        return part
    copy = read_resident(part.file.fileno(), part.position, size)
    if copy is None or len(copy) < size:
        return part
    part.release()
    return copy


def _let_go(part: FileRange, reading: asyncio.Future[None]) -> None:
    part.release()
    if not reading.cancelled():
        reading.exception()
