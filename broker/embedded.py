"""ZooKeeper and whole clusters on one machine, as child processes.

A cluster is a number of `broker start` processes on consecutive ports. Files of a cluster directory:
`node-N.yaml`, `node-N.log` and the data roots `node-N/`; those of a ZooKeeper directory are named in
`zookeeper_server`, and its output goes to `zookeeper.log`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from broker.child_process import ChildProcess
from broker.errors import BrokerError, ConfigurationError
from broker.loopback import LOOPBACK, PROBE_SECONDS, accepts, free_ports_in_a_row, require_free_ports
from broker.types import HostPort
from broker.zookeeper_server import lock_zookeeper_directory, zookeeper_command

Launch = Callable[[str, Sequence[str], Path], ChildProcess]


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
        self.port = port if port is not None else free_ports_in_a_row(1)

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
        self._lock = lock_zookeeper_directory(self._directory)
        try:
            self.launch().wait_until(self._is_ready, timeout_ms=self._timeout_ms)
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

    def launch(self) -> ChildProcess:
        """Start the server in the directory that is locked already, as it is when it ended by itself."""
        command = zookeeper_command(self.port, self._directory, fsync=self._fsync)
        self._child = ChildProcess.start("zookeeper", command, self._directory / "zookeeper.log")
        return self._child

    def log_if_dead(self) -> str | None:
        """The end of the server's log when it exited by itself, None otherwise."""
        return self._child.log_tail() if self._child is not None and self._child.has_exited() else None

    def _is_ready(self) -> bool:
        """`ruok` is answered before sessions are served; `srvr` tells a mode only once they are.

        A connection that the server accepts while it starts may never be answered, hence the short time-out.
        """
        try:
            with socket.create_connection(self.address, timeout=PROBE_SECONDS) as connection:
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
    start_timeout_ms: int = 30_000
    """How long a node may take to be ready."""

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
    up. `launch` starts a node's process by its name, command and log.
    """

    def __init__(self, spec: ClusterSpec, launch: Launch = ChildProcess.start) -> None:
        self.spec = spec
        self._launch = launch
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
            for broker_id in range(1, self.spec.brokers + 1):
                self.launch_node(broker_id)
            for broker_id in range(1, self.spec.brokers + 1):
                self._wait_ready(broker_id)
        except BaseException:
            self.stop()
            raise

    def start_node(self, broker_id: int) -> None:
        """Start one node that was stopped, and wait until it is ready."""
        self.launch_node(broker_id)
        self._wait_ready(broker_id)

    def stop_node(self, broker_id: int, *, timeout_ms: int = 30_000) -> int:
        """Stop one node by SIGTERM, after `timeout_ms` by SIGKILL; returns its exit code."""
        code = self._children[broker_id].stop(timeout_ms=timeout_ms)
        del self._children[broker_id]
        return code

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

    def launch_node(self, broker_id: int) -> None:
        """Start one node that was stopped, or ended by itself, without waiting until it is ready."""
        index = broker_id - 1
        require_free_ports([self.spec.port + index])
        settings = self.spec.directory / f"node-{broker_id}.yaml"
        try:
            self.spec.directory.mkdir(parents=True, exist_ok=True)
            settings.write_text(yaml.safe_dump(self.spec.node_settings(index), sort_keys=True))
        except OSError as error:
            problem = f"cannot write to the cluster directory {self.spec.directory}: {error}"
            raise ConfigurationError([problem]) from error
        command = [sys.executable, "-m", "broker.cli", "start", str(settings)]
        log = self.spec.directory / f"node-{broker_id}.log"
        self._children[broker_id] = self._launch(f"{self.spec.name} node {broker_id}", command, log)

    def _wait_ready(self, broker_id: int) -> None:
        address = self.bootstrap[broker_id - 1]
        self._children[broker_id].wait_until(lambda: accepts(address), timeout_ms=self.spec.start_timeout_ms)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
