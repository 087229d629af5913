"""The coordination port: what the system needs of ZooKeeper, in asyncio's terms.

One session per process. Reads and writes are coroutines; while the session is not CONNECTED they raise
SessionLostError at once. Watches are persistent: a handler registered once is told of every later change,
and re-registration after each firing and after a reconnect is the adapter's business. A watch says only
"look again": handlers run on the event loop, are plain functions, and must re-read what they need (several
changes may be told as one, and after a reconnect every handler is told once whether or not there was a
change). A read made by a handler sees at least the change it was told of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from broker.errors import CoordinationError


class NodeExistsError(CoordinationError):
    """The znode to create is there already."""


class NoNodeError(CoordinationError):
    """The znode is not there."""


class BadVersionError(CoordinationError):
    """The znode changed since it was read: a conditional write was refused."""


class SessionLostError(CoordinationError):
    """The session expired or the connection was lost; whether a pending write took effect is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """One znode as read.

    `version` counts writes to its data; `czxid` is the transaction that created it (a broker's epoch) and
    `mzxid` the one that last wrote it; `ephemeral_owner` is the session it lives with, 0 for a persistent
    one.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVersion:
    """Part of a multi: it fails unless the znode is at `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """Part of a multi: create a znode whose parent exists."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Part of a multi: write data if the znode is still at `version` (-1: any)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteNode:
    """Part of a multi: remove a znode without children if it is still at `version` (-1: any)."""

    path: str
    version: int = -1


Operation = CheckVersion | CreateNode | SetData | DeleteNode


class SessionState(Enum):
    """State of the session.

    CONNECTED: usable. SUSPENDED: the connection is down, the session may live on. LOST: expired, its
    ephemeral znodes are gone; the adapter opens a new session by itself and tells CONNECTED again, with
    another session id.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """What makes a session one's own: whoever knows it can go on with the session, or end it."""

    session_id: int
    password: bytes = field(repr=False)


class Coordination(Protocol):
    """One ZooKeeper session below a chroot; every path is absolute within the chroot."""

    @property
    def session_id(self) -> int:
        """Id of the current session, 0 while there is none."""
        ...

    @property
    def session_key(self) -> SessionKey | None:
        """Key of the current session, None while there is none."""
        ...

    async def start(self, *, timeout_ms: int) -> None:
        """Connect and create the chroot.

        Raises CoordinationError naming the address when that takes longer than `timeout_ms`.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
        ...

    async def end_session(self, key: SessionKey, *, timeout_ms: int) -> bool:
        """End another session, as its owner's `close` would have; whether it was there and has ended.

        False as well when that takes longer than `timeout_ms`: then it may end yet.
        """
        ...

    async def get(self, path: str) -> Znode | None:
        """The znode, or None when it is not there."""
        ...

    async def get_all(self, paths: Sequence[str]) -> list[Znode | None]:
        """As `get` for each, in as few requests as the server allows; what they hold together should be well
        below 1 MB.
        """
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; empty when the parent is not there."""
        ...

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a znode and any missing parents; returns the path (with its number where `sequence`).

        Raises NodeExistsError.
        """
        ...

    async def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        """Write data if the znode is still at `version` (-1: any); returns the new version.

        Raises NoNodeError, BadVersionError.
        """
        ...

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        """Remove a znode; nothing happens when it is not there.

        Raises BadVersionError, and CoordinationError when it has children and `recursive` is not set.
        """
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        """Perform all operations or none; returns each one's new znode version (-1 for check and delete).

        Raises NodeExistsError, NoNodeError or BadVersionError naming the path of the operation that failed.
        """
        ...

    def watch_data(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` after every change, creation or removal of it; returns what ends that."""
        ...

    def watch_children(self, path: str, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` after every change of the set of children; returns what ends that.

        The parent may be absent; its coming and going are told too.
        """
        ...

    def on_state(self, handler: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call `handler` on the event loop at every change of the session's state; returns what ends that."""
        ...
