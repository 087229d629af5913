"""How a command ends whose output takes nothing more: its reader has gone, or the disk under it is full. And
what it writes to when it was started without any, or with one that does not have all characters.
"""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper

_REASONS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_STANDARD_STREAMS_END = 2


def prepare_streams() -> None:
    """Have the null device stand for the standard streams that were closed, as by `>&-`: else the next file
    or socket would have their number, and Python no stream to write to. And have standard output take any
    text, as standard error does: what it has no bytes for, such as half of a surrogate pair that somebody
    wrote into a record, is escaped.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_STREAMS_END:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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
