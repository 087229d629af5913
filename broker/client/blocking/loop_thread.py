"""A thread that runs an event loop, and calls into it from other threads.

The loop's thread owns whatever lives on the loop; other threads have work done there and wait for it. A call
that is interrupted (KeyboardInterrupt) cancels its work, waits until that has ended, and lets the interrupt
go on. A process that is forked off has no such thread: there every call is refused.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, Self, TypeVar

_Result = TypeVar("_Result")


class LoopThread:
    """One event loop in a thread of its own. Started by `with`, or by `start`.

    The thread is a daemon: it keeps no process alive that forgets to stop it.
    """

    def __init__(self, name: str = "broker-client") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """None before the start and after the end."""
        self._ending = asyncio.Event()
        self._process_id = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether calls are taken here: started, not stopped, and in this process."""
        return self._loop is not None and self._process_id == os.getpid()

    def start(self) -> None:
        """Start the thread; does nothing to one that runs. Raises RuntimeError once it was stopped."""
        with self._lock:
            if self._thread is not None:
                if self._loop is None:
                    raise RuntimeError(f"{self._name}: stopped already")
                return
            started: Future[asyncio.AbstractEventLoop] = Future()
            self._process_id = os.getpid()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._serve(started)), name=self._name, daemon=True
            )
            self._thread.start()
            self._loop = started.result()

    def stop(self) -> None:
        """End the loop; what still runs there is cancelled. Does nothing the second time, and nothing in a
        process that was forked off.
        """
        if self._process_id != os.getpid():
            return
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None:
            self._thread.join()

    def call(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """What a coroutine returns, or raises, that is run on the loop.

        Raises RuntimeError where there is no loop to wait for: it does not run, or it is the caller's own.
        """
        call = _Call(work)
        try:
            self._schedule(call)
            return call.outcome.result()
        except BaseException:
            call.cancel()
            raise

    def run(self, function: Callable[[], _Result]) -> _Result:
        """What a function returns, or raises, that is called on the loop. Raises RuntimeError as `call`."""

        async def called() -> _Result:
            return function()

        return self.call(called)

    @contextmanager
    def held(self, enter: Callable[[], AbstractAsyncContextManager[_Result]]) -> Iterator[_Result]:
        """A context of the loop's, entered and left there by one task."""
        holder = _Holder(enter)
        entered = self.call(holder.enter)
        try:
            yield entered
        finally:
            self.call(holder.leave)

    def _schedule(self, call: _Call[Any]) -> None:
        if self._process_id != os.getpid():
            raise RuntimeError(f"{self._name}: made before this process was forked off; make one here")
        with self._lock:
            loop = self._loop
            if loop is None:
                raise RuntimeError(f"{self._name}: not running")
            assert self._thread is not None
            if self._thread is threading.current_thread():
                raise RuntimeError(f"{self._name}: its own thread cannot wait for it")
            call.begin_on(loop)

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._ending.wait()


class _Call(Generic[_Result]):
    """Work under way on the loop, for a thread that waits for its outcome."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        self.outcome: Future[_Result] = Future()
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        """None before it was begun."""
        self._task: asyncio.Task[_Result] | None = None

    def begin_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop  # first: an interrupt may come at any point from here on
        loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        """End the work if it goes on, and wait until that is done."""
        if self._loop is not None and not self.outcome.done():
            self._loop.call_soon_threadsafe(self._cancel)
            wait([self.outcome])

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.outcome.done():
            self.outcome.set_exception(RuntimeError("it was ended before it had begun"))

    def _end(self, task: asyncio.Task[_Result]) -> None:
        if task.cancelled():
            self.outcome.set_exception(RuntimeError("it was ended meanwhile"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class _Holder(Generic[_Result]):
    """A task that enters a context, stays in it, and leaves it when it is told to."""

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[_Result]]) -> None:
        self._enter = enter
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> _Result:
        entered: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(entered), name="held context")
        try:
            either: list[asyncio.Future[Any]] = [self._task, entered]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        if not entered.done():
            await self._task
        return entered.result()

    async def leave(self) -> None:
        assert self._task is not None, "what was entered is left"
        self._leaving.set()
        await self._task

    async def _hold(self, entered: asyncio.Future[_Result]) -> None:
        async with self._enter() as value:
            entered.set_result(value)
            await self._leaving.wait()
