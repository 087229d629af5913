"""Memory as on a machine that has been up for long: the page cache has nearly all of it.

A virtual machine may give free memory back to its host. The first write to such a page then costs the guest
some 14 µs, ten times the copy itself, which falls on whoever writes a log just then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

READ_BYTES = 1 << 20
_MEMORY = Path("/proc/meminfo")


@contextmanager
def page_cache_filler(directory: Path) -> Iterator[Callable[[], None]]:
    """What is to be called when memory may have become free: it reads a file without content, which is as
    large as memory and takes no space in `directory`, until the end of the `with`.
    """
    path = directory / "page-cache"
    with path.open("wb") as file:
        file.truncate(_available_bytes())
    buffer = bytearray(READ_BYTES)

    def fill() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    try:
        yield fill
    finally:
        path.unlink()


def _available_bytes() -> int:
    """Memory that programs and the page cache may still have."""
    for line in _MEMORY.read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
