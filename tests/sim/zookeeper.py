"""ZooKeeper as the nodes of a simulation meet it: sessions with delays, cuts and expiry on one tree.

Requests of a session arrive in order and so do its answers and watches, each later by a drawn time. A cut
loses answers, and leaves open whether requests that were on their way take effect. A session that nothing was
heard of for its timeout ends on the server; its client learns that when it is heard again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import SessionKey, SessionLostError, SessionState
from broker.errors import CoordinationError
from tests.sim.loop import Process, SimLoop

_Result = TypeVar("_Result")
DELAY_SECONDS = (0.0002, 0.003)
TICK_SECONDS = 0.5
"""Sessions end up to so much after their timeout, and clients try to come back that often."""


class SimZooKeeper:
    """The ensemble. `observe` on `tree` sees every transaction."""

    def __init__(self, loop: SimLoop, random: Random, *, session_timeout_ms: int) -> None:
        self.loop = loop
        self.random = random
        self.tree = MemoryTree()
        self.process = loop.new_process("zookeeper")
        self.session_seconds = session_timeout_ms / 1000
        self.is_down = False
        self._sessions: dict[SimSession, None] = {}

    def session(self, process: Process) -> SimSession:
        """A client in a process, not started yet."""
        session = SimSession(self, process)
        self._sessions[session] = None
        return session

    def delay(self) -> float:
        low, high = DELAY_SECONDS
        return self.random.uniform(low, high)

    def stop(self) -> None:
        """The whole ensemble goes down: no session is connected, none ends."""
        self.is_down = True
        for session in list(self._sessions):
            session.cut()

    def restart(self) -> None:
        """It is back with all sessions; their timeouts begin anew."""
        self.is_down = False
        for session in list(self._sessions):
            session.unheard()
            session.heal()

    def forget(self, session: SimSession) -> None:
        self._sessions.pop(session, None)


class SimSession(MemorySession):
    """One client's session, for the life of its process."""

    def __init__(self, zookeeper: SimZooKeeper, process: Process) -> None:
        super().__init__(zookeeper.tree)
        self._zookeeper = zookeeper
        self._process = process
        self._loop = zookeeper.loop
        self._requests_at = 0.0
        self._answers_at = 0.0
        self._waiting: dict[asyncio.Future[object], str] = {}
        self._silences = 0
        self.is_cut = False

    # What the world does to it

    def cut(self) -> None:
        """Let nothing through between client and server until `heal`."""
        if self.is_cut:
            return
        self.is_cut = True
        self.suspend()
        self.unheard()

    def heal(self) -> None:
        """Let the client come back when it tries next."""
        self.is_cut = False
        self._loop.call_later(
            self._zookeeper.random.uniform(0.01, TICK_SECONDS), self._come_back, context=self._process.context
        )

    def unheard(self) -> None:
        """Nothing is heard of the client from now on: its session may end."""
        self._silences += 1
        after = self._zookeeper.session_seconds + self._zookeeper.random.uniform(0, TICK_SECONDS)
        self._loop.call_later(
            after, self._end_silent, self._silences, context=self._zookeeper.process.context
        )

    def heard(self) -> None:
        """The client is heard again."""
        self._silences += 1
        if self._expired:
            self._loop.call_later(
                self._zookeeper.random.uniform(0, 0.05), self._learn, context=self._process.context
            )

    def died(self, *, lost: bool) -> None:
        """The client's process ended; `lost`: what it had sent last did not arrive either."""
        self.is_cut = self.is_cut or lost
        self._stop_observing()
        self._stop_observing = lambda: None
        self._connection += 1
        self._fail_waiting()
        self.unheard()

    def suspend(self) -> None:
        super().suspend()
        self._fail_waiting()

    def expire(self) -> None:
        """End the session on the server, whatever the client does."""
        self._end()

    def _end_silent(self, silence: int) -> None:
        if silence == self._silences and not self._zookeeper.is_down:
            self._end()
            if self._process.is_dead:
                self._zookeeper.forget(self)

    def _end(self) -> None:
        if self._session_key is not None and not self._expired:
            self._tree.end_session(self._session_key)

    def _ended(self) -> None:
        self._expired = True
        if not self._process.is_paused and not self.is_cut:
            self.heard()

    def _learn(self) -> None:
        """The server closed the connection as the session has ended: a new one begins."""
        if self._expired and not self._process.is_dead:
            self.suspend()
            self._come_back()

    def _come_back(self) -> None:
        if self.is_cut or self._process.is_dead or self._zookeeper.is_down:
            return
        if not self._process.is_paused:
            self._silences += 1
        self.resume()

    # The port

    async def start(self, *, timeout_ms: int) -> None:
        deadline = self._loop.time() + timeout_ms / 1000
        while self.is_cut or self._zookeeper.is_down:
            if self._loop.time() > deadline:
                raise CoordinationError("ZooKeeper is not reached")
            await asyncio.sleep(TICK_SECONDS / 5)
        await asyncio.sleep(self._zookeeper.delay())
        if self._process.is_dead:
            raise SessionLostError("the process has ended")
        await super().start(timeout_ms=timeout_ms)

    async def close(self) -> None:
        if self._process.is_dead:
            return
        await super().close()
        self._zookeeper.forget(self)

    async def end_session(self, key: SessionKey, *, timeout_ms: int) -> bool:
        del timeout_ms
        await asyncio.sleep(2 * self._zookeeper.delay())
        if self._process.is_dead or self.is_cut or self._zookeeper.is_down:
            return False
        return self._tree.end_session(key)

    async def _perform(self, operation: str, path: str, effect: Callable[[], _Result]) -> _Result:
        if self._process.is_dead:
            raise SessionLostError(f"{operation} {path}: the process has ended")
        self._check_connected(operation, path, self._connection)
        answer: asyncio.Future[_Result] = self._loop.create_future()
        self._waiting[answer] = f"{operation} {path}"  # type: ignore[index]
        self._requests_at = max(self._requests_at, self._loop.time() + self._zookeeper.delay())
        self._loop.call_at(
            self._requests_at,
            self._arrived,
            self._connection,
            self.session_id,
            effect,
            answer,
            context=self._zookeeper.process.context,
        )
        try:
            return await answer
        finally:
            self._waiting.pop(answer, None)  # type: ignore[call-overload]

    def _arrived(
        self,
        connection: int,
        session_id: int,
        effect: Callable[[], object],
        answer: asyncio.Future[object],
    ) -> None:
        """A request at the server. Of a cut connection some still come in, but none once the client is back,
        and none of a session that ended.
        """
        if self._expired or session_id != self.session_id:
            self.heard()
            return
        if connection != self._connection and (
            self._state is SessionState.CONNECTED and not self._process.is_dead
        ):
            return
        if connection != self._connection and (self.is_cut or self._zookeeper.random.random() < 0.5):
            return
        result: object = None
        error: CoordinationError | None = None
        try:
            result = effect()
        except CoordinationError as raised:
            error = raised
        self._answer_at(self._tell_answer, connection, answer, result, error)

    def _tell_answer(
        self,
        connection: int,
        answer: asyncio.Future[object],
        result: object,
        error: CoordinationError | None,
    ) -> None:
        if answer.done() or connection != self._connection:
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _answer_at(self, callback: Callable[..., object], *args: object) -> None:
        self._answers_at = max(self._answers_at, self._loop.time() + self._zookeeper.delay())
        self._loop.call_at(self._answers_at, callback, *args, context=self._process.context)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer, what in waiting.items():
            if not answer.done():
                answer.set_exception(SessionLostError(f"{what}: the connection to ZooKeeper was lost"))
                answer.exception()

    def _enter(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.LOST:
            self._session_key = None
        for handler in list(self._state_handlers):
            self._loop.call_soon(handler, state, context=self._process.context)

    def _tell(self, handlers: list[Callable[[], None]]) -> None:
        for handler in list(handlers):
            self._answer_at(handler)

    def _tree_changed(self, data: frozenset[str], children: frozenset[str]) -> None:
        if not self._expired:
            super()._tree_changed(data, children)
