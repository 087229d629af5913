"""Bytes to and from one peer: the seam between connections and what carries them.

`SocketStream` is a raw non-blocking socket on asyncio's loop. Writes go out as iovecs (`sendmsg`) straight
from the caller's buffers, in call order; only what the kernel does not take at once is queued, as views and
never as copies, so a buffer must stay as it is until the peer has answered. Reads land in the receiver's own
buffer. A secured connection puts another `ByteStream` in this place (`tls_stream`); everything above stays
as it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from broker.errors import ConnectionFailedError
from broker.types import Buffer, HostPort

_IOVECS_MAX = 512
"""Parts handed to the kernel in one call; Linux takes at most 1024."""


class Receiver(Protocol):
    """Where a stream's bytes go. All calls come from the event loop."""

    def space(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        ...

    def received(self, count: int) -> None:
        """`count` bytes arrived in the buffer that `space` gave."""
        ...

    def lost(self, error: Exception | None) -> None:
        """The stream is over: closed by the peer (None) or broken. Called once, and not after `close`."""
        ...


class ByteStream(Protocol):
    """An open stream to a peer."""

    def write(self, parts: Sequence[Buffer]) -> None:
        """Queue the parts in call order and send what can be sent now.

        Does nothing once the stream is over.
        """
        ...

    async def drained(self) -> None:
        """Return when nothing is unsent, or the stream is over."""
        ...

    def close(self) -> None:
        """End the stream at once; what is unsent is dropped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Sizes of the kernel's buffers in bytes (0: the system's choice) and the time to connect in
    milliseconds.
    """

    connect_timeout_ms: float = 10_000
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0


async def open_stream(address: HostPort, receiver: Receiver, options: SocketOptions) -> ByteStream:
    """Connect to `address`; bytes that arrive go to `receiver`. Raises as `connect` does."""
    return SocketStream(await connect(address, options), receiver)


async def connect(address: HostPort, options: SocketOptions) -> socket.socket:
    """A socket connected to `address`, trying each address its name resolves to.

    Raises ConnectionFailedError that names the peer and the reason of the last attempt.
    """
    try:
        async with asyncio.timeout(options.connect_timeout_ms / 1000):
            return await _connect(address, options)
    except TimeoutError as error:
        raise ConnectionFailedError(
            f"{address}: no connection within {options.connect_timeout_ms:.0f} ms"
        ) from error
    except OSError as error:
        raise ConnectionFailedError(f"{address}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise ConnectionFailedError(f"{address}: {address.host!r} is no name of a host") from error


async def _connect(address: HostPort, options: SocketOptions) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure = OSError(f"{address.host} has no address")
    for family, kind, protocol, _name, target in found:
        candidate = socket.socket(family, kind, protocol)
        try:
            _prepare(candidate, options)
            await loop.sock_connect(candidate, target)
            return candidate
        except OSError as error:
            candidate.close()
            failure = error
        except asyncio.CancelledError:
            candidate.close()
            raise
    raise failure


def _prepare(candidate: socket.socket, options: SocketOptions) -> None:
    candidate.setblocking(False)
    candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
    if options.receive_buffer_bytes:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)


class SocketStream:
    """A connected socket whose reads are always armed and whose writer is armed only while the kernel's
    buffer is full.
    """

    __slots__ = ("_descriptor", "_drained", "_loop", "_open", "_receiver", "_socket", "_unsent")

    def __init__(self, connected: socket.socket, receiver: Receiver) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._descriptor = connected.fileno()
        self._receiver = receiver
        self._unsent: deque[memoryview] = deque()
        self._drained = asyncio.Event()
        self._open = True
        self._loop.add_reader(self._descriptor, self._on_readable)

    def write(self, parts: Sequence[Buffer]) -> None:
        if not self._open:
            return
        waiting = bool(self._unsent)
        self._unsent.extend(memoryview(part).cast("B") for part in parts if len(part))
        if not waiting:
            self._send()
            if self._unsent:
                self._drained.clear()
                self._loop.add_writer(self._descriptor, self._on_writable)

    async def drained(self) -> None:
        if self._unsent:
            await self._drained.wait()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._unsent.clear()
        self._drained.set()
        self._socket.close()

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._receiver.space())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if count:
            self._receiver.received(count)
        else:
            self._end(None)

    def _on_writable(self) -> None:
        self._send()
        if self._open and not self._unsent:
            self._drained.set()
            self._loop.remove_writer(self._descriptor)

    def _send(self) -> None:
        """Send what is queued until the kernel takes no more; a failure ends the stream and empties the
        queue.
        """
        unsent = self._unsent
        try:
            while unsent:
                parts = unsent if len(unsent) <= _IOVECS_MAX else list(islice(unsent, _IOVECS_MAX))
                sent = self._socket.sendmsg(parts)
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._take_last_words()
            self._end(error)

    def _take_last_words(self) -> None:
        """What arrived before the connection broke: often it says why."""
        while self._open:
            try:
                count = self._socket.recv_into(self._receiver.space())
            except OSError:
                return
            if not count:
                return
            self._receiver.received(count)

    def _end(self, error: Exception | None) -> None:
        if self._open:
            self.close()
            self._receiver.lost(error)
