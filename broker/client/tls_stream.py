"""A stream that speaks TLS over another: ciphertext below, the connection's bytes above.

The TLS machine has no socket (`ssl.MemoryBIO`), so the socket below is the very one that plain connections
have: the same options, writes that know when the kernel took them, and nothing between. What arrives is
decrypted into the receiver's own buffer; what is sent is encrypted at once, in call order.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence

from broker.client.security.settings import TlsSettings
from broker.client.security.tls_context import client_context, tls_failure
from broker.client.stream import ByteStream, Receiver, SocketOptions, SocketStream, connect
from broker.errors import BrokerError, ConnectionFailedError
from broker.types import Buffer, HostPort

_CIPHERTEXT_BYTES = 128 * 1024
"""Received in one call."""
_JOINED_BYTES_MAX = 16 * 1024
"""Parts that are smaller together leave in one TLS record, which holds so much."""


async def open_tls_stream(
    address: HostPort, receiver: Receiver, options: SocketOptions, settings: TlsSettings
) -> ByteStream:
    """Connect to `address` and agree on TLS, with `connect_timeout_ms` for either.

    Raises ConnectionFailedError, AuthenticationError that says which check failed, ConfigurationError.
    """
    context = await asyncio.to_thread(client_context, settings)
    connected = await connect(address, options)
    stream = TlsStream(address, receiver, context)
    stream.begin(connected)
    try:
        async with asyncio.timeout(options.connect_timeout_ms / 1000):
            await stream.agreed
    except TimeoutError as error:
        stream.close()
        raise ConnectionFailedError(
            f"{address}: no answer to the TLS handshake within {options.connect_timeout_ms:.0f} ms"
        ) from error
    except BaseException:
        stream.close()
        raise
    return stream


class TlsStream:
    """Both a `ByteStream` for the connection above and the `Receiver` of the socket below."""

    def __init__(self, address: HostPort, receiver: Receiver, context: ssl.SSLContext) -> None:
        self.agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the handshake is; fails as it does."""
        self._address = address
        self._receiver = receiver
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=address.host)
        self._ciphertext = memoryview(bytearray(_CIPHERTEXT_BYTES))
        self._below: SocketStream | None = None
        self._open = True

    def begin(self, connected: socket.socket) -> None:
        """Take the socket over and begin the handshake."""
        self._below = SocketStream(connected, self)
        self._shake_hands()

    # The connection's side (`ByteStream`)

    def write(self, parts: Sequence[Buffer]) -> None:
        if not self._open:
            return
        if sum(memoryview(part).nbytes for part in parts) <= _JOINED_BYTES_MAX:
            parts = [b"".join(parts)]
        try:
            for part in parts:
                unsent = memoryview(part).cast("B")
                while unsent:
                    unsent = unsent[self._tls.write(unsent) :]
        except ssl.SSLError as error:
            self._end(tls_failure(self._address, error, during="a request"))
            return
        self._flush()

    async def drained(self) -> None:
        if self._below is not None:
            await self._below.drained()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._below is not None:
            if self.agreed.done():
                with contextlib.suppress(ssl.SSLError):
                    self._tls.unwrap()  # leaves the note for the peer that this is the end
                self._flush()
            self._below.close()
        if not self.agreed.done():
            self.agreed.cancel()

    # The socket's side (`Receiver`)

    def space(self) -> memoryview:
        return self._ciphertext

    def received(self, count: int) -> None:
        self._incoming.write(self._ciphertext[:count])
        if self.agreed.done() or self._shake_hands():
            self._decrypt()

    def lost(self, error: Exception | None) -> None:
        if not self.agreed.done():
            self._end(tls_failure(self._address, error, during="the TLS handshake"))
        elif self._open:
            self._open = False
            self._receiver.lost(error)

    def _shake_hands(self) -> bool:
        """Go on with the handshake as far as possible; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the peer is told why
            self._end(tls_failure(self._address, error, during="the TLS handshake"))
            return False
        self._flush()  # should that fail, the peer's last words are taken first, and may be its refusal
        if not self.agreed.done():
            self.agreed.set_result(None)
        return self._open

    def _decrypt(self) -> None:
        try:
            while self._open:
                space = self._receiver.space()
                count: int = self._tls.read(len(space), space)  # type: ignore[assignment]  # into a buffer
                if not count:
                    self._end(None)
                    return
                self._receiver.received(count)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLZeroReturnError:
            self._end(None)
        except ssl.SSLError as error:
            self._flush()
            self._end(tls_failure(self._address, error, during="an answer"))

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write([self._outgoing.read()])

    def _end(self, error: BrokerError | None) -> None:
        """The stream is over; whoever waits for it is told."""
        if not self._open:
            return
        self._open = False
        assert self._below is not None, "nothing happens before `begin`"
        self._below.close()
        if self.agreed.done():
            self._receiver.lost(error)
        else:
            self.agreed.set_exception(error or tls_failure(self._address, None, during="the TLS handshake"))
