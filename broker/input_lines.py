"""Lines of standard input, read beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable

from broker.errors import BrokerError

LINE_BYTES_MAX = 64 << 20
_CHUNK_BYTES = 1 << 18


class InputError(BrokerError):
    """What comes in cannot be taken: it cannot be read, or a line of it is too long."""


async def input_lines(descriptor: int) -> AsyncIterator[bytes]:
    """Each line without its end; the last one may lack it.

    Nobody waits for a read under way: a command that is told to end while its input is silent ends at once.
    Raises InputError.
    """
    parts: list[bytes] = []
    size = count = 0
    while chunk := await _read(descriptor):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > LINE_BYTES_MAX:
            raise InputError(f"line {count + 1} of the input is longer than {LINE_BYTES_MAX} bytes")
        if others:
            yield b"".join(parts)
            *whole, last = others
            for line in whole:
                yield line
            count += len(others)
            parts, size = [last], len(last)
    if size:
        yield b"".join(parts)


async def _read(descriptor: int) -> bytes:
    """What is there, waited for in a thread that the process does not stay for; nothing at the end."""
    loop = asyncio.get_running_loop()
    chunk: asyncio.Future[bytes] = loop.create_future()

    def tell(act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if chunk.done() else act())

    def read() -> None:
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except OSError as error:
            failure = InputError(f"cannot read the input: {error.strerror}")
            tell(lambda: chunk.set_exception(failure))
        else:
            tell(lambda: chunk.set_result(data))

    threading.Thread(target=read, name="input", daemon=True).start()
    return await chunk
