"""A way that is long and narrow: TCP connections through a proxy in a process of its own.

Each direction has a rate, shared by all connections, and what has passed arrives half a round trip later. Who
sends is held back while more than `QUEUE_SECONDS` of the rate wait before the narrow place, as by a receive
window; nothing is lost, so this shows what senders put under way, and not how TCP recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from broker.loopback import LOOPBACK
from broker.types import HostPort

QUEUE_SECONDS = 0.05
READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What lies between the two ends."""

    round_trip_ms: float
    bytes_per_second: float


@dataclass(slots=True)
class _Direction:
    """Shared by all connections: when the narrow place is free again."""

    way: Way
    free_at: float = 0.0

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                self.free_at = max(self.free_at, loop.time()) + len(data) / self.way.bytes_per_second
                loop.call_at(self.free_at + self.way.round_trip_ms / 2000, _write, writer, data)
                await asyncio.sleep(self.free_at - QUEUE_SECONDS - loop.time())
        loop.call_at(self.free_at + self.way.round_trip_ms / 2000, writer.close)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


async def _serve(ways: dict[int, tuple[HostPort, Way]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for port, (target, way) in ways.items():
            there, back = _Direction(way), _Direction(way)

            async def accept(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                target: HostPort = target,
                directions: tuple[_Direction, _Direction] = (there, back),
            ) -> None:
                try:
                    far_reader, far_writer = await asyncio.open_connection(*target)
                except OSError:
                    writer.close()
                    return
                await asyncio.gather(
                    directions[0].pass_on(reader, far_writer), directions[1].pass_on(far_reader, writer)
                )

            server = await asyncio.start_server(accept, LOOPBACK, port)
            tasks.create_task(server.serve_forever())


def _run(ways: dict[int, tuple[HostPort, Way]]) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(ways))


@contextmanager
def far_away(ways: dict[int, tuple[HostPort, Way]]) -> Iterator[None]:
    """Listen on each port, and pass on to what is behind it."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(ways,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()
