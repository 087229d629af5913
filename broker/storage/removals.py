"""Files and directories that were taken out of use, and when their space may be freed.

They stay for `file.delete.delay.ms` under their `.deleted` names, for whoever still looks at them from
outside; this process itself pins what it reads. A crash forgets the list: names say what to remove. Any
thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock


class Removals:
    """See the module's description; times are monotonic milliseconds."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[tuple[int, Path]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, paths: Iterable[Path], *, due_ms: int) -> None:
        """Let `take` return these from `due_ms` on."""
        with self._lock:
            self._waiting += [(due_ms, path) for path in paths]

    def take(self, now_ms: int | None) -> list[Path]:
        """Those that are due, None: all; whoever takes them removes them."""
        if not self._waiting:
            return []
        with self._lock:
            taken = [path for due_ms, path in self._waiting if now_ms is None or due_ms <= now_ms]
            self._waiting = [each for each in self._waiting if now_ms is not None and each[0] > now_ms]
        return taken
