"""SASL over a connection: the handshake that names the mechanism, and the exchange.

A peer that serves SaslAuthenticate gets the exchange in requests, which can be refused with a reason and tell
how long the session lasts. An older one (Apache Kafka before 1.0) gets bare frames and closes the connection
when it refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from broker.client.sasl.exchange import SaslError, SaslExchange
from broker.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ErrorCode,
    ProtocolError,
)
from broker.types import HostPort
from broker.wire.message import Message, Request, ResponseType
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest

_FIRST_VERSION_BEFORE_REQUESTS = 1


class SaslLink(Protocol):
    """What an exchange needs of a connection. Requests pass all others that wait to be sent."""

    @property
    def address(self) -> HostPort: ...

    def serves(self, request: type[Message]) -> bool: ...

    def version_of(self, request: type[Message], *, at_most: int | None = None) -> int: ...

    def request_ahead(self, request: Request[ResponseType], version: int) -> Awaitable[ResponseType]: ...

    def exchange_frame(self, content: bytes) -> Awaitable[bytes]:
        """Send a frame without a header; the peer's next frame, as it is."""
        ...


async def authenticate(link: SaslLink, exchange: SaslExchange) -> int:
    """Go through the exchange; returns the session's lifetime in milliseconds, 0 when it has no end.

    Raises AuthenticationError that names peer and mechanism, ConnectionFailedError, RequestTimedOutError,
    ProtocolError.
    """
    if not link.serves(SaslHandshakeRequest):
        raise AuthenticationError(f"{link.address}: it offers no SASL")
    in_requests = link.serves(SaslAuthenticateRequest)
    version = link.version_of(
        SaslHandshakeRequest, at_most=None if in_requests else _FIRST_VERSION_BEFORE_REQUESTS - 1
    )
    handshake = await link.request_ahead(SaslHandshakeRequest(mechanism=exchange.mechanism), version)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(
            f"{link.address}: {exchange.mechanism} is not among the SASL mechanisms it offers: {offered}"
        )
    if handshake.error_code:
        meaning = ErrorCode.of(handshake.error_code).meaning
        raise AuthenticationError(
            f"{link.address}: SASL is refused: {meaning}; is security.protocol that of the listener?"
        )
    try:
        if in_requests:
            return await _in_requests(link, exchange)
        return await _in_frames(link, exchange)
    except SaslError as error:
        raise AuthenticationError(f"{link.address}: {error}") from error


async def _in_requests(link: SaslLink, exchange: SaslExchange) -> int:
    version = link.version_of(SaslAuthenticateRequest)
    message = exchange.first()
    while True:
        answer = await link.request_ahead(SaslAuthenticateRequest(auth_bytes=message), version)
        if answer.error_code:
            raise _refusal(link, exchange, answer)
        reply = await _respond(exchange, answer.auth_bytes)
        if reply is None:
            return answer.session_lifetime_ms
        message = reply


async def _in_frames(link: SaslLink, exchange: SaslExchange) -> int:
    message = exchange.first()
    while True:
        try:
            answer = await link.exchange_frame(message)
        except ConnectionFailedError as error:
            raise ConnectionFailedError(
                f"{error} (during {exchange.mechanism}: a broker this old closes the connection when it"
                " refuses credentials)"
            ) from error
        reply = await _respond(exchange, answer)
        if reply is None:
            return 0
        message = reply


async def _respond(exchange: SaslExchange, challenge: bytes) -> bytes | None:
    """In a thread: SCRAM computes for milliseconds."""
    return await asyncio.to_thread(exchange.respond, bytes(challenge))


def _refusal(
    link: SaslLink, exchange: SaslExchange, answer: SaslAuthenticateResponse
) -> AuthenticationError | ProtocolError:
    code = ErrorCode.of(answer.error_code)
    reason = answer.error_message or code.meaning
    message = f"{link.address}: {exchange.mechanism} is refused: {reason}"
    return ProtocolError(code, message) if code.retriable else AuthenticationError(message)
