"""One connection to one node: requests go out in call order, answers come back in the same order.

A request's bytes are queued the moment `send` is called, so several callers, or one with several requests in
flight, keep their order without waiting for each other. The number in flight is bounded (`max_in_flight`).
Anything that breaks the stream, a torn or garbled answer, an answer to another request, a request that is
never answered, closes the connection and fails every request in flight with an error that names the peer:
what became of them is unknown.

A secured connection speaks TLS (`tls_stream`), and says who it is before anything else is asked (`session`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import Any, Self

from broker.client.frames import FrameAssembler
from broker.client.in_flight import InFlight
from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.session import Session
from broker.client.stream import ByteStream, SocketOptions, open_stream
from broker.client.tls_stream import open_tls_stream
from broker.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
    WireError,
)
from broker.types import Buffer, HostPort
from broker.wire.header import decode_response, encode_request, read_correlation_id
from broker.wire.message import Message, Request, ResponseType
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.registry import api_of

CLIENT_SOFTWARE_NAME = "mirrormaker"
CLIENT_SOFTWARE_VERSION = "0.1.0"

_ERROR_CODE_AFTER_CORRELATION_ID = Struct(">4xh")
_CORRELATION_ID_LIMIT = 1 << 31
_FIRST_REQUESTS = 2
"""ApiVersions, and what comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How connections behave; times in milliseconds, sizes in bytes."""

    client_id: str = CLIENT_SOFTWARE_NAME
    connect_timeout_ms: float = 10_000
    request_timeout_ms: float = 30_000
    max_frame_bytes: int = 128 * 1024 * 1024
    """An answer that announces more closes the connection."""
    max_in_flight: int = 128
    """Requests sent and not yet answered."""
    send_buffer_bytes: int = 0
    """The kernel's send buffer; 0 leaves it to the system, which is best except on links it misjudges."""
    receive_buffer_bytes: int = 0
    keeps_frames: bool = False
    """Large answers come into one buffer again and again: records of one are good until the next is asked
    for. Only for connections with one request in flight at a time.
    """
    security: ConnectionSecurity = PLAINTEXT

    @property
    def socket_options(self) -> SocketOptions:
        return SocketOptions(
            connect_timeout_ms=self.connect_timeout_ms,
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions of one API that a peer serves, both ends included."""

    first: int
    last: int


class Connection:
    """A connection to one node. Made by `Connection.open`; used on the event loop that opened it."""

    def __init__(self, address: HostPort, settings: ConnectionSettings) -> None:
        self.address = address
        self.round_trip_ms = 0.0
        """Time the ApiVersions exchange took: a first estimate of the link's round trip."""
        self.finalized_features: Mapping[str, int] = {}
        """What the cluster agreed on, with the highest level that may be used."""
        self.supported_features: Mapping[str, int] = {}
        """What the peer can do, with the highest level."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._frames = FrameAssembler(settings.max_frame_bytes, keeps=settings.keeps_frames)
        self._in_flight: deque[InFlight] = deque()
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._versions: Mapping[int, VersionRange] = {}
        self._correlation_id = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._failure: ConnectionFailedError | None = None
        self._stream: ByteStream | None = None
        self._session: Session | None = None

    @classmethod
    async def open(cls, address: HostPort, settings: ConnectionSettings | None = None) -> Self:
        """Connect, agree on versions, and say who the client is.

        Raises ConnectionFailedError naming the peer, RequestTimedOutError, AuthenticationError when the two
        do not accept each other, ConfigurationError when certificates or secrets cannot be read.
        """
        connection = cls(address, settings or ConnectionSettings())
        connection._stream = await connection._connect()
        try:
            await connection._negotiate()
            if connection._session is not None:
                await connection._session.begin()
        except BaseException as error:
            connection._end("closed during the first exchange", None)
            if isinstance(error, ConnectionFailedError) and isinstance(error.__cause__, AuthenticationError):
                raise error.__cause__ from None  # TLS 1.3 refuses after its handshake
            raise
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._in_flight) + (self._session.held if self._session is not None else 0)

    def serves(self, request: type[Message]) -> bool:
        """Whether there is a version of the API that both sides know."""
        return self._common_version(request, None) is not None

    def version_of(self, request: type[Message], *, at_most: int | None = None) -> int:
        """The highest version of the API that both sides know, not above `at_most`.

        Raises ProtocolError UNSUPPORTED_VERSION naming the peer and the API.
        """
        version = self._common_version(request, at_most)
        if version is None:
            served = self._versions.get(request.api_key)
            name = api_of(request).name
            theirs = f"{served.first} to {served.last}" if served else "none"
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves versions {theirs} of {name}, known here are "
                f"{request.min_version} to {min(request.max_version, at_most or request.max_version)}",
            )
        return version

    def send(
        self, request: Request[ResponseType], version: int | None = None, *, timeout_ms: float | None = None
    ) -> asyncio.Future[ResponseType]:
        """Queue the request's bytes at once and return the future of its answer.

        Buffers among its fields are sent from where they are: they must not change before the answer is
        there. The future ends in the response, ConnectionFailedError, RequestTimedOutError (which closes the
        connection), or ProtocolError. Raises RuntimeError when `max_in_flight` requests are in flight (await
        `room()` first), ConnectionFailedError when closed, WireError when the request cannot be encoded.
        """
        if self.in_flight >= self._settings.max_in_flight:
            raise RuntimeError(
                f"{self._settings.max_in_flight} requests to {self.address} are in flight already"
            )
        if version is None:
            version = self.version_of(type(request))
        pending, parts = self._encode(request, version, timeout_ms)
        self._transmit_or_hold(pending, parts)
        return pending.answer

    def send_and_forget(self, request: Message, version: int | None = None) -> None:
        """Queue a request that the peer never answers: Produce with acks 0. Raises as `send` does."""
        if version is None:
            version = self.version_of(type(request))
        parts = encode_request(request, version, self._next_correlation_id(), self._settings.client_id)
        self._transmit_or_hold(None, parts)

    async def drained(self) -> None:
        """Return when the kernel has taken every byte queued so far.

        Raises ConnectionFailedError when closed.
        """
        if self._session is not None:
            await self._session.settled()
        await self._open_stream().drained()
        self._open_stream()

    async def request(
        self, request: Request[ResponseType], version: int | None = None, *, timeout_ms: float | None = None
    ) -> ResponseType:
        """Wait for room, send, and wait for the answer. Raises as the future of `send` does."""
        await self.room()
        return await self.send(request, version, timeout_ms=timeout_ms)

    async def room(self) -> None:
        """Return once another request may be sent; at once when the connection is closed.

        Waiters are served in order.
        """
        while self.in_flight >= self._settings.max_in_flight and not self.closed:
            turn = self._loop.create_future()
            self._waiting_for_room.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_waiting()
                raise

    async def close(self) -> None:
        """Close now; requests in flight fail with ConnectionFailedError."""
        self._end("closed by this side", None)

    # The session's side (`SessionLink`)

    def send_now(self, request: Request[ResponseType], version: int) -> asyncio.Future[ResponseType]:
        last = max((pending.deadline for pending in self._in_flight), default=0.0)
        wait_ms = max(0.0, last - self._loop.time()) * 1000  # the peer answers what came before first
        pending, parts = self._encode(request, version, wait_ms + self._settings.connect_timeout_ms)
        self.transmit(pending, parts)
        return pending.answer

    def transmit(self, pending: InFlight | None, parts: list[Buffer]) -> None:
        stream = self._open_stream()
        if pending is not None:
            self._in_flight.append(pending)
            self._watch_deadline(pending.deadline)
        stream.write(parts)

    def give_up(self, reason: str, cause: Exception) -> None:
        self._end(reason, cause)

    # The stream's side (`Receiver`)

    def space(self) -> memoryview:
        return self._frames.space()

    def received(self, count: int) -> None:
        try:
            for frame in self._frames.received(count):
                self._take(frame)
        except WireError as error:
            self._end(f"sent bytes that are no answer: {error}{self._doubt()}", error)

    def lost(self, error: Exception | None) -> None:
        torn = (
            f" in the middle of an answer, after {self._frames.pending_bytes} bytes"
            if self._frames.pending_bytes
            else ""
        )
        lost = f"connection lost{torn}: {error}" if error else f"closed by the peer{torn}"
        self._end(f"{lost}{self._doubt()}", error)

    def _take(self, frame: bytearray | memoryview) -> None:
        """Give an answer to the oldest request in flight.

        Raises WireError when it is not an answer to that.
        """
        if self.closed or (self._session is not None and self._session.takes(frame)):
            return
        correlation_id = read_correlation_id(frame)
        if not self._in_flight:
            raise WireError(f"an answer to request {correlation_id} where none is expected")
        pending = self._in_flight[0]
        if correlation_id != pending.correlation_id:
            raise WireError(f"an answer to request {correlation_id} where {pending.correlation_id} is next")
        version = _response_version(pending, frame)
        _correlation_id, response = decode_response(pending.api, version, memoryview(frame))
        self._in_flight.popleft()
        if not pending.answer.done():
            pending.answer.set_result(response)
        self._wake_waiting()

    def _doubt(self) -> str:
        """What may be wrong when a peer has not answered more than which versions it serves: one that expects
        TLS or SASL does no more for a client without.
        """
        if self._settings.security != PLAINTEXT or self._correlation_id > _FIRST_REQUESTS:
            return ""
        return "; is security.protocol that of the listener?"

    def _wake_waiting(self) -> None:
        while self._waiting_for_room:
            turn = self._waiting_for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _end(self, reason: str, cause: Exception | None) -> None:
        if self.closed:
            return
        self._failure = ConnectionFailedError(f"{self.address}: {reason}")
        self._failure.__cause__ = cause
        if self._stream is not None:
            self._stream.close()
        if self._expiry is not None:
            self._expiry.cancel()
        for pending in self._unanswered():
            if not pending.answer.done():
                pending.answer.set_exception(_copy(self._failure, f" (during {pending.api.name})"))
        self._in_flight.clear()
        if self._session is not None:
            self._session.end(_copy(self._failure, ""))
        while self._waiting_for_room:
            self._wake_waiting()

    def _unanswered(self) -> Iterator[InFlight]:
        """Every request that waits for an answer, in the order of their answers."""
        return chain(self._in_flight, self._session.unanswered() if self._session is not None else ())

    def _watch_deadline(self, deadline: float) -> None:
        if self._expiry is None or deadline < self._expiry.when():
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Close when a request is overdue; else look again when the next one would be."""
        self._expiry = None
        now = self._loop.time()
        overdue = next((pending for pending in self._unanswered() if pending.deadline <= now), None)
        if overdue is None:
            if self.in_flight:
                self._watch_deadline(min(pending.deadline for pending in self._unanswered()))
            return
        reason = f"no answer to {overdue.api.name} within {overdue.timeout_ms:.0f} ms"
        if not overdue.answer.done():
            overdue.answer.set_exception(RequestTimedOutError(f"{self.address}: {reason}"))
        self._end(reason, None)

    def _encode(
        self, request: Request[Any], version: int, timeout_ms: float | None
    ) -> tuple[InFlight, list[Buffer]]:
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        pending = InFlight(
            api=api_of(request),
            version=version,
            correlation_id=self._next_correlation_id(),
            deadline=self._loop.time() + timeout_ms / 1000,
            timeout_ms=timeout_ms,
            answer=self._loop.create_future(),
        )
        return pending, encode_request(request, version, pending.correlation_id, self._settings.client_id)

    def _transmit_or_hold(self, pending: InFlight | None, parts: list[Buffer]) -> None:
        if self._session is None or not self._session.holds_back:
            self.transmit(pending, parts)
            return
        self._open_stream()
        self._session.hold(pending, parts)
        if pending is not None:
            self._watch_deadline(pending.deadline)

    async def _connect(self) -> ByteStream:
        """Raises as `open_tls_stream` does."""
        settings = self._settings
        if settings.security.credentials is not None:
            timeout_ms = settings.connect_timeout_ms
            self._session = Session(self, settings.security.credentials, timeout_ms=timeout_ms)
        if settings.security.tls is None:
            return await open_stream(self.address, self, settings.socket_options)
        return await open_tls_stream(self.address, self, settings.socket_options, settings.security.tls)

    def _open_stream(self) -> ByteStream:
        if self._failure is not None:
            raise _copy(self._failure, "")
        assert self._stream is not None
        return self._stream

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_ID_LIMIT
        return self._correlation_id

    def _common_version(self, request: type[Message], at_most: int | None) -> int | None:
        served = self._versions.get(request.api_key)
        if served is None:
            return None
        highest = min(request.max_version, served.last)
        if at_most is not None:
            highest = min(highest, at_most)
        return highest if highest >= max(request.min_version, served.first) else None

    async def _negotiate(self) -> None:
        """Ask for the peer's versions with our newest request, then with the one an older peer asks for
        (KIP-511).
        """
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        version = ApiVersionsRequest.max_version
        timeout_ms = self._settings.connect_timeout_ms
        started = self._loop.time()
        response = await self.send(request, version, timeout_ms=timeout_ms)
        self.round_trip_ms = (self._loop.time() - started) * 1000
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = _version_asked_for(response)
            response = await self.send(request, version, timeout_ms=timeout_ms)
        if response.error_code:
            raise ProtocolError(
                ErrorCode.of(response.error_code), f"{self.address} refuses to tell the versions it serves"
            )
        self._versions = {
            served.api_key: VersionRange(first=served.min_version, last=served.max_version)
            for served in response.api_keys
        }
        self.finalized_features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
        self.supported_features = {
            feature.name: feature.max_version for feature in response.supported_features
        }


def _response_version(pending: InFlight, frame: bytearray | memoryview) -> int:
    """A peer that does not know our version of ApiVersions answers in version 0, with an error code
    (KIP-511).
    """
    if pending.api.request is not ApiVersionsRequest or len(frame) < _ERROR_CODE_AFTER_CORRELATION_ID.size:
        return pending.version
    (code,) = _ERROR_CODE_AFTER_CORRELATION_ID.unpack_from(frame)
    return 0 if code == ErrorCode.UNSUPPORTED_VERSION else pending.version


def _version_asked_for(response: ApiVersionsResponse) -> int:
    for served in response.api_keys:
        if served.api_key == ApiVersionsRequest.api_key:
            return max(0, min(served.max_version, ApiVersionsRequest.max_version))
    return 0


def _copy(failure: ConnectionFailedError, suffix: str) -> ConnectionFailedError:
    """A fresh exception for each request that failed: a raised one gathers tracebacks."""
    copy = ConnectionFailedError(f"{failure}{suffix}")
    copy.__cause__ = failure.__cause__
    return copy
