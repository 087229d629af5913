"""What this process takes of its machine."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Memory that is really there; where the kernel does not tell, the most that ever was."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Processor time since the start, in user and system."""
    return time.process_time()
