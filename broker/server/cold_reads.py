"""Reads that the event loop does only once what they need is in memory (`storage/page_cache`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from broker.storage.page_cache import ColdReadError, resident_only

T = TypeVar("T")

WARMINGS_MAX = 256
"""After so many rounds a read waits: what one brings in the next may find dropped again, and a lookup by time
looks at every segment whose times are not known yet.
"""


async def read_once_warm(read: Callable[[], T], threads: Executor) -> T:
    """What `read` returns, or raises, on the event loop; `threads` wait for the disk in its place.

    It is called again and again, so it must do nothing but read.
    """
    loop = asyncio.get_running_loop()
    for _ in range(WARMINGS_MAX):
        try:
            with resident_only:
                return read()
        except ColdReadError as error:
            cold = error
        await loop.run_in_executor(threads, cold.warm)
    return read()
