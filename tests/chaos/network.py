"""A network that can be cut: whatever nodes say to one another and to ZooKeeper passes through proxies here.

Every pair of places has two directions, each open or cut. What is sent into a cut is kept and arrives when
it is mended, as TCP has it whose packets are lost: connections live on, with silence on them, and new ones
are not answered. A pair may also be reset: its connections end, as when a machine between them forgets them.
The proxies run on an event loop in a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

from broker.loopback import LOOPBACK
from broker.types import HostPort

CHUNK_BYTES = 1 << 16
CALL_SECONDS = 10

Result = TypeVar("Result")
Place = str
Direction = tuple[Place, Place]
"""From and to."""


class Network:
    """See the module's description; a context manager. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates: dict[Direction, asyncio.Event] = {}
        self._writers: defaultdict[frozenset[Place], set[asyncio.StreamWriter]] = defaultdict(set)

    def listen(self, place: Place, target: HostPort, origin: Callable[[int], Place | None]) -> HostPort:
        """An address at which connections to the `place`, which listens at `target`, are taken.

        `origin` tells whose a connection is by the port it comes from, None where the owner is gone; it is
        called in a thread.
        """
        return self._call(self._listen(place, target, origin))

    def cut(self, *directions: Direction) -> None:
        """Let nothing more through."""
        self._call(self._set(directions, is_open=False))

    def mend(self, *directions: Direction) -> None:
        """Let everything through that waited, and what comes."""
        self._call(self._set(directions, is_open=True))

    def reset(self, one: Place, other: Place) -> None:
        """End the connections between the two."""
        self._call(self._reset(frozenset((one, other))))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    # On the loop

    async def _listen(
        self, place: Place, target: HostPort, origin: Callable[[int], Place | None]
    ) -> HostPort:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            port = writer.get_extra_info("peername")[1]
            await self._carry(await asyncio.to_thread(origin, port), place, target, reader, writer)

        def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(accepted(reader, writer))

        server = await asyncio.start_server(start, LOOPBACK, 0)
        self._spawn(server.serve_forever())
        return HostPort(LOOPBACK, server.sockets[0].getsockname()[1])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(
        self,
        origin: Place | None,
        place: Place,
        target: HostPort,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One connection from its beginning to its end."""
        opened = [writer]
        writers = self._writers[frozenset((origin or "", place))]
        writers.add(writer)
        try:
            if origin is None:
                return
            await self._gate(origin, place).wait()
            await self._gate(place, origin).wait()
            far_reader, far_writer = await asyncio.open_connection(*target)
            opened.append(far_writer)
            writers.add(far_writer)
            there = self._pump((origin, place), reader, far_writer)
            back = self._pump((place, origin), far_reader, writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(there)
                pumps.create_task(back)
        except OSError:
            pass  # nobody listens there
        finally:
            writers.difference_update(opened)
            for one in opened:
                one.close()

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry bytes until an end; when one direction has ended so does the other."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._gate(*direction).wait()
                writer.write(data)
                await writer.drain()
            await self._gate(*direction).wait()
        writer.close()

    def _gate(self, origin: Place, place: Place) -> asyncio.Event:
        gate = self._gates.get((origin, place))
        if gate is None:
            gate = self._gates[origin, place] = asyncio.Event()
            gate.set()
        return gate

    async def _set(self, directions: tuple[Direction, ...], *, is_open: bool) -> None:
        for direction in directions:
            gate = self._gate(*direction)
            if is_open:
                gate.set()
            else:
                gate.clear()

    async def _reset(self, pair: frozenset[Place]) -> None:
        for writer in list(self._writers[pair]):
            writer.transport.abort()

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def owner_of(port: int, processes: dict[int, int]) -> int | None:
    """Which of the processes, by broker id, has a TCP connection from this port of the machine."""
    for broker_id, pid in processes.items():
        with contextlib.suppress(psutil.Error):
            if any(found.laddr.port == port for found in psutil.Process(pid).net_connections("tcp")):
                return broker_id
    return None
