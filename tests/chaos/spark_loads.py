"""A process that loads topics by Spark, which may be killed at any moment, and what it has loaded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.dataset as ds

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster

PATIENCE_SECONDS = 600
"""Spark takes its time to start, most of all where others work, too."""


class Loader:
    """The process with Spark's driver, started again whenever it has ended."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, *options: str) -> None:
        """`options` of the command line of `spark_loader`."""
        addresses = ",".join(map(str, cluster.bootstrap))
        module = "tests.chaos.spark_loader"
        self._command = [sys.executable, "-m", module, addresses, str(directory), *options]
        self._log = directory / "loader.log"
        self._directory = directory
        self._process = self._start()

    def _start(self) -> ChildProcess:
        return ChildProcess.start("loader", self._command, self._log)

    def ensure(self) -> None:
        if self._process.has_exited():
            self._process = self._start()

    def kill(self) -> None:
        """The driver's Python and JVM at once; workers find their driver gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def kill_worker(self) -> None:
        """One of Spark's Python workers, which is a task that fails, or the query with it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                if "pyspark.daemon" in " ".join(child.cmdline()) and not child.children():
                    child.kill()
                    return

    def triggers_begun(self) -> int:
        """Of all queries, in all runs."""
        return sum(1 for _ in self._directory.glob("*-state/offsets/[0-9]*"))

    def wait_until_working(self) -> None:
        """Until it has begun a trigger that it had not before."""
        begun = self.triggers_begun()
        self._wait_until(lambda: self.triggers_begun() > begun)

    def times_caught_up(self) -> int:
        return self._log.read_text(errors="replace").count("caught up")

    def wait_until_caught_up(self) -> None:
        """Until it has caught up twice, in the second round with all that is written by now."""
        wanted = self.times_caught_up() + 2
        self._wait_until(lambda: self.times_caught_up() >= wanted)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            self.ensure()
            assert time.monotonic() < deadline, self._process.log_tail()
            time.sleep(0.1)


def read_files(directory: Path) -> list[tuple[int, str]]:
    """Partition and value of every row in the files that Spark's log of the sink names."""
    files = []
    for entry in sorted((directory / "files" / "_spark_metadata").iterdir()):
        if entry.name.isdigit() or entry.name.endswith(".compact"):
            lines = entry.read_text().splitlines()[1:]
            files += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    table = ds.dataset(sorted(set(files))).to_table(columns=["partition", "value"]).to_pydict()
    return list(zip(table["partition"], table["value"], strict=True))
