"""The network of a simulation: streams between processes with delays, cuts of a direction, and resets.

Bytes of one direction of a stream arrive in order, each piece later by a drawn time. While a direction is cut
they are held back, as TCP sends them again, and arrive when it is healed; a reset loses what is on its way.
The stream of a process that died is closed by its kernel; that of a machine that died is silent until its
peers lose patience, or hear the machine again.

`Host` is what listens: it gives whole requests to the dispatcher of a node one at a time, as the node's own
connections do. Clients use `broker.client.connection` as it is, on streams that `open_stream` makes here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from broker.client.stream import Receiver, SocketOptions
from broker.config import NodeConfig
from broker.errors import ConnectionFailedError, StorageError, WireError
from broker.server.connection import Answer, Dispatch
from broker.server.repeated_requests import RepeatedRequests
from broker.server.request import ConnectionClosedError
from broker.server.security import ANONYMOUS, Listener
from broker.storage.file_range import FileRange
from broker.types import Buffer, HostPort
from broker.wire.framing import SIZE_PREFIX_BYTES
from tests.sim.loop import PROCESS, Process, SimLoop

DELAY_SECONDS = (0.0001, 0.002)
SEND_SECONDS = (0.0, 0.002)
"""Ranges of files are read that much after a request was handled, as sendfile does."""


class Network:
    """All streams and what listens. Machines are named by the name of their processes' address."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self._hosts: dict[HostPort, Host] = {}
        self._streams: dict[Stream, None] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}

    # What the world does to it

    def cut(self, source: str, target: str) -> None:
        """Hold back everything from one machine to another."""
        self._cuts.add((source, target))

    def slow(self, source: str, target: str, seconds: float) -> None:
        """Have everything from one machine to another take up to so much longer."""
        self._slow[source, target] = seconds

    def heal(self) -> None:
        """All links are as at the beginning."""
        self._cuts.clear()
        self._slow.clear()
        for stream in list(self._streams):
            stream.flush()

    def reset(self, name: str) -> None:
        """Break every stream of a machine: both sides notice, what is on its way is lost."""
        for stream in list(self._streams):
            if name in (stream.client.name, stream.server.name):
                stream.reset()

    def died(self, process: Process, *, silently: bool) -> None:
        """A process is gone: its kernel closes its streams, or, `silently`, nobody does."""
        for stream in list(self._streams):
            if process in (stream.client, stream.server):
                stream.died(process, silently=silently)

    def woke(self, name: str) -> None:
        """A machine is back that does not know its old streams: its peers hear so."""
        for stream in list(self._streams):
            if stream.is_half and name in (stream.client.name, stream.server.name):
                stream.reset()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def delay(self, source: str, target: str) -> float:
        low, high = DELAY_SECONDS
        return self.random.uniform(low, high) + self.random.random() * self._slow.get((source, target), 0.0)

    # What processes do with it

    def listen(self, address: HostPort, host: Host) -> None:
        self._hosts[address] = host

    def hear_no_more(self, address: HostPort, host: Host) -> None:
        if self._hosts.get(address) is host:
            del self._hosts[address]

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    async def open_stream(self, address: HostPort, receiver: Receiver, options: SocketOptions) -> ClientEnd:
        """As `broker.client.stream.open_stream`."""
        client, target = PROCESS.get(), address.host
        if client.is_dead:
            raise ConnectionFailedError(f"{address}: the process has ended")
        deadline = self.loop.time() + options.connect_timeout_ms / 1000
        while self.is_cut(client.name, target) or self.is_cut(target, client.name):
            await asyncio.sleep(0.1)
            if self.loop.time() >= deadline:
                raise ConnectionFailedError(f"{address}: no connection")
        await asyncio.sleep(self.delay(client.name, target) + self.delay(target, client.name))
        host = self._hosts.get(address)
        if host is None or host.process.is_dead or client.is_dead:
            raise ConnectionFailedError(f"{address}: connection refused")
        stream = Stream(self, client, host.process, receiver, host)
        self._streams[stream] = None
        return stream.client_end


class _Pipe:
    """One direction of a stream."""

    def __init__(self, stream: Stream, source: Process, target: Process, deliver: Callable[[bytes], None]):
        self._network = stream.network
        self._stream = stream
        self._source = source
        self._target = target
        self._deliver = deliver
        self._arrives_at = 0.0
        self._held: list[bytes | None] = []
        self.is_lost = False

    def send(self, data: bytes | None) -> None:
        """None: the end of the stream."""
        if self.is_lost:
            return
        if self._held or self._network.is_cut(self._source.name, self._target.name):
            self._held.append(data)
            return
        loop = self._network.loop
        delay = self._network.delay(self._source.name, self._target.name)
        self._arrives_at = max(self._arrives_at, loop.time() + delay)
        loop.call_at(self._arrives_at, self._arrived, data, context=self._target.context)

    def flush(self) -> None:
        """Send what was held back."""
        held, self._held = self._held, []
        for data in held:
            self.send(data)

    def _arrived(self, data: bytes | None) -> None:
        if self.is_lost or self._target.is_dead:
            return
        if data is None:
            self._stream.ended(self._target)
        else:
            self._deliver(data)


