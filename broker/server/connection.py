"""One client connection: frames in, answers out, in order, one request at a time, but for `later_answers`.

Owned by one task on its processor's loop. The socket's reader stays registered all the time: bytes are
received into the free space of the buffer by the loop's callback, which also answers what need not wait; the
task is woken for the rest. So a reset is noticed while a request waits, and the waiting handler is cancelled.
A peer that only stops sending may still read: what it asked for is done and answered. Answers to pipelined
requests that were already received leave in one `sendmsg`; a file range leaves by `sendfile`. Nothing more is
read from a peer that does not take its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

from broker.clock import Clock
from broker.errors import StorageError, WireError
from broker.server.answer_stream import AnswerStream, Part
from broker.server.config import ConnectionLimits
from broker.server.later_answers import LaterAnswer, LaterAnswers
from broker.server.receive_buffer import BUSY_CAPACITY, KEPT_CAPACITY_MAX, ReceiveBuffer
from broker.server.repeated_requests import RepeatedRequests
from broker.server.request import ConnectionClosedError
from broker.server.request_memory import RequestMemory
from broker.server.security import ANONYMOUS, Listener, Principal
from broker.telemetry import logger
from broker.types import HostPort

log = logger("connection")

FRAMES_AT_ONCE_MAX = 64
"""Requests of one connection that are served before the others get their turn."""
RECEIVES_AT_ONCE_MAX = 4
"""Reads of one connection before the others get their turn."""

Answer: TypeAlias = Sequence[Part] | None
"""Parts of a framed response; None where the request gets no answer."""


Dispatch: TypeAlias = Callable[["Connection", memoryview], Answer | Coroutine[Any, Any, Answer]]
"""Turns one frame into its answer, at once where possible; raises ConnectionClosedError or WireError when the
connection must be closed.
"""


class Connection:
    """The server's end of one accepted socket; see the module for who calls what."""

    __slots__ = (
        "_answers",
        "_buffer",
        "_clock",
        "_closing",
        "_dispatch",
        "_fd",
        "_frame_waiter",
        "_input_ended",
        "_later",
        "_loop",
        "_memory",
        "_memory_taken",
        "_muted_until_ms",
        "_reading",
        "_releases",
        "_served",
        "_socket",
        "_task",
        "_unmuted",
        "_work",
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
        memory: RequestMemory,
        clock: Clock,
        disk_threads: Executor,
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
        self._buffer = ReceiveBuffer(
            limits.request_size_max,
            kept_capacity_max=BUSY_CAPACITY if memory.is_bounded else KEPT_CAPACITY_MAX,
        )
        self._memory = memory
        self._memory_taken = 0
        self._answers = AnswerStream(sock, self._progressed, disk_threads)
        self._later = LaterAnswers(self._send_due)
        self._loop = asyncio.get_running_loop()
        self._frame_waiter: asyncio.Future[bool] | None = None
        """Where the task waits for a frame; True: there is more to do than to look for one."""
        self._work: Coroutine[Any, Any, Answer] | None = None
        """A request that has to wait, for the task to begin."""
        self._releases: list[Callable[[], None]] = []
        """What others want to be told once everything was sent."""
        self._served = 0
        """Requests since the others had their turn."""
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
                await self._later.drained()
                await self._flush()
        except (OSError, StorageError) as error:
            log.info("connection_lost", peer=str(self.peer), reason=str(error))
        finally:
            self._close()

    @property
    def is_kept_waiting(self) -> bool:
        """Whether a peer that may yet send more is silent because it waits for an answer."""
        return (self.busy or bool(self._later)) and not self._input_ended

    def finish(self) -> None:
        """Close once the requests that were received are answered."""
        self._closing = True
        self._wake()
        if self._unmuted is not None:
            _resolve(self._unmuted)

    def mute(self, duration_ms: int) -> None:
        """Look at no further request for so long. The one under way is answered before."""
        self._muted_until_ms = max(self._muted_until_ms, self._clock.monotonic_ms() + duration_ms)

    def release_when_sent(self, release: Callable[[], None]) -> None:
        """Have it called when the answer under way has left, or the connection ends."""
        self._releases.append(release)

    def abort(self) -> None:
        """Close now; a request under way is abandoned."""
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        """Do what has to wait, and all that came with it; `_serve_at_once` does the rest."""
        while True:
            if self._work is not None:
                work, self._work = self._work, None
                must_flush = self._queue(await self._finished(work))
                if not must_flush and not self._muted_until_ms:
                    self._work = self._answer_frames()
                    continue
            await self._flush()
            if self._muted_until_ms:
                await self._stay_muted()
            if self._later.is_full:
                await self._later.room()
                continue
            if not self._buffer.holds_frame:
                if not await self._receive():
                    await self._later.drained()
                    return
                continue
            if self._served >= FRAMES_AT_ONCE_MAX:
                self._served = 0
                await asyncio.sleep(0)
            self._work = self._answer_frames()

    def _queue(self, answer: Answer) -> bool:
        """Take an answer for sending; as `AnswerStream.queue`. Nothing else keeps its bytes."""
        return answer is not None and self._answers.queue(answer)

    def _answer_frames(self) -> Coroutine[Any, Any, Answer] | None:
        """Answer the requests that are here, up to one that has to wait: its work is returned. Ends early
        when answers must leave first, the client has to rest, or it is the others' turn.
        """
        next_frame, dispatch, answers = self._buffer.next_frame, self._dispatch, self._answers
        later = self._later
        while self._served < FRAMES_AT_ONCE_MAX and not later.is_full:
            frame = next_frame()
            if frame is None:
                break
            self._served += 1
            reply = dispatch(self, frame)
            if isinstance(reply, LaterAnswer):
                later.add(reply, len(frame))
                continue
            if isinstance(reply, Coroutine):
                return reply
            if later and reply is not None:
                return _given(reply)
            if (reply is not None and answers.queue(reply)) or self._muted_until_ms:
                break
        return None

    def _serve_at_once(self, waiter: asyncio.Future[bool]) -> None:
        """Serve from the loop's callback, as waking the task costs a round of the loop for each request. It
        is woken for everything that waits or fails.
        """
        try:
            self._work = self._answer_frames()
            is_done = self._work is None and self._answers.send_at_once() and self._is_at_rest()
        except Exception as error:  # noqa: BLE001  raised again in the task, whose owner knows what to do
            if not waiter.done():
                waiter.set_exception(error)
            return
        if is_done:
            self._served = 0
            self._buffer.reclaim()
            self._resume_reading()
        elif not waiter.done():
            waiter.set_result(True)

    def _is_at_rest(self) -> bool:
        """Whether nothing is left to do before more is received."""
        buffer = self._buffer
        return (
            not self._muted_until_ms
            and not buffer.holds_frame
            and buffer.large_frame_size == self._memory_taken
        )

    async def _finished(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer of a request that waits; earlier ones are not kept waiting with it."""
        try:
            await self._flush()
            if self._later:
                await self._later.drained()
                await self._flush()
            self.busy = True
            return await work
        finally:
            work.close()
            self.busy = False

    async def _stay_muted(self) -> None:
        """Wait until the client has rested; at the node's stop nobody waits."""
        await self._flush()
        if not self._buffer.large_frame_size:
            await self._take_memory()  # gives back what the request took
            self._buffer.reclaim()
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
        """Wait for something to do; False when there will be nothing more. No frame may be in use."""
        self._served = 0
        while not self._buffer.holds_frame:
            if self._closing:
                return False
            await self._take_memory()
            self._buffer.reclaim()
            self._resume_reading()
            if not self._answers.is_empty:
                await self._flush()
            self._frame_waiter = waiter = self._loop.create_future()
            is_left_over = await waiter
            self._frame_waiter = None
            if is_left_over:
                break
        return True

    async def _take_memory(self) -> None:
        """Have as much as the frame under way needs, and none of the last one's."""
        wanted = self._buffer.large_frame_size
        if wanted != self._memory_taken:
            self._memory.give(self._memory_taken)
            self._memory_taken = 0
            if wanted:
                await self._memory.take(wanted)
                self._memory_taken = wanted

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
                if self.busy or self._later:
                    self.abort()
                return
            if not count:
                self._end_input()
                return
            buffer.received(count)
            if count < wanted or buffer.is_due:
                break
        self.last_active_ms = self._clock.monotonic_ms()
        waiter = self._frame_waiter
        if waiter is not None and not waiter.done() and buffer.is_due:
            self._serve_at_once(waiter)

    def _end_input(self) -> None:
        self._pause_reading()
        self._closing = self._input_ended = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._frame_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(False)

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    # Answering

    async def _flush(self) -> None:
        await self._answers.flush()
        self._release()
        self._progressed()

    def _send_due(self) -> None:
        """Later answers are ready: send them if the socket takes them, or else have the task do it. A task
        that does something else flushes before it waits for more.
        """
        waiter = self._frame_waiter
        try:
            for answer in self._later.due():
                self._answers.queue(answer)
            is_sent = self._answers.send_at_once()
        except OSError as error:
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
            return
        self._progressed()
        if not is_sent and waiter is not None and not waiter.done():
            waiter.set_result(True)

    def _release(self) -> None:
        while self._releases:
            self._releases.pop()()

    def _progressed(self) -> None:
        self.last_active_ms = self._clock.monotonic_ms()

    def _close(self) -> None:
        self._pause_reading()
        if self._work is not None:
            self._work.close()
        self._later.close()
        self._answers.close()
        self._release()
        self._memory.give(self._memory_taken)
        self._memory_taken = 0
        self._socket.close()


async def _given(answer: Answer) -> Answer:
    """An answer that has to wait for those before it."""
    return answer


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
