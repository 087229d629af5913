"""One request on its way through dispatch and handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.groups.requests import Client
from broker.server.security import Listener, Principal
from broker.server.throttling import Throttle
from broker.types import HostPort


class Session(Protocol):
    """What a handler may know of the connection that a request came in on."""

    @property
    def peer(self) -> HostPort: ...

    @property
    def listener(self) -> Listener: ...

    @property
    def principal(self) -> Principal: ...

    client_software: tuple[str, str]
    """Name and version, as ApiVersions told them."""
    fetch_turn: int
    """Advances with every fetch that a byte limit cut short, so that other partitions come first next time.
    """

    @property
    def last_active_ms(self) -> int:
        """When the peer last sent or took something, by the monotonic clock."""
        ...

    def release_when_sent(self, release: Callable[[], None]) -> None:
        """Have it called when the answer under way has left, or the connection ends."""
        ...

    def abort(self) -> None:
        """Close now; a request under way is abandoned."""
        ...

    def mute(self, duration_ms: int) -> None:
        """Look at nothing more that comes in here for so long; what is under way is answered."""
        ...


class RequestContext:
    """Header and origin of one request; lives as long as the request does."""

    __slots__ = ("api_version", "client_id", "correlation_id", "session", "throttle")

    def __init__(
        self, session: Session, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.session = session
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.throttle: Throttle | None = None
        """What the client's quotas say; None where it has none."""

    @property
    def client(self) -> Client:
        """The client as groups keep it."""
        return Client(client_id=self.client_id or "", host=f"/{self.session.peer.host}")


class Encoded(tuple[bytes, ...]):
    """A response that its handler encoded itself: the parts of its frame, size prefix included."""

    __slots__ = ()


class ConnectionClosedError(Exception):
    """The connection is to be closed: what its peer sent cannot be answered."""
