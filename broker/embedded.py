"""ZooKeeper and whole clusters on one machine, as child processes.

The ZooKeeper is the real server out of the jars that pyspark's wheel ships; nothing of pyspark is imported.
A cluster is a number of `broker start` processes on consecutive ports. Every child is told by the kernel to
die with its parent (PR_SET_PDEATHSIG, set by a small launcher that then execs the program), so that nothing
is left behind when the parent is killed hard. Files of a ZooKeeper directory: `zoo.cfg`,
`log4j2.properties`, and the server's own `version-2/`; of a cluster directory: `node-N.yaml`, `node-N.log`
and the data roots `node-N/`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from broker.errors import BrokerError, ConfigurationError
from broker.types import HostPort

LOOPBACK = "127.0.0.1"

_JARS = (
    "commons-cli",
    "commons-io",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "metrics-core",
    "netty-buffer",
    "netty-common",
    "netty-handler-4",
    "netty-transport-4",
    "slf4j-api",
    "snappy-java",
    "zookeeper",
)
"""The few of pyspark's jars that the server loads: starting with all 300 of them takes twice as long."""

_ZOO_CFG = """\
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir={directory}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_LOG4J = """\
status = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} zookeeper %p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""

_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs before each child: `1` is PR_SET_PDEATHSIG; the check covers a parent that died before the call."""

_POLL_SECONDS = 0.02
_PROBE_SECONDS = 0.25
_LOG_TAIL_BYTES = 4000


class EmbeddedError(BrokerError):
    """A child process could not be started or died early; the message carries the end of its log."""


# ZooKeeper


def zookeeper_command(port: int, directory: Path, *, fsync: bool = True) -> list[str]:
    """Prepare `directory` and return the command of a ZooKeeper on 127.0.0.1:`port` with its data there.

    Without `fsync` the server answers before its log is on the disk: for tests. Raises ConfigurationError
    when Java or pyspark is missing, the port is taken, or the directory cannot be written.
    """
    java = _find_java()
    jars = _find_jars()
    require_free_ports([port])
    _write_zookeeper_files(port, directory)
    return [
        java,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Djute.maxbuffer=8388608",
        f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}",
        "-Dzookeeper.jmx.log4j.disable=true",
        f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(str(jar) for jar in jars),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(directory / "zoo.cfg"),
    ]


def exec_zookeeper(port: int, data_dir: Path) -> None:
    """Become the ZooKeeper server: this process is replaced by it and the call does not return.

    Raises ConfigurationError as `zookeeper_command` does, and when another server uses the directory.
    """
    lock = _lock_zookeeper_directory(data_dir.absolute())
    command = zookeeper_command(port, data_dir.absolute())
    os.set_inheritable(lock, True)  # held for as long as the server lives
    os.execv(command[0], command)


def _lock_zookeeper_directory(directory: Path) -> int:
    """Keep a second server out, as two would write into the same logs; the descriptor that holds the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError([f"cannot write to the ZooKeeper directory {directory}: {error}"]) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        problem = f"the ZooKeeper directory {directory} is in use by another server"
        raise ConfigurationError([problem]) from error
    return lock


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    java = shutil.which("java")
    if java is None:
        problem = "the embedded ZooKeeper needs Java, 11 or newer (Debian: apt install default-jre-headless)"
        raise ConfigurationError([problem])
    return java


def _find_jars() -> list[Path]:
    for home in _spark_homes():
        jars = sorted(jar for jar in Path(home, "jars").glob("*.jar") if jar.name.startswith(_JARS))
        if any(jar.name.startswith("zookeeper-3") for jar in jars):
            return jars
    problem = "the embedded ZooKeeper comes with pyspark, which is missing: pip install 'mirrormaker[spark]'"
    raise ConfigurationError([problem])


def _spark_homes() -> list[str]:
    home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    return [*([home] if home else []), *(spec.submodule_search_locations or [] if spec else [])]


