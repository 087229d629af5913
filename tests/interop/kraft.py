"""Apache Kafka from 4.0 on, which keeps its metadata itself: the only one whose brokers serve the consumer
protocol (KIP-848).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from broker.child_process import ChildProcess, EmbeddedError
from broker.loopback import free_ports
from broker.types import HostPort
from tests.interop.apache import JAVA

_CLUSTER_ID = "bWlycm9ybWFrZXItdGVzdA"


class KraftKafka:
    """One process that is broker and controller, its data in `directory`/data; returns from `with` when it
    answers.
    """

    def __init__(
        self, classpath: str, directory: Path, *, settings: Mapping[str, object] | None = None
    ) -> None:
        port, controller_port = free_ports(2)
        self.address = HostPort("127.0.0.1", port)
        self.bootstrap = (self.address,)
        self._directory = directory
        self._broker: ChildProcess | None = None
        controller = HostPort("127.0.0.1", controller_port)
        all_settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(settings or {}),
        }
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        self._java = [*JAVA, "-Xmx512m", "-cp", classpath]

    def start(self) -> None:
        """Give the data directory its format, start the process and wait for it."""
        formatting = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
        arguments = ["-c", str(self._properties), "--ignore-formatted"]
        subprocess.run([*formatting, *arguments], check=True, timeout=60, capture_output=True)
        command = [*self._java, "kafka.Kafka", str(self._properties)]
        self._broker = ChildProcess.start("apache kafka", command, self._directory / "kafka.log")
        try:
            self._broker.wait_until(self._answers, timeout_ms=60_000)
        except EmbeddedError:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process cleanly."""
        if self._broker is not None:
            self._broker.stop(timeout_ms=30_000)
            self._broker = None

    def kill(self) -> None:
        """End the process as a crash does."""
        if self._broker is not None:
            self._broker.kill()
            self._broker = None

    def _answers(self) -> bool:
        listing = subprocess.run(
            ["kcat", "-b", str(self.address), "-L", "-m", "2"], capture_output=True, text=True, check=False
        )
        return "1 brokers:" in listing.stdout

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
