"""One run of a pipeline that is due, killed (kill -9) a while after it has come to its n-th step: a change of
its files, or a write of Spark's.

python -m tests.chaos.killed_at_step FILE NAME DUE_MS STEP SECONDS

Ends with 0 where it has fewer steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter

from broker.clock import SystemClock
from mirrormaker.pipelines.command_lines import find_pipeline
from mirrormaker.pipelines.runner import Runner, RunRequest
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.topology.loader import load_topology

_STEPS = (
    (TableFiles, "write_text"),
    (TableFiles, "rename"),
    (TableFiles, "delete"),
    (DataFrameWriter, "parquet"),
    (DataFrameWriter, "save"),
)


class Killer:
    """Counts steps, before and after each."""

    def __init__(self, step: int, seconds: float) -> None:
        self._left = step
        self._seconds = seconds

    def watch(self, owner: type, name: str) -> None:
        """Count the calls of a method."""
        method: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self._count()
            result = method(*arguments, **named)
            self._count()
            return result

        setattr(owner, name, counted)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0 and self._seconds == 0:
            _kill()
        elif self._left == 0:
            threading.Timer(self._seconds, _kill).start()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(file: str, name: str, due_ms: str, step: str, seconds: str) -> None:
    killer = Killer(int(step), float(seconds))
    for owner, method in _STEPS:
        killer.watch(owner, method)
    topology = load_topology(Path(file))
    runner = Runner(topology, find_pipeline(topology, name), SystemClock())
    runner.run(RunRequest(trigger="schedule", due_ms=int(due_ms)))


if __name__ == "__main__":
    main(*sys.argv[1:])