def require_free_ports(ports: Iterable[int]) -> None:
    """Raises ConfigurationError that names every one of these ports of 127.0.0.1 that is taken."""
    problems = [problem for port in ports if (problem := _port_problem(port))]
    if problems:
        raise ConfigurationError(problems)


def _port_problem(port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            return f"cannot listen on {LOOPBACK}:{port}: {error}"
    return None


def _write_zookeeper_files(port: int, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "zoo.cfg").write_text(_ZOO_CFG.format(directory=directory, port=port, host=LOOPBACK))
        (directory / "log4j2.properties").write_text(_LOG4J)
    except OSError as error:
        raise ConfigurationError([f"cannot write to the ZooKeeper directory {directory}: {error}"]) from error


class EmbeddedZooKeeper:
    """A ZooKeeper server as a child process; a context manager that returns when it is ready for clients.

    `port` None takes a free one; the same port and data come back after `stop` and `start`. Raises
    ConfigurationError as `zookeeper_command` does and for a directory in use, and EmbeddedError when the
    server does not come up.
    """

    def __init__(
        self, directory: Path, *, port: int | None = None, fsync: bool = True, timeout_ms: int = 30_000
    ) -> None:
        self._directory = directory.absolute()
        self._fsync = fsync
        self._timeout_ms = timeout_ms
        self._child: ChildProcess | None = None
        self._lock: int | None = None
        self.port = port if port is not None else free_ports(1)[0]

    @property
    def address(self) -> HostPort:
        return HostPort(LOOPBACK, self.port)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._child.pid if self._child else None

    def connect_string(self, chroot: str = "") -> str:
        """What clients connect to; `chroot` without its slash."""
        return f"{self.address}/{chroot}" if chroot else str(self.address)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._lock = _lock_zookeeper_directory(self._directory)
        try:
            command = zookeeper_command(self.port, self._directory, fsync=self._fsync)
            self._child = ChildProcess.start("zookeeper", command, self._directory / "zookeeper.log")
            self._child.wait_until(self._is_ready, timeout_ms=self._timeout_ms)
        except BrokerError:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server; its data stays."""
        if self._child is not None:
            self._child.stop(timeout_ms=5_000)
            self._child = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_ready(self) -> bool:
        """`ruok` is answered before sessions are served; `srvr` tells a mode only once they are.

        A connection that the server accepts while it starts may never be answered, hence the short time-out.
        """
        try:
            with socket.create_connection(self.address, timeout=_PROBE_SECONDS) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while data := connection.recv(4096):
                    answer += data
                return b"Mode:" in answer
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# Clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster of `brokers` nodes on 127.0.0.1, ports `port` and up, broker ids 1 and up.

    `settings` are further broker settings under Kafka's names; a cluster with fewer nodes than Kafka's
    defaults ask replicas of internal topics for gets as many as it has.
    """

    name: str
    zookeeper_connect: str
    port: int
    directory: Path
    brokers: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(HostPort(LOOPBACK, self.port + index) for index in range(self.brokers))

    def node_settings(self, index: int) -> dict[str, object]:
        """The whole configuration of the node on `port + index`."""
        replicas = min(3, self.brokers)
        return {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min(2, replicas),
            **self.settings,
            "broker.id": index + 1,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port + index}",
            "zookeeper.connect": self.zookeeper_connect,
            "log.dirs": str(self.directory.absolute() / f"node-{index + 1}"),
        }


