"""Who a connection is to its peer, for as long as it lasts: says so once it is open, and again before the
session that the peer granted is over (KIP-368).

A peer that is told again takes no other requests meanwhile. Those are held back here, and sent in order
afterwards; answers to what was sent before still come. One task, `_renew`, which the connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from broker.client.backoff import system_random
from broker.client.in_flight import InFlight
from broker.client.security.authentication import authenticate
from broker.client.security.logins import begin_login
from broker.client.security.settings import Credentials
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, RequestTimedOutError
from broker.types import Buffer, HostPort
from broker.wire.framing import SIZE_PREFIX_BYTES
from broker.wire.message import Message, Request, ResponseType

_RENEWED_FROM, _RENEWED_UNTIL = 0.85, 0.95
"""Share of a session's life after which it is renewed, a moment between the two, as with Java's clients."""


class SessionLink(Protocol):
    """What a session needs of its connection."""

    @property
    def address(self) -> HostPort: ...

    def serves(self, request: type[Message]) -> bool: ...

    def version_of(self, request: type[Message], *, at_most: int | None = None) -> int: ...

    def send_now(self, request: Request[ResponseType], version: int) -> asyncio.Future[ResponseType]:
        """Send a request of the session itself, ahead of those that are held back."""
        ...

    def transmit(self, pending: InFlight | None, parts: list[Buffer]) -> None:
        """Send encoded requests, which nobody answers where `pending` is None."""
        ...

    def give_up(self, reason: str, cause: Exception) -> None:
        """Close the connection."""
        ...


class Session:
    """The session of one connection, and what waits for it."""

    def __init__(
        self, link: SessionLink, credentials: Credentials, *, timeout_ms: float, clock: Clock | None = None
    ) -> None:
        self._link = link
        self._credentials = credentials
        self._timeout_ms = timeout_ms
        self._clock = clock or SystemClock()
        self._held: deque[tuple[InFlight | None, list[Buffer]]] = deque()
        self._settled: asyncio.Future[None] | None = None
        """Done when what is held back is sent; None while requests are sent at once."""
        self._bare_frame: asyncio.Future[bytes] | None = None
        self._renewals: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Say who the client is; from then on, again whenever it is time.

        Raises AuthenticationError, ConnectionFailedError, RequestTimedOutError, ProtocolError,
        ConfigurationError.
        """
        exchange = await asyncio.to_thread(begin_login, self._credentials, self._clock)
        lifetime_ms = await authenticate(self, exchange)
        if lifetime_ms > 0:
            self._renewals = asyncio.create_task(self._renew(lifetime_ms))

    async def _renew(self, lifetime_ms: float) -> None:
        while lifetime_ms > 0:
            share = _RENEWED_FROM + (_RENEWED_UNTIL - _RENEWED_FROM) * system_random()
            await asyncio.sleep(lifetime_ms * share / 1000)
            try:
                exchange = await asyncio.to_thread(begin_login, self._credentials, self._clock)
                self._settled = asyncio.get_running_loop().create_future()
                lifetime_ms = await authenticate(self, exchange)
                self._release()
            except BrokerError as error:
                self._link.give_up(f"the session could not be renewed: {error}", error)
                return

    # Requests that wait

    @property
    def holds_back(self) -> bool:
        """Whether requests are to be held back."""
        return self._settled is not None

    @property
    def held(self) -> int:
        """Requests held back that wait for an answer."""
        return sum(pending is not None for pending, _ in self._held)

    def unanswered(self) -> Iterator[InFlight]:
        """The requests held back that wait for an answer, in order."""
        return (pending for pending, _ in self._held if pending is not None)

    def hold(self, pending: InFlight | None, parts: list[Buffer]) -> None:
        self._held.append((pending, parts))

    async def settled(self) -> None:
        """Return when nothing is held back any more."""
        if self._settled is not None:
            await asyncio.shield(self._settled)

    def _release(self) -> None:
        while self._held:  # which ends at once should the connection, as nothing is held then
            self._link.transmit(*self._held.popleft())
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None

    def end(self, failure: Exception) -> None:
        """The connection is closed: drop what is held back, and end what goes on."""
        self._held.clear()
        if self._renewals is not None:
            self._renewals.cancel()
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None
        if self._bare_frame is not None and not self._bare_frame.done():
            self._bare_frame.set_exception(failure)

    # What an exchange needs (`SaslLink`)

    @property
    def address(self) -> HostPort:
        return self._link.address

    def serves(self, request: type[Message]) -> bool:
        return self._link.serves(request)

    def version_of(self, request: type[Message], *, at_most: int | None = None) -> int:
        return self._link.version_of(request, at_most=at_most)

    def request_ahead(self, request: Request[ResponseType], version: int) -> asyncio.Future[ResponseType]:
        return self._link.send_now(request, version)

    async def exchange_frame(self, content: bytes) -> bytes:
        """Only while nothing is in flight. Raises ConnectionFailedError, RequestTimedOutError."""
        self._bare_frame = asyncio.get_running_loop().create_future()
        self._link.transmit(None, [len(content).to_bytes(SIZE_PREFIX_BYTES, "big"), content])
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._bare_frame
        except TimeoutError as error:
            message = f"{self.address}: no answer to a SASL frame within {self._timeout_ms:.0f} ms"
            raise RequestTimedOutError(message) from error
        finally:
            self._bare_frame = None

    def takes(self, frame: bytearray | memoryview) -> bool:
        """Whether the frame belongs to an exchange in bare frames, and not to a request."""
        if self._bare_frame is None:
            return False
        if not self._bare_frame.done():
            self._bare_frame.set_result(bytes(frame))
        return True
