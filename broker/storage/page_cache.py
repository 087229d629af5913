"""Whether bytes of a file are in the page cache, and getting them there without stopping the event loop.

Reading from a cold file waits for the disk on the calling thread, `sendfile` too. So what the event loop
looks up it reads within `resident_only`: by reads that refuse to wait (`preadv` with RWF_NOWAIT). One that
would wait raises ColdReadError, whose `warm` reads the same bytes in a thread; then all is tried again. A
range that is to be sent is probed likewise. Between probe and send a page may be dropped again: then that one
send waits, which is harmless if it is rare.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from broker.errors import BrokerError

PROBE_DISTANCE = 128 * 1024
"""The kernel's usual read-ahead: a page that is there stands for its neighbours up to so far."""
_WARM_CHUNK = 1024 * 1024


class ColdReadError(BrokerError):
    """The bytes at `position` of the file at `path` are on the disk only."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        super().__init__(f"{path} is not in memory at {position}")
        self._path = path
        self._position = position
        self._size = size

    def warm(self, size_min: int = 0) -> None:
        """Bring them into memory, and as many as `size_min` in all, if the file is still there. Blocks on the
        disk; any thread.
        """
        with suppress(OSError):  # whoever reads in earnest will meet it again
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                warm(descriptor, self._position, max(self._size, size_min, PROBE_DISTANCE))
            finally:
                os.close(descriptor)


class _Thread(threading.local):
    may_wait = True


_thread = _Thread()


class _ResidentOnly:
    __slots__ = ()

    def __enter__(self) -> None:
        _thread.may_wait = False

    def __exit__(self, *_: object) -> None:
        _thread.may_wait = True


resident_only = _ResidentOnly()
"""Within it, this thread's reads raise ColdReadError rather than wait. Not to be held over an await."""


def may_wait() -> bool:
    """Whether reads of this thread may wait for the disk."""
    return _thread.may_wait


def read_resident(descriptor: int, position: int, size: int) -> bytes | bytearray | None:
    """Up to `size` bytes, fewer only at the end of the file; None when some are on the disk only.

    Where the file system cannot tell they are read, whatever it takes. Raises OSError.
    """
    buffer = bytearray(size)
    try:
        done = os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
        if done == size:
            return buffer
        if not os.preadv(descriptor, [bytearray(1)], position + done, os.RWF_NOWAIT):
            return buffer[:done]
    except BlockingIOError:
        return None
    except OSError:
        return os.pread(descriptor, size, position)
    return None


def is_resident(descriptor: int, position: int, size: int) -> bool:
    """Whether the range seems to be in memory; True where the file system cannot tell."""
    probe = [bytearray(1)]
    end = position + size
    try:
        for place in range(position, end, PROBE_DISTANCE):
            os.preadv(descriptor, probe, place, os.RWF_NOWAIT)
        if size > 1:
            os.preadv(descriptor, probe, end - 1, os.RWF_NOWAIT)
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
