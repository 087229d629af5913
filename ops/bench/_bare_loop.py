"""A loop that receives bytes and sends them on, with neither Kafka nor checksums in between."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Collection

from ops.bench.comparison.cases import Figure

LOOP_BYTES = 1 << 20


def bare_loop(size: int, *, loop_cores: Collection[int], end_cores: Collection[int]) -> Figure:
    """A process that receives `size` bytes into one reused buffer and sends them on, on cores of its own."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    children = [
        _fork(lambda: _pour(listeners[0], size), end_cores),
        _fork(lambda: _drain(listeners[1]), end_cores),
    ]
    started = time.monotonic()
    loop = _fork(lambda: asyncio.run(_pass_on(ports[0], ports[1])), loop_cores)
    usage = os.wait4(loop, 0)[2]
    seconds = time.monotonic() - started
    for child in children:
        os.waitpid(child, 0)
    for listener in listeners:
        listener.close()
    return Figure(bytes=size, seconds=seconds, cpu_seconds=usage.ru_utime + usage.ru_stime)


def _fork(work: Callable[[], None], cores: Collection[int]) -> int:
    """Run `work` in a child on the given cores; its process id."""
    child = os.fork()
    if child:
        return child
    os.sched_setaffinity(0, cores)
    work()
    os._exit(0)


def _pour(listener: socket.socket, size: int) -> None:
    connection, _ = listener.accept()
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(LOOP_BYTES))
        file.flush()
        for _ in range(size // LOOP_BYTES):
            position = 0
            while position < LOOP_BYTES:
                position += os.sendfile(connection.fileno(), file.fileno(), position, LOOP_BYTES - position)
    connection.close()


def _drain(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    buffer = bytearray(LOOP_BYTES)
    while connection.recv_into(buffer):
        pass
    connection.close()


async def _pass_on(port_from: int, port_to: int) -> None:
    loop = asyncio.get_running_loop()
    with (
        socket.create_connection(("127.0.0.1", port_from)) as source,
        socket.create_connection(("127.0.0.1", port_to)) as destination,
    ):
        source.setblocking(False)
        destination.setblocking(False)
        buffer = memoryview(bytearray(LOOP_BYTES))
        while count := await loop.sock_recv_into(source, buffer):
            await loop.sock_sendall(destination, buffer[:count])
