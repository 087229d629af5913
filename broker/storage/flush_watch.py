"""The logs of a data root that a flush may be due for: those whose settings ask for flushes, and those that
have rolled since the last one.

Most logs of a large node are neither, and looking at each of them every second would be most of what an idle
node does. Any thread.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.storage.log_files import LogFiles


class FlushWatch:
    """See the module's description."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watched: dict[LogFiles, None] = {}

    @property
    def count(self) -> int:
        """How many are watched."""
        return len(self._watched)

    def watch(self, files: LogFiles) -> None:
        """Look at these until they cannot come due any more."""
        with self._lock:
            self._watched[files] = None

    def forget(self, files: LogFiles) -> None:
        """The log is closed."""
        with self._lock:
            self._watched.pop(files, None)

    def due(self) -> list[LogFiles]:
        """Those to be flushed now."""
        with self._lock:
            self._watched = {files: None for files in self._watched if files.may_come_due()}
            return [files for files in self._watched if files.flush_due()]