class EmbeddedCluster:
    """The nodes of one cluster as child processes; a context manager that returns when every port is open.

    An open port is a ready node. Raises EmbeddedError with the end of the node's log when one does not come
    up.
    """

    def __init__(self, spec: ClusterSpec, *, timeout_ms: int = 30_000) -> None:
        self.spec = spec
        self._timeout_ms = timeout_ms
        self._children: dict[int, ChildProcess] = {}

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return self.spec.bootstrap

    @property
    def pids(self) -> dict[int, int]:
        """Broker id -> process id of the nodes that were started and not stopped."""
        return {broker_id: child.pid for broker_id, child in self._children.items()}

    def start(self) -> None:
        """Start every node side by side and wait until all are ready."""
        try:
            for index in range(self.spec.brokers):
                self._launch(index)
            for index in range(self.spec.brokers):
                self._wait_ready(index)
        except BaseException:
            self.stop()
            raise

    def start_node(self, broker_id: int) -> None:
        """Start one node that was stopped, and wait until it is ready."""
        self._launch(broker_id - 1)
        self._wait_ready(broker_id - 1)

    def stop_node(self, broker_id: int, *, timeout_ms: int = 30_000) -> int:
        """Stop one node by SIGTERM, after `timeout_ms` by SIGKILL; returns its exit code."""
        return self._children.pop(broker_id).stop(timeout_ms=timeout_ms)

    def kill_node(self, broker_id: int) -> None:
        """Kill one node by SIGKILL, as a crash of its process does."""
        self._children.pop(broker_id).kill()

    def dead_nodes(self) -> dict[int, str]:
        """Broker id -> end of the log of every node that exited by itself."""
        dead = {broker_id: child for broker_id, child in self._children.items() if child.has_exited()}
        return {broker_id: child.log_tail() for broker_id, child in dead.items()}

    def stop(self) -> None:
        """Stop all nodes side by side: SIGTERM, then SIGKILL for those that do not end in time."""
        for child in self._children.values():
            child.signal(signal.SIGTERM)
        for broker_id in list(self._children):
            self.stop_node(broker_id)

    def _launch(self, index: int) -> None:
        require_free_ports([self.spec.port + index])
        settings = self.spec.directory / f"node-{index + 1}.yaml"
        try:
            self.spec.directory.mkdir(parents=True, exist_ok=True)
            settings.write_text(yaml.safe_dump(self.spec.node_settings(index), sort_keys=True))
        except OSError as error:
            problem = f"cannot write to the cluster directory {self.spec.directory}: {error}"
            raise ConfigurationError([problem]) from error
        command = [sys.executable, "-m", "broker.cli", "start", str(settings)]
        log = self.spec.directory / f"node-{index + 1}.log"
        self._children[index + 1] = ChildProcess.start(f"{self.spec.name} node {index + 1}", command, log)

    def _wait_ready(self, index: int) -> None:
        address = self.bootstrap[index]
        self._children[index + 1].wait_until(lambda: accepts(address), timeout_ms=self._timeout_ms)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# Processes and ports


class ChildProcess:
    """A child that dies with its parent, its output in a file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    def start(cls, name: str, command: Sequence[str], log: Path) -> ChildProcess:
        """Run `command` with its output appended to `log`. Raises EmbeddedError when it cannot be run."""
        launcher = [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(os.getpid()), *command]
        try:
            with log.open("ab") as output:
                return cls(name, _popen_in_own_thread(launcher, output.fileno()), log)
        except OSError as error:
            raise EmbeddedError(f"cannot start {name}: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_ms: int) -> None:
        """Return when `is_ready`. Raises EmbeddedError when the process dies before that, or time is out."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not is_ready():
            if self.has_exited():
                raise EmbeddedError(
                    f"{self.name} exited with {self._process.returncode} while starting:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{self.name} was not ready within {timeout_ms} ms:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        self._process.send_signal(number)

    def stop(self, *, timeout_ms: int) -> int:
        """SIGTERM, and SIGKILL when the process is still there after `timeout_ms`; returns the exit code."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_ms / 1000)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL alone: the process runs nothing more; returns the exit code."""
        self._process.kill()
        return self._process.wait()

    def log_tail(self) -> str:
        """The end of its output."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()


def _popen_in_own_thread(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as it does.

    The kernel sends the parent-death signal when the thread that started the child ends, not only when the
    whole process does.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def run() -> None:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=run, name="child-keeper", daemon=True).start()
    return started.result()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]


def accepts(address: HostPort) -> bool:
    """Whether somebody listens there: for a node, that it is ready."""
    try:
        with socket.create_connection(address, timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False
