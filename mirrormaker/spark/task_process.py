"""What a Python worker of Spark keeps from one task to the next.

Spark gives a worker one task after the other. Between them stay an event loop and, of the cluster that was
read last, metadata and a connection to ask for more. And what was imported is hidden from the collector of
garbage, which PySpark calls after each task: that is nearly all that it looks at, for some 50 ms. A driver
keeps nothing here, and neither does whoever calls a reader without Spark.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from mirrormaker.spark.lookups import new_cluster
from mirrormaker.spark.options import ClusterOptions

_START_TIMEOUT_MS = 60_000
"""How long a task waits for a cluster that its driver has just reached: its failure may be a query's."""


class ConnectedCluster:
    """A cluster, and the event loop that its connections live on."""

    def __init__(self, options: ClusterOptions) -> None:
        """Raises BrokerError when the cluster cannot be reached."""
        self.options = options
        self.runner = asyncio.Runner()
        self.cluster = new_cluster(options)
        try:
            self.runner.run(self.cluster.start(timeout_ms=_START_TIMEOUT_MS))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the cluster."""
        self.runner.run(self.cluster.close())
        self.runner.close()


class TaskProcess:
    """One worker's; tasks follow each other."""

    def __init__(self) -> None:
        self._tasks = 0
        self._kept: ConnectedCluster | None = None

    @contextmanager
    def task(self, options: ClusterOptions) -> Iterator[ConnectedCluster]:
        """The cluster for one task. Raises BrokerError when it cannot be reached."""
        connected = self._begin(options)
        try:
            yield connected
        except BaseException:
            connected.close()
            raise
        if TaskContext.get() is None:
            connected.close()
        else:
            self._kept = connected

    def close(self) -> None:
        """Leave the cluster that is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _begin(self, options: ClusterOptions) -> ConnectedCluster:
        self._tasks += 1
        if self._tasks == 2 and TaskContext.get() is not None:
            gc.freeze()  # what the first task has imported; PySpark has just collected what it left behind
        kept = self._kept
        if kept is not None and kept.options == options:
            self._kept = None
            return kept
        self.close()
        return ConnectedCluster(options)


THIS_PROCESS = TaskProcess()
"""One for each process, as its tasks know nothing of each other."""
