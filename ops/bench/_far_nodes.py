"""Two nodes and a mirror between them, each as a process, with a way between them that is long and narrow."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedZooKeeper
from broker.loopback import LOOPBACK, accepts, free_ports
from broker.types import HostPort
from ops.bench.comparison.servers import HEAP, JVM

START_TIMEOUT_MS = 60_000
STOP_TIMEOUT_MS = 20_000
MIRROR_STOP_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, where it is and where those who are far from it find it."""

    near: HostPort
    behind: HostPort
    """The end of the way: whoever asks here is told `far`."""
    far: HostPort
    logs: Path

    def stored(self, pattern: str) -> int:
        """Bytes in logs of topics with such names."""
        return sum(file.stat().st_size for file in self.logs.glob(f"{pattern}-*/*.log"))


@contextmanager
def far_node(home: Path, name: str, zookeeper: EmbeddedZooKeeper, classpath: str | None) -> Iterator[Node]:
    """A node that serves; Apache Kafka where there is a `classpath`."""
    near, behind, far = (HostPort(LOOPBACK, port) for port in free_ports(3))
    node = Node(near=near, behind=behind, far=far, logs=home / name)
    settings = {
        "broker.id": 1,
        "listeners": f"NEAR://{node.near},FAR://{node.behind}",
        "advertised.listeners": f"NEAR://{node.near},FAR://{node.far}",
        "listener.security.protocol.map": "NEAR:PLAINTEXT,FAR:PLAINTEXT",
        "inter.broker.listener.name": "NEAR",
        "zookeeper.connect": zookeeper.connect_string(f"{home.name}-{name}"),
        "log.dirs": str(node.logs),
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.ms": -1,
    }
    file = home / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if classpath is None:
        command = [sys.executable, "-m", "broker.cli", "start", str(file)]
    else:
        command = [shutil.which("java") or "java", *HEAP, *JVM, "-cp", classpath, "kafka.Kafka", str(file)]
    child = ChildProcess.start(name, command, home / f"{name}.log")
    try:
        child.wait_until(lambda: accepts(node.near), timeout_ms=START_TIMEOUT_MS)
        yield node
    finally:
        child.stop(timeout_ms=STOP_TIMEOUT_MS)


@contextmanager
def far_mirror(
    home: Path, source: HostPort, destination: HostPort, topology: Mapping[str, Any]
) -> Iterator[psutil.Process]:
    """A mirror between them; `topology` names its routes, and what else there is to say."""
    clusters = {"source": source, "destination": destination}
    file = home / "topology.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {name: {"bootstrap": [str(there)]} for name, there in clusters.items()},
                "data_dir": str(home / "data"),
                **topology,
            }
        )
    )
    command = [sys.executable, "-m", "mirrormaker.cli", "--log-level", "error", "run", str(file)]
    with subprocess.Popen(command, env=os.environ) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(MIRROR_STOP_SECONDS)
