"""One client connection: frames in, answers out, in order, one request at a time.

Owned by one task on its processor's loop. The socket's reader stays registered all the time: bytes are
received into the free space of the buffer by the loop's callback, the task takes frames out. So a reset is
noticed while a request waits, and the waiting handler is cancelled. A peer that only stops sending may still
read: what it asked for is done and answered. Answers to pipelined requests that were already received leave
in one `sendmsg`; a file range leaves by `sendfile`. Nothing more is read from a peer that does not take its
answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from broker.clock import Clock
from broker.errors import StorageError, WireError
from broker.server.config import ConnectionLimits
from broker.server.page_cache import is_resident, warm
from broker.server.receive_buffer import ReceiveBuffer
from broker.server.repeated_requests import RepeatedRequests
from broker.server.request import ConnectionClosedError
from broker.server.security import ANONYMOUS, Listener, Principal
from broker.storage.file_range import FileRange
from broker.telemetry import logger
from broker.types import Buffer, HostPort

log = logger("connection")

PENDING_SIZE_MAX = 256 * 1024
"""Answers to pipelined requests are sent at the latest when this many bytes of them wait."""
COPIED_RANGE_SIZE_MAX = 8 * 1024
"""File ranges up to this size are read and sent with the answer's other bytes: one system call less than
sendfile.
"""
FRAMES_AT_ONCE_MAX = 64
"""Requests of one connection that are served before the others get their turn."""
RECEIVES_AT_ONCE_MAX = 4
"""Reads of one connection before the others get their turn."""
_SENDMSG_PARTS_MAX = 512

Part: TypeAlias = Buffer | FileRange
Answer: TypeAlias = Sequence[Part] | None
"""Parts of a framed response; None where the request gets no answer."""


Dispatch: TypeAlias = Callable[["Connection", memoryview], Answer | Coroutine[Any, Any, Answer]]
"""Turns one frame into its answer, at once where possible; raises ConnectionClosedError or WireError when the
connection must be closed.
"""


class Connection:
    """The server's end of one accepted socket; see the module for who calls what."""

    __slots__ = (
        "_buffer",
        "_clock",
        "_closing",
        "_dispatch",
        "_fd",
        "_frame_waiter",
        "_input_ended",
        "_loop",
        "_muted_until_ms",
        "_pending",
        "_pending_size",
        "_reading",
        "_socket",
        "_task",
        "_unmuted",
        "busy",
        "client_software",
        "fetch_turn",
        "last_active_ms",
        "listener",
        "peer",
        "principal",
        "repeated_requests",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: HostPort,
        listener: Listener,
        *,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        clock: Clock,
    ) -> None:
        self.peer = peer
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        self.client_software = ("unknown", "unknown")
        self.fetch_turn = 0
        self.repeated_requests = RepeatedRequests()
        self.busy = False
        self.last_active_ms = clock.monotonic_ms()
        self._socket = sock
        self._fd = sock.fileno()
        self._dispatch = dispatch
        self._clock = clock
        self._buffer = ReceiveBuffer(limits.request_size_max)
        self._pending: list[Part] = []
        self._pending_size = 0
        self._loop = asyncio.get_running_loop()
        self._frame_waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._reading = False
        self._closing = False
        self._input_ended = False
        self._muted_until_ms = 0
        self._unmuted: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Serve until the peer leaves, breaks a rule, or `finish` is called; closes the socket anyway."""
        self._task = asyncio.current_task()
        try:
            await self._serve()
            await self._flush()
        except (WireError, ConnectionClosedError) as error:
            log.warning("connection_refused", peer=str(self.peer), reason=str(error))
            with contextlib.suppress(OSError, StorageError):
                await self._flush()
        except (OSError, StorageError) as error:
            log.info("connection_lost", peer=str(self.peer), reason=str(error))
        finally:
            self._close()

    @property
    def is_kept_waiting(self) -> bool:
        """Whether a peer that may yet send more is silent because it waits for an answer."""
        return self.busy and not self._input_ended

    def finish(self) -> None:
        """Close once the requests that were received are answered."""
        self._closing = True
        self._wake()
        if self._unmuted is not None:
            _resolve(self._unmuted)

    def mute(self, duration_ms: int) -> None:
        """Look at no further request for so long. The one under way is answered before."""
        self._muted_until_ms = max(self._muted_until_ms, self._clock.monotonic_ms() + duration_ms)

    def abort(self) -> None:
        """Close now; a request under way is abandoned."""
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        """Frame by frame. What has to wait for nothing is answered without leaving this function."""
        next_frame, dispatch = self._buffer.next_frame, self._dispatch
        served = 0
        while True:
            frame = next_frame()
            if frame is None or served == FRAMES_AT_ONCE_MAX:
                await self._flush()
                served = 0
                if frame is None:
                    if not await self._receive():
                        return
                    continue
                await asyncio.sleep(0)
            served += 1
            reply = dispatch(self, frame)
            answer = await self._finished(reply) if isinstance(reply, Coroutine) else reply
            if answer is not None and self._queue(answer):
                await self._flush()
            if self._muted_until_ms:
                await self._stay_muted()

    async def _finished(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer of a request that waits; earlier ones are not kept waiting with it."""
        try:
            await self._flush()
            self.busy = True
            return await work
        finally:
            work.close()
            self.busy = False

    async def _stay_muted(self) -> None:
        """Wait until the client has rested; at the node's stop nobody waits."""
        await self._flush()
        left_ms = self._muted_until_ms - self._clock.monotonic_ms()
        self._muted_until_ms = 0
        if left_ms <= 0 or (self._closing and not self._input_ended):
            return
        self.busy = True
        self._unmuted = waiter = self._loop.create_future()
        timer = self._loop.call_later(left_ms / 1000, _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._unmuted = None
            self.busy = False

    # Receiving

    async def _receive(self) -> bool:
        """Wait for a whole frame; False when there will be none. No frame may be in use."""
        while not self._buffer.holds_frame:
            if self._closing:
                return False
            self._buffer.reclaim()
            self._resume_reading()
            self._frame_waiter = waiter = self._loop.create_future()
            await waiter
            self._frame_waiter = None
        return True

    def _on_readable(self) -> None:
        """Take what is there, up to the end of a frame. Less than was asked for means: no more is there."""
        buffer = self._buffer
        for _ in range(RECEIVES_AT_ONCE_MAX):
            space = buffer.space()
            wanted = len(space)
            if not wanted:
                self._pause_reading()
                break
            try:
                count = self._socket.recv_into(space)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._end_input()
                if self.busy:
                    self.abort()
                return
            if not count:
                self._end_input()
                return
            buffer.received(count)
            if count < wanted or buffer.is_due:
                break
        self.last_active_ms = self._clock.monotonic_ms()
        if self._frame_waiter is not None and buffer.is_due:
            self._wake()

    def _end_input(self) -> None:
        self._pause_reading()
        self._closing = self._input_ended = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._frame_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    # Answering

    def _queue(self, parts: Sequence[Part]) -> bool:
        """Take an answer for sending; True when it must be sent before the next request is looked at."""
        must_flush = False
        for part in parts:
            if isinstance(part, FileRange):
                if len(part) > COPIED_RANGE_SIZE_MAX:
                    part.pin()
                    must_flush = True
                else:
                    part = part.read()
            self._pending.append(part)
            self._pending_size += len(part)
        return must_flush or self._pending_size > PENDING_SIZE_MAX

    async def _flush(self) -> None:
        if not self._pending:
            return
        parts, self._pending, self._pending_size = self._pending, [], 0
        try:
            await self._send(parts)
        finally:
            for part in parts:
                if isinstance(part, FileRange):
                    part.release()
        self.last_active_ms = self._clock.monotonic_ms()

    async def _send(self, parts: list[Part]) -> None:
        run: list[Buffer] = []
        for part in parts:
            if not isinstance(part, FileRange):
                run.append(part)
                if len(run) < _SENDMSG_PARTS_MAX:
                    continue
            if run:
                await self._send_buffers(run, more=isinstance(part, FileRange))
                run = []
            if isinstance(part, FileRange):
                await self._send_range(part)
        if run:
            await self._send_buffers(run, more=False)

    async def _send_buffers(self, buffers: list[Buffer], *, more: bool) -> None:
        flags = socket.MSG_MORE if more else 0
        size = sum(map(len, buffers))
        while True:
            try:
                sent = self._socket.sendmsg(buffers, (), flags)
            except (BlockingIOError, InterruptedError):
                sent = 0
            size -= sent
            if not size:
                return
            buffers = _after(buffers, sent)
            await self._writable()

    async def _send_range(self, part: FileRange) -> None:
        position, left = part.position, len(part)
        source = part.file.fileno()
        if not is_resident(source, position, left):
            await self._loop.run_in_executor(None, warm, source, position, left)
        while True:
            try:
                sent = os.sendfile(self._fd, source, position, left)
                if sent == 0:
                    raise ConnectionAbortedError("a log file ended before the range that was to be sent")
            except (BlockingIOError, InterruptedError):
                sent = 0
            position += sent
            left -= sent
            if not left:
                return
            if not sent:
                await self._writable()

    async def _writable(self) -> None:
        """Wait until the peer takes bytes again.

        The socket's reader keeps running, so a reset is noticed too.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._fd, _resolve, waiter)
        try:
            await waiter
        finally:
            self._loop.remove_writer(self._fd)
        self.last_active_ms = self._clock.monotonic_ms()

    def _close(self) -> None:
        self._pause_reading()
        for part in self._pending:
            if isinstance(part, FileRange):
                part.release()
        self._pending.clear()
        self._socket.close()


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _after(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left of `buffers` once their first `count` bytes are gone."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []
