"""How a follower reaches its leader: one connection that nobody else waits behind, opened when needed."""

from __future__ import annotations

from typing import Protocol

from broker.client.connection import Connection, ConnectionSettings
from broker.cluster.image import BrokerInfo
from broker.errors import ConnectionFailedError
from broker.wire.message import Request, ResponseType


class NodePort(Protocol):
    """The port: requests to one node, one after the other."""

    async def send(self, broker: BrokerInfo, request: Request[ResponseType]) -> ResponseType:
        """The node's answer. Raises ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError."""
        ...

    async def close(self) -> None:
        """Let the connection go; another request opens it again."""
        ...


class NodeConnection:
    """A connection over `listener`; it follows a node that comes back at another address."""

    def __init__(self, listener: str, settings: ConnectionSettings) -> None:
        self._listener = listener
        self._settings = settings
        self._connection: Connection | None = None

    async def send(self, broker: BrokerInfo, request: Request[ResponseType]) -> ResponseType:
        """See `NodePort`."""
        connection = self._connection
        address = broker.address(self._listener)
        if address is None:
            raise ConnectionFailedError(f"broker {broker.id} has no listener {self._listener}")
        if connection is None or connection.closed or connection.address != address:
            await self.close()
            connection = self._connection = await Connection.open(address, self._settings)
        return await connection.request(request)

    async def close(self) -> None:
        """See `NodePort`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
