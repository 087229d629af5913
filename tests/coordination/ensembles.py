"""The two ensembles that the conformance suite runs against: the tree in memory and a real ZooKeeper.

Each hands out sessions that can be cut from their server, healed, and expired.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kazoo.client import KazooClient

from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import Coordination
from broker.coordination.zookeeper import ZooKeeper

SESSION_TIMEOUT_MS = 4_000
DEADLINE_SECONDS = 20


class Ensemble(Protocol):
    """Hands sessions out and does to them what networks and time do."""

    async def session(self) -> Coordination: ...
    async def cut(self, session: Coordination) -> None: ...
    async def heal(self, session: Coordination) -> None: ...
    async def expire(self, session: Coordination) -> None: ...
    async def close(self) -> None: ...


class MemoryEnsemble:
    def __init__(self, chroot: str) -> None:
        self._tree = MemoryTree()
        self._chroot = chroot
        self._sessions: list[MemorySession] = []

    async def session(self) -> MemorySession:
        session = MemorySession(self._tree, chroot=self._chroot)
        self._sessions.append(session)
        await session.start(timeout_ms=1_000)
        return session

    async def cut(self, session: Coordination) -> None:
        assert isinstance(session, MemorySession)
        session.suspend()

    async def heal(self, session: Coordination) -> None:
        assert isinstance(session, MemorySession)
        session.resume()

    async def expire(self, session: Coordination) -> None:
        assert isinstance(session, MemorySession)
        session.expire()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


class RealEnsemble:
    """Sessions of a real server, each through a proxy of its own that can be cut."""

    def __init__(self, port: int, chroot: str) -> None:
        self._port = port
        self._chroot = chroot
        self._proxies: dict[int, Proxy] = {}
        self._sessions: list[ZooKeeper] = []

    async def session(self) -> ZooKeeper:
        proxy = Proxy(self._port)
        await proxy.open()
        session = ZooKeeper(f"127.0.0.1:{proxy.port}{self._chroot}", session_timeout_ms=SESSION_TIMEOUT_MS)
        self._proxies[id(session)] = proxy
        self._sessions.append(session)
        await session.start(timeout_ms=10_000)
        return session

    async def cut(self, session: Coordination) -> None:
        await self._proxies[id(session)].close()

    async def heal(self, session: Coordination) -> None:
        await self._proxies[id(session)].open()

    async def expire(self, session: Coordination) -> None:
        """End the session from another client that knows its password, which is what an expiry does."""
        assert isinstance(session, ZooKeeper)
        await asyncio.to_thread(
            self._end_session, session._client._session_id, session._client._session_passwd
        )

    def _end_session(self, session_id: int, password: bytes) -> None:
        other = KazooClient(hosts=f"127.0.0.1:{self._port}", timeout=4, client_id=(session_id, password))
        other.start(timeout=10)
        other.stop()
        other.close()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        for proxy in self._proxies.values():
            await proxy.close()


class Proxy:
    """A TCP proxy on a port of its own, which it keeps over closing and opening."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.silent_connections = 0
        """So many that come next are taken in and get no answer, as a server does that is just starting."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if self.silent_connections:
                self.silent_connections -= 1
                await _read_to_the_end(reader)
            else:
                await self._pass_on(reader, writer)
        writer.close()
        self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, from_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, from_server))
                group.create_task(_copy(to_server, writer))
        finally:
            from_server.close()


async def _read_to_the_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass(slots=True)
class Told:
    """A handler that counts, and lets a test wait until it was called."""

    count: int = 0
    values: list[object] = field(default_factory=list)
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, *values: object) -> None:
        self.count += 1
        self.values.extend(values)
        self._event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                self._event.clear()
                await self._event.wait()

    async def more_than(self, count: int) -> int:
        """Wait until it was called more than `count` times; returns how often it was by then."""
        await self.until(lambda: self.count > count)
        return self.count


@contextlib.asynccontextmanager
async def closing(ensemble: Ensemble) -> AsyncIterator[Ensemble]:
    try:
        yield ensemble
    finally:
        await ensemble.close()