class Stream:
    """One stream between a client and a host."""

    def __init__(
        self, network: Network, client: Process, server: Process, receiver: Receiver, host: Host
    ) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.is_half = False
        """Whether one side is gone without a word."""
        self.client_end = ClientEnd(self, receiver)
        self.server_end = ServerEnd(self, host)
        host.connections[self.server_end] = None
        self.to_server = _Pipe(self, client, server, self.server_end.received)
        self.to_client = _Pipe(self, server, client, self.client_end.received)

    def flush(self) -> None:
        self.to_server.flush()
        self.to_client.flush()

    def reset(self) -> None:
        """Both sides that are alive notice a broken stream."""
        self._lose()
        for process in (self.client, self.server):
            if not process.is_dead:
                self.network.loop.call_soon(self.ended, process, context=process.context)

    def died(self, process: Process, *, silently: bool) -> None:
        out, into = (
            (self.to_server, self.to_client) if process is self.client else (self.to_client, self.to_server)
        )
        into.is_lost = True
        if silently:
            out.is_lost = self.is_half = True
        else:
            out.send(None)

    def ended(self, process: Process) -> None:
        """Tell one side that the other is gone."""
        if process is self.client:
            self.client_end.lost()
        else:
            self.server_end.lost()
        self.network.forget(self)

    def _lose(self) -> None:
        self.to_server.is_lost = self.to_client.is_lost = True
        self.network.forget(self)


class ClientEnd:
    """A client's end; implements `ByteStream`. Every write is one request."""

    def __init__(self, stream: Stream, receiver: Receiver) -> None:
        self._stream = stream
        self._receiver = receiver
        self._is_open = True

    def write(self, parts: Sequence[Buffer]) -> None:
        if self._is_open and not self._stream.client.is_dead:
            self._stream.to_server.send(b"".join(parts))

    async def drained(self) -> None:
        return

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            if not self._stream.client.is_dead:
                self._stream.to_server.send(None)

    def received(self, data: bytes) -> None:
        position = 0
        while self._is_open and position < len(data):
            space = self._receiver.space()
            count = min(len(space), len(data) - position)
            space[:count] = data[position : position + count]
            position += count
            self._receiver.received(count)

    def lost(self) -> None:
        if self._is_open:
            self._is_open = False
            self._receiver.lost(None)


class ServerEnd:
    """A node's end; the session of what comes in on it. Requests are done one at a time."""

    def __init__(self, stream: Stream, host: Host) -> None:
        self.peer = HostPort(stream.client.name, stream.client.number)
        self.listener = host.listener
        self.principal = ANONYMOUS
        self.client_software = ("unknown", "unknown")
        self.fetch_turn = 0
        self.repeated_requests = RepeatedRequests()
        self._stream = stream
        self._host = host
        self._frames: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_open = True

    def mute(self, duration_ms: int) -> None:
        """Quotas have no part in a simulation."""

    def received(self, data: bytes) -> None:
        if self._is_open:
            self._frames.append(data)
            self._go_on()

    def lost(self) -> None:
        """The client is gone: what waits on its behalf ends."""
        self._is_open = False
        self._frames.clear()
        self._host.connections.pop(self, None)
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        if self._is_open:
            self.lost()
            self._stream.to_client.send(None)

    def _go_on(self) -> None:
        while self._frames and not self._is_busy:
            frame = memoryview(bytearray(self._frames.popleft()))[SIZE_PREFIX_BYTES:]
            self._is_busy = True
            try:
                reply = self._host.dispatch(self, frame)  # type: ignore[arg-type]
            except (WireError, ConnectionClosedError):
                self.close()
                return
            if isinstance(reply, Coroutine):
                self._task = asyncio.get_running_loop().create_task(self._finish(reply))
                self._task.add_done_callback(partial(self._finished, reply))
            else:
                self._answer(reply)

    async def _finish(self, reply: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await reply
        except (WireError, ConnectionClosedError):
            self.close()
        else:
            self._answer(answer)

    def _finished(self, reply: Coroutine[Any, Any, Answer], task: asyncio.Task[None]) -> None:
        reply.close()  # it has not begun where the client left at once
        self._task = None
        if task.cancelled():
            self.close()
            return
        if (error := task.exception()) is not None:
            self._host.failed(error)
            self.close()
            return
        self._go_on()

    def _answer(self, answer: Answer) -> None:
        """Send the parts; ranges of files are pinned now and read a little later."""
        if answer is None:
            self._is_busy = False
            return
        if not any(isinstance(part, FileRange) for part in answer):
            self._send([bytes(part) for part in answer])  # type: ignore[arg-type]
            return
        parts: list[FileRange | bytes] = [
            part.pin() if isinstance(part, FileRange) else bytes(part) for part in answer
        ]
        network = self._stream.network
        network.loop.call_later(network.random.uniform(*SEND_SECONDS), self._send_later, parts)

    def _send_later(self, parts: list[FileRange | bytes]) -> None:
        try:
            read = [part.read() if isinstance(part, FileRange) else part for part in parts]
        except StorageError:
            self.close()
            return
        finally:
            for part in parts:
                if isinstance(part, FileRange):
                    with contextlib.suppress(StorageError):
                        part.release()
        self._send(read)
        self._go_on()

    def _send(self, parts: list[bytes]) -> None:
        self._is_busy = False
        if not self._host.process.is_dead:
            self._stream.to_client.send(b"".join(parts))


class Host:
    """One node's address; implements `broker.listening.Front`."""

    def __init__(
        self, network: Network, process: Process, listener: Listener, failed: Callable[[BaseException], None]
    ) -> None:
        self.process = process
        self.listener = listener
        self.failed = failed
        self.connections: dict[ServerEnd, None] = {}
        self.dispatch: Dispatch
        self._network = network

    @property
    def listeners(self) -> Sequence[Listener]:
        return [self.listener]

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.stop_accepting()

    def attach(self, dispatch: Dispatch, config: NodeConfig) -> None:
        self.dispatch = dispatch

    def start(self) -> None:
        self._network.listen(self.listener.address, self)

    def stop_accepting(self) -> None:
        self._network.hear_no_more(self.listener.address, self)

    async def drain(self) -> None:
        await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()

    async def close_idle(self) -> None:
        return

    def reconfigure(self, config: NodeConfig) -> None:
        return
