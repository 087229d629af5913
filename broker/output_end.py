"""How a command ends whose output takes nothing more: its reader has gone, or the disk under it is full. And
what it writes to when it was started without any.
"""

from __future__ import annotations

import errno
import os
import sys

_REASONS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_STANDARD_STREAMS_END = 2


def fill_closed_streams() -> None:
    """Have the null device stand for the standard streams that were closed, as by `>&-`: else the next file
    or socket would have their number, and Python no stream to write to.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_STREAMS_END:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def end_without_output(program: str, error: OSError) -> int:
    """The exit code, 1; stderr is told why, unless it is that the reader has gone.

    Raises the error when it is of something else than the output.
    """
    if error.errno not in _REASONS or error.filename is not None:
        raise error
    if error.errno != errno.EPIPE:
        sys.stderr.write(f"{program}: cannot write the output: {error.strerror}\n")
    # What is still buffered must not be tried once more when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
