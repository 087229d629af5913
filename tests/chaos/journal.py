"""What was done to a cluster, and when: on standard output, which a failed test shows, and in a file."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path


class Journal:
    """Lines with the seconds since the start and the time of day, which the logs of nodes have too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._start = time.monotonic()
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Write it down; from any thread."""
        seconds = time.monotonic() - self._start
        line = f"{seconds:8.2f} s  {datetime.now(UTC):%H:%M:%S.%f}  {text}\n"
        with self._lock:
            sys.stdout.write(line)
            with self._file.open("a") as file:
                file.write(line)
