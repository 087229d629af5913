"""Whether bytes of a file are in the page cache, and getting them there without stopping the event loop.

`sendfile` from a cold file waits for the disk on the calling thread. So a range is probed first, by reads
that refuse to wait (`preadv` with RWF_NOWAIT), and what is not resident is read once in a thread. Between
probe and send a page may be dropped again: then that one send waits, which is harmless if it is rare.
"""

from __future__ import annotations

import os
from itertools import chain

PROBE_DISTANCE = 128 * 1024
"""The kernel's usual read-ahead: a page that is there stands for its neighbours up to so far."""
_WARM_CHUNK = 1024 * 1024


def is_resident(descriptor: int, position: int, size: int) -> bool:
    """Whether the range seems to be in memory; True where the file system cannot tell."""
    probe = [bytearray(1)]
    end = position + size
    try:
        for place in chain(range(position, end - 1, PROBE_DISTANCE), (end - 1,)):
            os.preadv(descriptor, probe, place, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def warm(descriptor: int, position: int, size: int) -> None:
    """Read the range once, so that it is in memory. Blocks on the disk; any thread. Raises OSError."""
    os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_WILLNEED)
    for start in range(position, position + size, _WARM_CHUNK):
        os.pread(descriptor, min(_WARM_CHUNK, position + size - start), start)
