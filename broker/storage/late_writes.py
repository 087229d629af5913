"""What opening the logs of a root could not write for want of room, and its writing once there is some.

A full disk keeps no node from starting: indexes that recovery made anew, and leader epochs, stay in memory
until then, and the recovery point does not pass the segments they belong to. So they are made once more
should the node end before. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from broker.errors import DiskFullError
from broker.storage.log import Log


class LateWrites:
    """See the module's description."""

    __slots__ = ("_events", "_waiting")

    def __init__(self, logs: Iterable[Log], events: FilteringBoundLogger) -> None:
        self._waiting = [log for log in logs if log.recovery_report.lacked_room]
        self._events = events

    def settle(self) -> None:
        """Write what waits, as far as there is room. Raises StorageError."""
        while self._waiting:
            log = self._waiting[-1]
            try:
                if not log.closed:
                    log.files.settle()
            except DiskFullError:
                return
            self._waiting.pop()
            self._events.info("late_writes_settled", partition=str(log.topic_partition))
