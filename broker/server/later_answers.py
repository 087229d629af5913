"""Answers that are due later, to requests that hold up nobody: all that is left is that others have it too.

The replicas' acknowledgements of one produce take a round trip to the slowest follower. A connection goes on
with the requests behind it meanwhile, and each round trip acknowledges all that was appended before. Answers
leave in the order of the requests all the same. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any

from broker.server.request import Encoded

ANSWERS_MAX = 256
"""Answers of one connection that are not due yet, at most; then its next request waits."""
REQUESTS_SIZE_MAX = 4 * 1024 * 1024
"""Bytes of their requests, after which the next one waits: a client is not to run away from the followers."""


class LaterAnswer(Coroutine[Any, Any, Encoded]):
    """An answer that is ready when all of `waits` are done, or are cancelled since the time is up.

    `encode` makes it then, and is the only one to look at what became of the waits. Nothing of the request's
    frame may be held. Whoever does not know of such answers awaits it like other work.
    """

    __slots__ = ("_encode", "_left", "_on_ready", "_timer", "_waits", "_work")

    def __init__(
        self, waits: Sequence[asyncio.Future[None]], timeout_ms: int, encode: Callable[[], Encoded]
    ) -> None:
        self._encode = encode
        self._waits = waits
        self._left = len(waits)
        self._on_ready: Callable[[], None] | None = None
        self._work: Coroutine[Any, Any, Encoded] | None = None
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._cancel_waits)
        for wait in waits:
            wait.add_done_callback(self._one_is_done)

    @property
    def is_ready(self) -> bool:
        return not self._left

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` as soon as the answer is ready, which it is not yet."""
        self._on_ready = callback

    def encode(self) -> Encoded:
        """The answer, which must be ready."""
        return self._encode()

    def close(self) -> None:
        """Nobody wants the answer any more."""
        self._on_ready = None
        self._timer.cancel()
        self._cancel_waits()
        if self._work is not None:
            self._work.close()

    def _one_is_done(self, _: asyncio.Future[None]) -> None:
        self._left -= 1
        if not self._left:
            self._timer.cancel()
            if self._on_ready is not None:
                self._on_ready()

    def _cancel_waits(self) -> None:
        for wait in self._waits:
            wait.cancel()

    # As work to be awaited

    async def _answer(self) -> Encoded:
        ready = asyncio.Event()
        if not self.is_ready:
            self.when_ready(ready.set)
            await ready.wait()
        return self.encode()

    def _begun(self) -> Coroutine[Any, Any, Encoded]:
        if self._work is None:
            self._work = self._answer()
        return self._work

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def __await__(self) -> Generator[Any, Any, Encoded]:
        return self._begun().__await__()


class LaterAnswers:
    """Those of one connection, oldest first; `send_due` is called soon after the first of them is ready."""

    __slots__ = ("_answers", "_is_called", "_loop", "_room", "_send_due", "_size")

    def __init__(self, send_due: Callable[[], None]) -> None:
        self._send_due = send_due
        self._loop = asyncio.get_running_loop()
        self._answers: deque[tuple[LaterAnswer, int]] = deque()
        self._size = 0
        self._is_called = False
        self._room: asyncio.Future[None] | None = None
        """Where the connection's task waits for answers to be taken."""

    def __bool__(self) -> bool:
        return bool(self._answers)

    @property
    def is_full(self) -> bool:
        """Whether the next request has to wait."""
        return len(self._answers) >= ANSWERS_MAX or self._size >= REQUESTS_SIZE_MAX

    def add(self, answer: LaterAnswer, size: int) -> None:
        """One more, to a request of `size` bytes."""
        self._answers.append((answer, size))
        self._size += size
        answer.when_ready(self._one_is_ready)

    def due(self) -> Iterator[Encoded]:
        """Take those that are ready, up to the first that is not."""
        self._is_called = False
        answers = self._answers
        while answers and answers[0][0].is_ready:
            answer, size = answers.popleft()
            self._size -= size
            yield answer.encode()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def room(self) -> None:
        """Return when the next request need not wait."""
        while self.is_full:
            await self._taken()

    async def drained(self) -> None:
        """Return when none is left."""
        while self._answers:
            await self._taken()

    def close(self) -> None:
        """Nobody wants any of them."""
        for answer, _ in self._answers:
            answer.close()
        self._answers.clear()

    async def _taken(self) -> None:
        self._room = self._loop.create_future()
        try:
            await self._room
        finally:
            self._room = None

    def _one_is_ready(self) -> None:
        """Others become ready in the same round of the loop: they are sent together."""
        if not self._is_called and self._answers and self._answers[0][0].is_ready:
            self._is_called = True
            self._loop.call_soon(self._send_due)
