"""A standalone cluster of Spark on this machine, out of pyspark's own distribution.

Master and workers are a JVM each, and so are executors, which workers start for an application; all listen on
127.0.0.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pyspark

from broker.child_process import ChildProcess
from broker.loopback import LOOPBACK, accepts, free_ports
from broker.types import HostPort

WORKERS = 2
START_TIMEOUT_MS = 120_000
EXECUTOR_MEBIBYTES = 512
"""Of the heap; as much again is for Python and what lies beside it."""
SETTINGS = {"spark.executor.memory": f"{EXECUTOR_MEBIBYTES}m", "spark.executor.cores": "1"}
"""Of an application, so that each worker has room for one executor of it."""
_HOME = Path(pyspark.__file__).parent
_ENVIRONMENT = {
    "SPARK_HOME": str(_HOME),
    "SPARK_LOCAL_IP": LOOPBACK,
    "SPARK_DAEMON_MEMORY": "200m",
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false -Dspark.ui.enabled=false",
    "SPARK_WORKER_OPTS": "-Dspark.ui.enabled=false",
}
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class StandaloneSpark:
    """Starts within a `with`, whose end kills all of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._master: ChildProcess | None = None
        self._workers: list[ChildProcess] = []
        (self._port,) = free_ports(1)

    @property
    def master(self) -> str:
        """As a session takes it."""
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> StandaloneSpark:
        self._directory.mkdir()
        self._master = self._start("master", "master.Master", "--port", str(self._port))
        self._master.wait_until(lambda: accepts(HostPort(LOOPBACK, self._port)), timeout_ms=START_TIMEOUT_MS)
        self._workers = [self._start_worker(number) for number in range(WORKERS)]
        for number in range(WORKERS):
            self._wait_until_registered(number)
        return self

    def __exit__(self, *_: object) -> None:
        executors = list(self._executors())
        for process in [*self._workers, *([self._master] if self._master is not None else [])]:
            process.kill()
        for executor in executors:
            _kill(executor)

    def executors_started(self) -> int:
        """For all applications, those that are gone included."""
        return sum(1 for _ in self._directory.glob("work-*/app-*/[0-9]*"))

    def kill_executor(self, chance: Random) -> bool:
        """Kill one at once; False when there is none."""
        running = list(self._executors())
        return bool(running) and _kill(chance.choice(running))

    def kill_python(self, chance: Random) -> bool:
        """One of the processes in which executors run Python; False when there is none."""
        running = [
            child
            for executor in self._executors()
            for child in _children(executor)
            if "pyspark.daemon" in _command_of(child) and not _children(child)
        ]
        return bool(running) and _kill(chance.choice(running))

    def kill_worker(self, chance: Random) -> None:
        """What starts executors, on one of the machines; a new one takes its place."""
        number = chance.randrange(WORKERS)
        self._workers[number].kill()
        self._workers[number] = self._start_worker(number)
        self._wait_until_registered(number)

    def _start_worker(self, number: int) -> ChildProcess:
        memory = ("--cores", "1", "--memory", f"{2 * EXECUTOR_MEBIBYTES}m")
        folder = ("--work-dir", str(self._directory / f"work-{number}"))
        (self._directory / f"worker-{number}.log").unlink(missing_ok=True)
        return self._start(f"worker-{number}", "worker.Worker", *memory, *folder, self.master)

    def _wait_until_registered(self, number: int) -> None:
        log = self._directory / f"worker-{number}.log"
        self._workers[number].wait_until(
            lambda: "Successfully registered with master" in log.read_text(errors="replace"),
            timeout_ms=START_TIMEOUT_MS,
        )

    def _executors(self) -> Iterator[psutil.Process]:
        for worker in self._workers:
            for child in _children(psutil.Process(worker.pid)):
                if _EXECUTOR in _command_of(child):
                    yield child

    def _start(self, name: str, main: str, *arguments: str) -> ChildProcess:
        """One of the daemons; `spark-class` becomes its JVM."""
        environment = [f"{key}={value}" for key, value in _ENVIRONMENT.items()]
        spark_class = str(_HOME / "bin" / "spark-class")
        command = [
            *("/usr/bin/env", *environment, spark_class, f"org.apache.spark.deploy.{main}"),
            *("--host", LOOPBACK, "--webui-port", "0", *arguments),
        ]
        return ChildProcess.start(name, command, self._directory / f"{name}.log")


def _children(process: psutil.Process) -> list[psutil.Process]:
    """All that it has started, and these in turn."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True
