"""How this process keeps memory: what it has freed, and what it never frees.

Answers of a fetch are received into buffers of megabytes that live for milliseconds. By default glibc gives
such memory back to the kernel at once, and every page of the next buffer is faulted in and zeroed again: up
to 0.3 CPU seconds per GB copied. Here freed buffers stay with the process, up to a bound, and are used again.

Python's collections of garbage look at all that there is, modules too: a full one took 20 ms and more, in
which nothing was copied.
"""

from __future__ import annotations

import ctypes
import gc

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
MMAP_THRESHOLD_BYTES = 32 << 20
"""The largest that glibc honours: smaller buffers come from the heap."""
KEPT_BYTES_MAX = 64 << 20
"""Free memory at the end of the heap beyond this goes back to the kernel."""


def settle_memory() -> None:
    """Set this up for a process that has imported what it needs; does nothing where the C library has no such
    settings.
    """
    gc.freeze()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
