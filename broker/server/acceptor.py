"""Listening sockets and the processors that serve what they accept.

An acceptor hands every connection to one of N processors; a processor is an event loop with its connections.
One processor is shipped, on the node's own loop: the hand-over is the seam for more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from broker.clock import Clock
from broker.errors import StorageError
from broker.server.admission import Admission
from broker.server.config import ConnectionLimits
from broker.server.connection import Connection, Dispatch
from broker.server.request_memory import RequestMemory
from broker.server.security import Listener
from broker.telemetry import logger
from broker.types import HostPort

log = logger("acceptor")

ACCEPTED_AT_ONCE_MAX = 64
"""Connections taken in one turn of the loop, so that a flood of them does not starve those that exist."""
EXHAUSTED_PAUSE_SECONDS = 0.2
"""How long nothing is accepted after the process ran out of descriptors."""
_MAPPED = "::ffff:"
"""How an IPv4 peer is named on a socket that listens on both."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenError(StorageError):
    """An address cannot be listened on."""


class Processor:
    """The connections of one event loop, each in a task of its own."""

    def __init__(
        self, dispatch: Dispatch, limits: ConnectionLimits, clock: Clock, disk_threads: Executor
    ) -> None:
        self._dispatch = dispatch
        self._disk_threads = disk_threads
        self.limits = limits
        self._memory = RequestMemory(limits.queued_bytes_max)
        self._clock = clock
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections_of(self, host: str) -> int:
        """Connections from one address."""
        return self._per_ip[host]

    def connections_on(self, listener: str) -> int:
        """Connections that came in on one listener."""
        return self._per_listener[listener]

    def close_quietest(self, *, not_on: str) -> bool:
        """Close the connection that was silent for longest, but none on that listener."""
        others = [connection for connection in self._connections if connection.listener.name != not_on]
        if not others:
            return False
        quietest = min(others, key=lambda connection: connection.last_active_ms)
        log.warning("connection_closed_for_another", peer=str(quietest.peer), listener=not_on)
        quietest.abort()
        return True

    def adopt(self, sock: socket.socket, peer: HostPort, listener: Listener) -> None:
        """Serve an accepted, non-blocking socket from now on."""
        connection = Connection(
            sock,
            peer,
            listener,
            dispatch=self._dispatch,
            limits=self.limits,
            memory=self._memory,
            clock=self._clock,
            disk_threads=self._disk_threads,
        )
        task = asyncio.get_running_loop().create_task(connection.run(), name=f"connection {peer}")
        self._connections[connection] = task
        self._per_ip[peer.host] += 1
        self._per_listener[listener.name] += 1
        task.add_done_callback(lambda task: self._forget(connection, task))

    async def close_idle(self) -> None:
        """Close connections that were silent for too long, again and again; ends by cancellation."""
        idle_ms_max = self.limits.idle_ms_max
        if idle_ms_max < 0:
            return
        while True:
            await asyncio.sleep(max(0.05, min(30.0, idle_ms_max / 2000)))
            horizon_ms = self._clock.monotonic_ms() - idle_ms_max
            for connection in list(self._connections):
                if connection.last_active_ms < horizon_ms and not connection.is_kept_waiting:
                    log.info("idle_connection_closed", peer=str(connection.peer))
                    connection.abort()

    async def drain(self, *, grace_ms: int) -> None:
        """Let connections answer what they have received, for `grace_ms` at most, then close what is left."""
        for connection in self._connections:
            connection.finish()
        if self._connections:
            await asyncio.wait(self._connections.values(), timeout=grace_ms / 1000)
        left = list(self._connections.items())
        for connection, _ in left:
            connection.abort()
        if left:
            await asyncio.wait([task for _, task in left])

    def _forget(self, connection: Connection, task: asyncio.Task[None]) -> None:
        del self._connections[connection]
        for counts, key in (
            (self._per_ip, connection.peer.host),
            (self._per_listener, connection.listener.name),
        ):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("connection_failed", peer=str(connection.peer), exc_info=error)


class Acceptor:
    """One address. `open` binds it, `start` listens and accepts, `close` stops."""

    def __init__(
        self,
        listener: Listener,
        sock: socket.socket,
        processors: Sequence[Processor],
        limits: ConnectionLimits,
        admission: Admission,
    ) -> None:
        self._admission = admission
        self.listener = listener
        self._socket = sock
        self._processors = processors
        self.limits = limits
        self._next_processor = 0
        self._resume: asyncio.TimerHandle | None = None

    @classmethod
    def open(
        cls,
        listener: Listener,
        processors: Sequence[Processor],
        limits: ConnectionLimits,
        admission: Admission,
    ) -> Acceptor:
        """Bind, so that nobody else can; nobody can connect yet.

        Raises ListenError naming the address and the reason.
        """
        sock = None
        try:
            family, address = _socket_address(listener.address)
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if limits.receive_buffer_size > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_size)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
            sock.bind(address)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise ListenError(f"cannot listen on {listener}: {error.strerror or error}") from error
        bound = HostPort(listener.address.host, sock.getsockname()[1])
        return cls(replace(listener, address=bound), sock, processors, limits, admission)

    def start(self) -> None:
        """Listen and accept from now on, on the running loop.

        Raises ListenError when another process was faster.
        """
        try:
            self._socket.listen(self.limits.backlog_size)
        except OSError as error:
            raise ListenError(f"cannot listen on {self.listener}: {error.strerror or error}") from error
        self._accept()

    def close(self) -> None:
        """Stop listening; connections that were accepted live on. Closing twice is closing once."""
        if self._resume is not None:
            self._resume.cancel()
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def _accept(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            self._hand_over(sock, HostPort(address[0].removeprefix(_MAPPED), address[1]))
            rest_ms = self._admission.rest_ms(self.listener, self.limits)
            if rest_ms:
                self._rest(rest_ms / 1000)
                return

    def _hand_over(self, sock: socket.socket, peer: HostPort) -> None:
        reason = self._admission.refusal(self.listener, peer.host, self.limits)
        if reason:
            log.warning("connection_refused", peer=str(peer), reason=reason)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.send_buffer_size > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_size)
        processor = self._processors[self._next_processor]
        self._next_processor = (self._next_processor + 1) % len(self._processors)
        processor.adopt(sock, peer, self.listener)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors: the pending connection would fire the reader without end, so stop listening
        for a moment.
        """
        log.error("accept_failed", listener=str(self.listener), reason=str(error))
        self._rest(EXHAUSTED_PAUSE_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Accept nothing for so long; who connects meanwhile waits in the kernel's queue."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        self._resume = loop.call_later(seconds, self._accept)


def _socket_address(address: HostPort) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Where to bind for a host: IPv4 where a name has both, every address of this machine for none."""
    host, port = address
    if not host:
        return (socket.AF_INET6, ("::", port)) if socket.has_ipv6 else (socket.AF_INET, ("0.0.0.0", port))
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, resolved = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, (str(resolved[0]), port)
