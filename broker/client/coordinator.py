"""The way to a coordinator, which may move: found when needed, forgotten when it turns out to be the wrong
one.
"""

from __future__ import annotations

from broker.client.cluster import Cluster, CoordinatorKind
from broker.client.connection import Connection
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.wire.message import Request, ResponseType

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class CoordinatorLink:
    """Requests to the coordinator of one group or transactional id, over a lane of its own."""

    def __init__(
        self,
        cluster: Cluster,
        key: str,
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        lane: str = "coordinator",
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._kind = kind
        self._lane = lane

    async def connection(self) -> Connection:
        """A connection to the coordinator.

        Raises ConnectionFailedError, RequestTimedOutError, ProtocolError.
        """
        node_id = await self._cluster.coordinator(self._key, self._kind)
        try:
            return await self._cluster.connection(node_id, self._lane)
        except (ConnectionFailedError, RequestTimedOutError):
            self.forget()
            raise

    async def request(
        self, request: Request[ResponseType], version: int | None = None, *, timeout_ms: float | None = None
    ) -> ResponseType:
        """Ask the coordinator.

        The answer's error code is the caller's to `check`. Raises as `connection` does.
        """
        connection = await self.connection()
        try:
            return await connection.request(request, version, timeout_ms=timeout_ms)
        except (ConnectionFailedError, RequestTimedOutError):
            self.forget()
            raise

    def check(self, error_code: int, context: str) -> None:
        """Raise ProtocolError for a code that is not 0; one that says the coordinator moved makes the next
        request find it.
        """
        code = ErrorCode.of(error_code)
        if code in _MOVED:
            self.forget()
        if code is not ErrorCode.NONE:
            raise ProtocolError(code, f"{context}: {code.meaning}")

    def forget(self) -> None:
        """Find the coordinator anew before the next request."""
        self._cluster.forget_coordinator(self._key, self._kind)
