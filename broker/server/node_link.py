"""How a node reaches the nodes: itself in-process, others over a connection each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from broker.client.connection import Connection, ConnectionSettings
from broker.cluster.image import BrokerInfo
from broker.errors import ConnectionFailedError
from broker.server.dispatch import Route
from broker.server.request import RequestContext
from broker.server.security import ANONYMOUS, Listener
from broker.server.services import Services
from broker.types import BrokerId, HostPort
from broker.wire.message import Message, Request, ResponseType


class OwnSession:
    """The session of requests that a node sends to itself."""

    def __init__(self, listener: Listener) -> None:
        self.peer: HostPort = listener.address
        self.listener = listener
        self.principal = ANONYMOUS
        self.client_software = ("mirrormaker", "")
        self.fetch_turn = 0
        self.last_active_ms = 0

    def mute(self, duration_ms: int) -> None:
        """Nobody holds back a node's requests to itself."""

    def release_when_sent(self, release: Callable[[], None]) -> None:
        """Nothing has to be sent."""
        release()

    def abort(self) -> None:
        """There is no connection."""


class NodeLink:
    """Implements the ports to the nodes of those who give orders to them; `attach` gives it the services of
    its own node.
    """

    def __init__(
        self, own_id: BrokerId, routes: Sequence[Route], listener: Listener, settings: ConnectionSettings
    ) -> None:
        self._own_id = own_id
        self._services: Services | None = None
        self._handlers = {route.request.api_key: route.handle for route in routes}
        self._session = OwnSession(listener)
        self._settings = settings
        self._connections: dict[HostPort, Connection] = {}
        self._opening: dict[HostPort, asyncio.Lock] = {}

    @property
    def listener(self) -> str:
        """The name of the listener that nodes use among themselves."""
        return self._session.listener.name

    def attach(self, services: Services) -> None:
        """What requests to the own node are answered with; before the first one comes."""
        self._services = services

    async def send(self, broker: BrokerInfo, request: Request[ResponseType]) -> ResponseType:
        """The node's answer.

        Raises ConnectionFailedError or RequestTimedOutError when it cannot be reached.
        """
        if broker.id == self._own_id:
            return cast(ResponseType, await self._handle(request))
        connection = await self._connection(broker)
        return await connection.request(request)

    async def close(self) -> None:
        """Close the connections to other nodes."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def _handle(self, request: Request[Any]) -> Message:
        context = RequestContext(self._session, request.max_version, 0, "controller")
        assert self._services is not None, "attached before the controller starts"
        reply = self._handlers[request.api_key](self._services, context, request)
        answer = await reply if isinstance(reply, Coroutine) else reply
        assert isinstance(answer, Message), "orders are answered, and by the general path"
        return answer

    async def _connection(self, broker: BrokerInfo) -> Connection:
        address = broker.address(self._session.listener.name)
        if address is None:
            raise ConnectionFailedError(f"broker {broker.id} has no listener {self._session.listener.name}")
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                connection = self._connections[address] = await Connection.open(address, self._settings)
        return connection
