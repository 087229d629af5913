"""How a command ends whose output takes nothing more: its reader has gone, or the disk under it is full."""

from __future__ import annotations

import errno
import os
import sys

_REASONS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


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
