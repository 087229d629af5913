"""The coordination port over kazoo: the only place where kazoo's threads enter the event loop.

kazoo runs a connection thread and two callback threads. Whatever they report is posted to the event loop,
and all state of this adapter is owned by the loop. Invariants:

- An operation is sent only while the session is CONNECTED, and every operation pending when the connection
  goes ends in SessionLostError at once: no caller waits for an ensemble that is away.
- A watch is re-armed before its handlers run. The server answers the requests of a session in order, so a
  read made by a handler comes after the re-arming and no change falls between the two.
- The session is given up when the event loop hangs for longer than the session timeout: kazoo's own thread
  would keep the session of a node alive that serves nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from threading import Lock
from typing import Any, assert_never

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from broker.coordination.connect_string import ConnectString
from broker.coordination.kazoo_clients import KazooReports, key_of, new_client, take_over_and_end
from broker.coordination.multi_read import Read, read_many
from broker.coordination.protocol import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionKey,
    SessionLostError,
    SessionState,
    SetData,
    Znode,
)
from broker.coordination.translation import translated
from broker.coordination.watchdog import LoopWatchdog
from broker.errors import CoordinationError
from broker.telemetry import logger

_log = logger("zookeeper")

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
PROBES = 2
"""How often a server is asked for many znodes until it is taken for one that knows no such request: the
connection may break for other reasons.
"""
_ROLLED_BACK = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


class _WatchKind(Enum):
    DATA = "data"
    CHILDREN = "children"


@dataclass(slots=True, eq=False)
class _Watch:
    """Every handler of one path and kind, behind one kazoo watcher."""

    kind: _WatchKind
    path: str
    watcher: Callable[[WatchedEvent], None]
    handlers: list[Callable[[], None]] = field(default_factory=list)


class ZooKeeper:
    """One ZooKeeper session below the chroot of `connect` (`host:port,host:port/chroot`).

    The chroot is made when there is none, unless the session is of somebody who only reads: below a chroot
    that is not there is nothing. Raises ConfigurationError when `connect` cannot be read.
    """

    def __init__(self, connect: str, *, session_timeout_ms: int, makes_chroot: bool = True) -> None:
        self._connect = ConnectString.parse(connect)
        self._session_timeout_ms = session_timeout_ms
        self._makes_chroot = makes_chroot
        self._reports = KazooReports()
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watchdog: LoopWatchdog | None = None
        self._state = SessionState.LOST
        self._session_key: SessionKey | None = None
        self._was_connected = False
        self._reads_many = True
        self._closing = False
        self._connected = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()
        self._watches: dict[tuple[_WatchKind, str], _Watch] = {}
        self._state_handlers: list[Callable[[SessionState], None]] = []
        self._restarts: set[asyncio.Task[None]] = set()
        self._posted: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._posted_lock = Lock()

    @property
    def session_id(self) -> int:
        return self._session_key.session_id if self._session_key else 0

    @property
    def session_key(self) -> SessionKey | None:
        return self._session_key

    @property
    def state(self) -> SessionState:
        return self._state

    async def start(self, *, timeout_ms: int) -> None:
        self._loop, self._posted = asyncio.get_running_loop(), []
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connect_client()
                await self._find_out_whether_many_are_read()
                await self._create_chroot()
        except TimeoutError as error:
            reason = f" ({self._reports.last})" if self._reports.last else ""
            await self.close()
            raise CoordinationError(
                f"no ZooKeeper at {self._connect.hosts} within {timeout_ms} ms{reason}"
            ) from error
        except BaseException:
            await self.close()
            raise
        self._watchdog = LoopWatchdog(self._loop, self._session_timeout_ms, self._give_session_up)
        self._watchdog.start()

    async def _connect_client(self) -> None:
        client = self._client = new_client(self._connect, self._session_timeout_ms, self._reports)
        client.add_listener(partial(self._kazoo_state_changed, client))
        self._connected.clear()
        await asyncio.to_thread(client.start_async)
        await self._connected.wait()

    async def _find_out_whether_many_are_read(self) -> None:
        """A server before 3.6 cuts the connection of who asks for many znodes at once, which is best found
        out while nothing is lost with it.
        """
        for _ in range(PROBES):
            try:
                await self._perform("get", "/", lambda at: read_many(self._client, [at]))
            except CoordinationError:
                await asyncio.to_thread(self._close_client)
                await self._connect_client()
            else:
                return
        self._reads_many = False
        _log.info("zookeeper_reads_singly", address=str(self._connect))

    async def close(self) -> None:
        self._closing = True
        for restart in list(self._restarts):
            await restart
        if self._watchdog is not None:
            await asyncio.to_thread(self._watchdog.stop)
        if self._client is not None:
            await asyncio.to_thread(self._close_client)
        self._fail_pending()
        self._state = SessionState.LOST
        self._session_key = None

    async def end_session(self, key: SessionKey, *, timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.to_thread(take_over_and_end, self._connect, key, timeout_ms)
        except TimeoutError:
            return False

    async def get(self, path: str) -> Znode | None:
        try:
            data, stat = await self._perform("get", path, lambda at: self._client.get_async(at))
        except NoNodeError:
            return None
        return Znode(
            data=data or b"",
            version=stat.version,
            czxid=stat.czxid,
            mzxid=stat.mzxid,
            ephemeral_owner=stat.ephemeralOwner,
        )

    async def get_all(self, paths: Sequence[str]) -> list[Znode | None]:
        if not self._reads_many:
            return [await self.get(path) for path in paths]
        if not paths:
            return []
        absolute = [self._absolute(path) for path in paths]
        found: list[Read] = await self._perform("get", paths[0], lambda _: read_many(self._client, absolute))
        znodes: list[Znode | None] = []
        for path, read in zip(paths, found, strict=True):
            if isinstance(read, Exception):
                raise translated(read, "get", path) from read
            znodes.append(read)
        return znodes

    async def children(self, path: str) -> list[str]:
        try:
            names: list[str] = await self._perform(
                "children", path, lambda at: self._client.get_children_async(at)
            )
        except NoNodeError:
            return []
        return sorted(names)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        def start(at: str) -> Any:
            return self._client.create_async(at, data, ephemeral=ephemeral, sequence=sequence)

        try:
            created: str = await self._perform("create", path, start)
        except NoNodeError:
            await self._create_parents(path)
            created = await self._perform("create", path, start)
        return created.removeprefix(self._connect.chroot)

    async def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        stat = await self._perform("set", path, lambda at: self._client.set_async(at, data, version))
        written: int = stat.version
        return written

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        if recursive:
            for name in await self.children(path):
                await self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
        try:
            await self._perform("delete", path, lambda at: self._client.delete_async(at, version))
        except NoNodeError:
            return

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []

        def start(_: str) -> Any:
            transaction = self._client.transaction()
            for operation in operations:
                self._add_to(transaction, operation)
            return transaction.commit_async()

        results = await self._perform("multi", operations[0].path, start)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _ROLLED_BACK):
                raise translated(result, "multi", operation.path) from result
        return [
            _version_after(operation, result) for operation, result in zip(operations, results, strict=True)
        ]

    def watch_data(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        return self._watch(_WatchKind.DATA, path, handler)

    def watch_children(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        return self._watch(_WatchKind.CHILDREN, path, handler)

    def on_state(self, handler: Callable[[SessionState], None]) -> Callable[[], None]:
        self._state_handlers.append(handler)
        return lambda: self._state_handlers.remove(handler)

    # Operations

    async def _perform(self, operation: str, path: str, start: Callable[[str], Any]) -> Any:
        """Run one kazoo operation, given the path below the chroot, and translate what it raises."""
        if self._state is not SessionState.CONNECTED or self._loop is None:
            raise SessionLostError(f"{operation} {path}: not connected to ZooKeeper at {self._connect.hosts}")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending.add(future)
        try:
            start(self._absolute(path)).rawlink(lambda result: self._post(_settle, future, result))
            return await future
        except kazoo_errors.KazooException as error:
            raise translated(error, operation, path) from error
        finally:
            self._pending.discard(future)

    def _add_to(self, transaction: Any, operation: Operation) -> None:
        path = self._absolute(operation.path)
        match operation:
            case CheckVersion():
                transaction.check(path, operation.version)
            case CreateNode():
                transaction.create(path, operation.data, ephemeral=operation.ephemeral)
            case SetData():
                transaction.set_data(path, operation.data, operation.version)
            case DeleteNode():
                transaction.delete(path, operation.version)
            case _:
                assert_never(operation)

    async def _create_parents(self, path: str) -> None:
        for parent in _ancestors(path):
            await self._create_if_absent(self._absolute(parent))

    async def _create_chroot(self) -> None:
        if self._connect.chroot and self._makes_chroot:
            for path in (*_ancestors(self._connect.chroot), self._connect.chroot):
                await self._create_if_absent(path)

    async def _create_if_absent(self, absolute: str) -> None:
        try:
            await self._perform("create", absolute, lambda _: self._client.create_async(absolute, b""))
        except NodeExistsError:
            return

    def _absolute(self, path: str) -> str:
        return (self._connect.chroot + path).rstrip("/") or "/"

    def _fail_pending(self) -> None:
        for future in self._pending:
            if not future.done():
                future.set_exception(
                    SessionLostError(f"the connection to ZooKeeper at {self._connect.hosts} was lost")
                )

    # Watches

    def _watch(self, kind: _WatchKind, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        watch = self._watches.get((kind, path))
        if watch is None:
            watch = _Watch(kind, path, lambda event: self._post(self._watch_fired, kind, path, event.type))
            self._watches[kind, path] = watch
            self._arm(watch)
        watch.handlers.append(handler)

        def end() -> None:
            if handler in watch.handlers:
                watch.handlers.remove(handler)
            if not watch.handlers and self._watches.get((kind, path)) is watch:
                del self._watches[kind, path]

        return end

    def _arm(self, watch: _Watch) -> None:
        """Ask the server to tell the next change. When the connection fails meanwhile, its return arms
        again.
        """
        if self._state is not SessionState.CONNECTED:
            return
        path = self._absolute(watch.path)
        if watch.kind is _WatchKind.DATA:
            self._client.exists_async(path, watch=watch.watcher)
            return
        self._client.get_children_async(path, watch=watch.watcher).rawlink(
            lambda result: self._post(self._parent_looked_for, watch, result)
        )

    def _parent_looked_for(self, watch: _Watch, result: Any) -> None:
        """ZooKeeper has no children watch on a missing znode: wait for its creation instead."""
        if self._state is SessionState.CONNECTED and isinstance(result.exception, kazoo_errors.NoNodeError):
            self._client.exists_async(self._absolute(watch.path), watch=watch.watcher).rawlink(
                lambda found: self._post(self._parent_waited_for, watch, found)
            )

    def _parent_waited_for(self, watch: _Watch, result: Any) -> None:
        if result.successful() and result.value is not None:
            self._watch_fired(watch.kind, watch.path, EventType.CREATED)

    def _watch_fired(self, kind: _WatchKind, path: str, event: str) -> None:
        watch = self._watches.get((kind, path))
        if watch is None or event == EventType.NONE:
            return
        self._arm(watch)
        self._tell(watch)

    def _tell(self, watch: _Watch) -> None:
        for handler in list(watch.handlers):
            self._call_soon(handler)

    # Session

    def _kazoo_state_changed(self, client: Any, state: str) -> None:
        """Runs on kazoo's connection thread."""
        key = key_of(client) if state == KazooState.CONNECTED else None
        self._post(self._enter_state, client, _STATES[state], key)

    def _enter_state(self, client: Any, state: SessionState, key: SessionKey | None) -> None:
        if self._closing or client is not self._client:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._session_key = key
            self._connected.set()
            _log.info("zookeeper_connected", address=str(self._connect), session_id=f"{self.session_id:#x}")
        else:
            self._session_key = None if state is SessionState.LOST else self._session_key
            self._fail_pending()
            _log.warning(f"zookeeper_{state.value}", address=str(self._connect), reason=self._reports.last)
        for handler in list(self._state_handlers):
            self._call_soon(handler, state)
        if state is SessionState.CONNECTED:
            self._resume_watches()
        elif state is SessionState.LOST:
            self._restart_if_stopped()

    def _resume_watches(self) -> None:
        for watch in list(self._watches.values()):
            self._arm(watch)
            if self._was_connected:
                self._tell(watch)
        self._was_connected = True

    def _give_session_up(self) -> None:
        """Runs on the watchdog's thread: close the session, so that others take over at once."""
        _log.error("event_loop_hung", session_timeout_ms=self._session_timeout_ms)
        self._client.stop()

    def _restart_if_stopped(self) -> None:
        """kazoo goes on by itself after an expiry, but not after a session that the watchdog gave up."""
        if self._watchdog is None or not self._watchdog.fired or self._loop is None:
            return
        self._watchdog.reset()
        restart = self._loop.create_task(asyncio.to_thread(self._client.start_async))
        self._restarts.add(restart)
        restart.add_done_callback(self._restarts.discard)

    def _close_client(self) -> None:
        self._client.stop()
        self._client.close()

    # The bridge between kazoo's threads and the event loop

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the event loop call `function`, after all that was posted before; nothing happens once the
        loop has been closed. The loop is woken once for whatever comes before it looks.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        with self._posted_lock:
            self._posted.append((function, arguments))
            if len(self._posted) > 1:
                return
        try:
            loop.call_soon_threadsafe(self._call_posted)
        except RuntimeError:  # closed between the check and the call: nobody is left to tell
            return

    def _call_posted(self) -> None:
        with self._posted_lock:
            posted, self._posted = self._posted, []
        for function, arguments in posted:
            self._call_soon(function, *arguments)

    def _call_soon(self, handler: Callable[..., None], *arguments: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon(handler, *arguments)


def _ancestors(path: str) -> list[str]:
    """Every znode above `path`, the root left out, from the top."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _version_after(operation: Operation, result: Any) -> int:
    match operation:
        case SetData():
            version: int = result.version
            return version
        case CreateNode():
            return 0
        case CheckVersion() | DeleteNode():
            return -1
        case _:
            assert_never(operation)
