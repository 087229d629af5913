"""Logs by their partitions, for several threads: the map is replaced, never changed, so that whoever iterates
sees one state.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from broker.storage.log import Log
from broker.types import TopicPartition


class LogMap:
    """See the module's description. Any thread."""

    __slots__ = ("_lock", "current")

    def __init__(self) -> None:
        self.current: Mapping[TopicPartition, Log] = {}
        self._lock = Lock()

    def replace(self, logs: Mapping[TopicPartition, Log]) -> None:
        with self._lock:
            self.current = logs

    def put(self, *logs: Log) -> None:
        """Add logs; each takes the place of an earlier one of its partition."""
        with self._lock:
            self.current = {**self.current, **{log.topic_partition: log for log in logs}}

    def take(self, topic_partition: TopicPartition) -> Log | None:
        """Take a log out; None when there is none."""
        with self._lock:
            logs = dict(self.current)
            log = logs.pop(topic_partition, None)
            self.current = logs
        return log
