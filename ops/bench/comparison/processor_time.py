"""Processor time of another process."""

from __future__ import annotations

import time

_CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of a process in all its threads, to the nanosecond (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
