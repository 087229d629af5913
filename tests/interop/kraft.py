"""Apache Kafka from 4.0 on, which keeps its metadata itself: the only one whose brokers serve the consumer
protocol (KIP-848).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from broker.loopback import free_ports
from broker.types import HostPort
from tests.interop.apache import KafkaProcess

_CLUSTER_ID = "bWlycm9ybWFrZXItdGVzdA"


class KraftKafka(KafkaProcess):
    """A process that is broker and controller."""

    def __init__(
        self, classpath: str, directory: Path, *, settings: Mapping[str, object] | None = None
    ) -> None:
        port, controller_port = free_ports(2)
        address, controller = HostPort("127.0.0.1", port), HostPort("127.0.0.1", controller_port)
        own = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
        }
        super().__init__(address, classpath, directory, {**own, **(settings or {})})

    def start(self) -> None:
        """Give the data directory its format, start the process and wait until it answers."""
        formatting = [*self.java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
        arguments = ["-c", str(self.properties), "--ignore-formatted"]
        subprocess.run([*formatting, *arguments], check=True, timeout=60, capture_output=True)
        super().start()
