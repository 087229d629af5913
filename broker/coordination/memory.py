"""The coordination port in memory, with sessions that tests and the simulator cut, heal and expire at will.

`MemoryTree` is the server: a plain synchronous znode tree with transaction ids, versions, sessions and
atomic multis. `MemorySession` is a client of it with the semantics of a real session: requests and replies
each take one turn of the event loop, so that changes by others fall in between and a cut connection leaves
the fate of a pending write unknown. Watches are told as "look again" on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from broker.coordination.protocol import (
    BadVersionError,
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
from broker.errors import CoordinationError

_Undo = Callable[[], None]
_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    owner: int
    version: int = 0
    sequence: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


class MemoryTree:
    """The znode tree of one ensemble: every method takes effect at once, paths are absolute."""

    def __init__(self) -> None:
        self._root = _Node(data=b"", czxid=0, mzxid=0, owner=0)
        self._zxid = 0
        self._session_id = 0
        self._on_end: dict[int, Callable[[], None]] = {}
        self._observers: list[Callable[[frozenset[str], frozenset[str]], None]] = []
        self._changed_data: set[str] = set()
        self._changed_children: set[str] = set()

    def observe(self, observer: Callable[[frozenset[str], frozenset[str]], None]) -> Callable[[], None]:
        """Tell `observer` after each transaction which paths' data and which paths' children changed."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def open_session(self, on_end: Callable[[], None]) -> SessionKey:
        """A new session, and what to tell of its end."""
        self._session_id += 1
        self._on_end[self._session_id] = on_end
        return SessionKey(session_id=self._session_id, password=b"password %d" % self._session_id)

    def end_session(self, key: SessionKey) -> bool:
        """End a session, with its ephemeral znodes; whether there was one with this key."""
        session_id = key.session_id
        if key.password != b"password %d" % session_id or session_id not in self._on_end:
            return False
        owned = [path for path, node in self._walk() if node.owner == session_id]
        if owned:
            self.commit(session_id, [DeleteNode(path=path) for path in owned])
        self._on_end.pop(session_id)()
        return True

    def get(self, path: str) -> Znode | None:
        node = self._find(path)
        if node is None:
            return None
        return Znode(
            data=node.data,
            version=node.version,
            czxid=node.czxid,
            mzxid=node.mzxid,
            ephemeral_owner=node.owner,
        )

    def children(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.children) if node else []

    def next_sequence(self, parent: str) -> int:
        """The number for the next sequential child of `parent`."""
        node = self._find(parent)
        if node is None:
            raise NoNodeError(f"create {parent}: no such znode")
        node.sequence += 1
        return node.sequence - 1

    def commit(self, session_id: int, operations: Sequence[Operation]) -> list[int]:
        """Perform all operations or none; see `Coordination.multi`."""
        self._zxid += 1
        undone: list[_Undo] = []
        try:
            versions = [self._perform(session_id, operation, undone) for operation in operations]
        except CoordinationError:
            for undo in reversed(undone):
                undo()
            self._take_changes()
            raise
        data, children = self._take_changes()
        if data or children:
            for observer in list(self._observers):
                observer(data, children)
        return versions

    def _take_changes(self) -> tuple[frozenset[str], frozenset[str]]:
        changes = frozenset(self._changed_data), frozenset(self._changed_children)
        self._changed_data.clear()
        self._changed_children.clear()
        return changes

    def _perform(self, session_id: int, operation: Operation, undone: list[_Undo]) -> int:
        match operation:
            case CheckVersion():
                self._at_version(operation.path, operation.version, "check")
                return -1
            case CreateNode():
                self._create(session_id, operation, undone)
                return 0
            case SetData():
                return self._set(operation, undone)
            case DeleteNode():
                self._delete(operation, undone)
                return -1
            case _:
                assert_never(operation)

    def _create(self, session_id: int, operation: CreateNode, undone: list[_Undo]) -> None:
        parent_path, name = _split(operation.path)
        parent = self._find(parent_path)
        if parent is None:
            raise NoNodeError(f"create {operation.path}: no such znode")
        if parent.owner:
            raise CoordinationError(f"create {operation.path}: an ephemeral znode cannot have children")
        if name in parent.children:
            raise NodeExistsError(f"create {operation.path}: the znode exists")
        owner = session_id if operation.ephemeral else 0
        parent.children[name] = _Node(data=operation.data, czxid=self._zxid, mzxid=self._zxid, owner=owner)
        undone.append(lambda: parent.children.__delitem__(name))
        self._changed_data.add(operation.path)
        self._changed_children.update((parent_path, operation.path))

    def _set(self, operation: SetData, undone: list[_Undo]) -> int:
        node = self._at_version(operation.path, operation.version, "set")
        before = node.data, node.version, node.mzxid

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        undone.append(undo)
        node.data, node.version, node.mzxid = operation.data, node.version + 1, self._zxid
        self._changed_data.add(operation.path)
        return node.version

    def _delete(self, operation: DeleteNode, undone: list[_Undo]) -> None:
        node = self._at_version(operation.path, operation.version, "delete")
        if node.children:
            raise CoordinationError(f"delete {operation.path}: the znode has children")
        parent_path, name = _split(operation.path)
        parent = self._find(parent_path)
        assert parent is not None
        del parent.children[name]
        undone.append(lambda: parent.children.__setitem__(name, node))
        self._changed_data.add(operation.path)
        self._changed_children.update((parent_path, operation.path))

    def _at_version(self, path: str, version: int, operation: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise NoNodeError(f"{operation} {path}: no such znode")
        if version not in (-1, node.version):
            raise BadVersionError(f"{operation} {path}: the znode was changed by another")
        return node

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in filter(None, path.split("/")):
            node = node.children.get(name) if node else None
        return node

    def _walk(self) -> list[tuple[str, _Node]]:
        found: list[tuple[str, _Node]] = []
        left = [("", self._root)]
        while left:
            path, node = left.pop()
            found.append((path, node))
            left.extend((f"{path}/{name}", child) for name, child in node.children.items())
        return found


class MemorySession:
    """One session on a `MemoryTree` below `chroot`; implements the coordination port.

    `suspend` cuts its connection, `expire` ends its session on the server, `resume` heals the connection: the
    session goes on, or, when it expired meanwhile, LOST is told and a new one begins.
    """

    def __init__(self, tree: MemoryTree, *, chroot: str = "") -> None:
        self._tree = tree
        self._chroot = chroot.rstrip("/")
        self._session_key: SessionKey | None = None
        self._expired = False
        self._state = SessionState.LOST
        self._connection = 0
        self._data_watches: dict[str, list[Callable[[], None]]] = {}
        self._child_watches: dict[str, list[Callable[[], None]]] = {}
        self._state_handlers: list[Callable[[SessionState], None]] = []
        self._stop_observing: Callable[[], None] = lambda: None

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
        self._stop_observing = self._tree.observe(self._tree_changed)
        self._open_session()
        self._create_missing(self._chroot)

    async def close(self) -> None:
        key, self._session_key = self._session_key, None
        self._stop_observing()
        self._stop_observing = lambda: None
        self._state = SessionState.LOST
        self._connection += 1
        if key is not None:
            self._tree.end_session(key)

    async def end_session(self, key: SessionKey, *, timeout_ms: int) -> bool:
        await asyncio.sleep(0)
        return self._tree.end_session(key)

    async def get(self, path: str) -> Znode | None:
        return await self._perform("get", path, lambda: self._tree.get(self._absolute(path)))

    async def get_all(self, paths: Sequence[str]) -> list[Znode | None]:
        if not paths:
            return []
        absolute = [self._absolute(path) for path in paths]
        return await self._perform("get", paths[0], lambda: [self._tree.get(path) for path in absolute])

    async def children(self, path: str) -> list[str]:
        return await self._perform("children", path, lambda: self._tree.children(self._absolute(path)))

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        def create() -> str:
            parent = _split(self._absolute(path))[0]
            self._create_missing(parent)
            created = f"{path}{self._tree.next_sequence(parent):010d}" if sequence else path
            self._commit([CreateNode(path=created, data=data, ephemeral=ephemeral)])
            return created

        return await self._perform("create", path, create)

    async def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        operation = SetData(path=path, data=data, version=version)
        return (await self._perform("set", path, lambda: self._commit([operation])))[0]

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        if recursive:
            for name in await self.children(path):
                await self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
        try:
            await self._perform(
                "delete", path, lambda: self._commit([DeleteNode(path=path, version=version)])
            )
        except NoNodeError:
            return

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []
        return await self._perform("multi", operations[0].path, lambda: self._commit(operations))

    def watch_data(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        return _register(self._data_watches, self._absolute(path), handler)

    def watch_children(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        return _register(self._child_watches, self._absolute(path), handler)

    def on_state(self, handler: Callable[[SessionState], None]) -> Callable[[], None]:
        self._state_handlers.append(handler)
        return lambda: self._state_handlers.remove(handler)

    # What tests and the simulator do to a session

    def suspend(self) -> None:
        """Cut the connection: pending operations fail, and whether they took effect is unknown."""
        if self._state is SessionState.CONNECTED:
            self._connection += 1
            self._enter(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Heal the connection; the client learns now whether its session is still there."""
        if self._state is not SessionState.SUSPENDED:
            return
        if self._expired:
            self._enter(SessionState.LOST)
            self._open_session()
        self._enter(SessionState.CONNECTED)
        for handlers in (*self._data_watches.values(), *self._child_watches.values()):
            self._tell(handlers)

    def expire(self) -> None:
        """End the session on the server: a connected client learns at once, a suspended one on `resume`."""
        if self._session_key is not None:
            self._tree.end_session(self._session_key)

    # Inner workings

    def _open_session(self) -> None:
        self._session_key = self._tree.open_session(self._ended)
        self._expired = False
        self._state = SessionState.CONNECTED

    def _ended(self) -> None:
        self._expired = True
        if self._state is SessionState.CONNECTED:
            self.suspend()
            self.resume()

    def _enter(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.LOST:
            self._session_key = None
        loop = asyncio.get_running_loop()
        for handler in list(self._state_handlers):
            loop.call_soon(handler, state)

    async def _perform(self, operation: str, path: str, effect: Callable[[], _Result]) -> _Result:
        connection = self._connection
        self._check_connected(operation, path, connection)
        await asyncio.sleep(0)
        self._check_connected(operation, path, connection)
        try:
            return effect()
        finally:
            await asyncio.sleep(0)
            self._check_connected(operation, path, connection)

    def _check_connected(self, operation: str, path: str, connection: int) -> None:
        if self._state is not SessionState.CONNECTED or self._connection != connection:
            raise SessionLostError(f"{operation} {path}: the connection to ZooKeeper was lost")

    def _commit(self, operations: Sequence[Operation]) -> list[int]:
        return self._tree.commit(self.session_id, [self._below_chroot(operation) for operation in operations])

    def _create_missing(self, path: str) -> None:
        if path and path != "/" and self._tree.get(path) is None:
            self._create_missing(_split(path)[0])
            self._tree.commit(self.session_id, [CreateNode(path=path, data=b"")])

    def _below_chroot(self, operation: Operation) -> Operation:
        path = self._absolute(operation.path)
        match operation:
            case CheckVersion():
                return CheckVersion(path=path, version=operation.version)
            case CreateNode():
                return CreateNode(path=path, data=operation.data, ephemeral=operation.ephemeral)
            case SetData():
                return SetData(path=path, data=operation.data, version=operation.version)
            case DeleteNode():
                return DeleteNode(path=path, version=operation.version)
            case _:
                assert_never(operation)

    def _absolute(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _tree_changed(self, data: frozenset[str], children: frozenset[str]) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        for watches, changed in ((self._data_watches, data), (self._child_watches, children)):
            for path in sorted(watches.keys() & changed):
                self._tell(watches[path])

    def _tell(self, handlers: list[Callable[[], None]]) -> None:
        loop = asyncio.get_running_loop()
        for handler in list(handlers):
            loop.call_soon(handler)


def _register(
    watches: dict[str, list[Callable[[], None]]], path: str, handler: Callable[[], None]
) -> Callable[[], None]:
    watches.setdefault(path, []).append(handler)

    def end() -> None:
        handlers = watches.get(path, [])
        if handler in handlers:
            handlers.remove(handler)
        if not handlers:
            watches.pop(path, None)

    return end


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
