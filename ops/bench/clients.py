"""Producers and consumers for Python beside each other, on one of our nodes.

    python -m ops.bench.clients [--records N] [--sizes BYTES ...] [--rounds N] [--only CLIENT ...]

Each figure is a process of its own; rounds go through all clients in turn, and the best of them counts, as
whatever else the machine does only slows them down. kafka-python and aiokafka are to be left behind, by wall
time and by processor time; confluent-kafka is librdkafka, in C, and stands there for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.embedded import EmbeddedCluster
from broker.telemetry import configure_logging
from ops.bench._client_loads import PARTITIONS, TASKS
from ops.bench._nodes import nodes

TIMEOUT_SECONDS = 600
FILLER = "confluent"
"""Fills the topic that consumers read: the quickest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a task took: records per second of wall time, and processor time for each in microseconds."""

    rate: float
    cpu_us: float


class Bench:
    """Every client at the tasks, against one cluster."""

    def __init__(self, cluster: EmbeddedCluster, *, count: int, rounds: int, clients: Sequence[str]) -> None:
        self._cluster = cluster
        self._count = count
        self._rounds = rounds
        self._clients = clients
        self._topics = 0

    def measure(self, task: str, size: int) -> dict[str, Figure]:
        """The best round of each client."""
        figures: dict[str, Figure] = {}
        full = self._new_topic()
        if task != "produce":
            self._run("produce", FILLER, full, size)
        for _ in range(self._rounds):
            for client in self._clients:
                topic = self._new_topic() if task == "produce" else full
                figure = self._run(task, client, topic, size)
                best = figures.setdefault(client, figure)
                figures[client] = Figure(
                    rate=max(best.rate, figure.rate), cpu_us=min(best.cpu_us, figure.cpu_us)
                )
        return figures

    def _new_topic(self) -> str:
        self._topics += 1
        name = f"clients-{self._topics}"
        asyncio.run(self._create(name))
        return name

    async def _create(self, name: str) -> None:
        async with Cluster(self._cluster.bootstrap) as cluster:
            await Admin(cluster).create_topic(NewTopic(name=name, partitions=PARTITIONS))
            await cluster.ensure([name])

    def _run(self, task: str, client: str, topic: str, size: int) -> Figure:
        arguments = [task, client, str(self._cluster.bootstrap[0]), topic, str(self._count), str(size)]
        command = [sys.executable, "-m", "ops.bench._client_loads", *arguments]
        finished = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_SECONDS, text=True
        )
        told = json.loads(finished.stdout)
        return Figure(rate=self._count / told["seconds"], cpu_us=told["cpu_seconds"] / self._count * 1e6)


def print_figures(task: str, size: int, figures: dict[str, Figure]) -> None:
    ours = figures.get("ours")
    for client, figure in figures.items():
        ratio = f"ours is {ours.rate / figure.rate:5.2f} times as fast" if ours is not None else ""
        print(
            f"{task} {size:6} B  {client:14}{figure.rate:12,.0f} records/s"
            f"{figure.cpu_us:8.2f} us CPU each  {ratio}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000, help="in each figure")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="of values, in bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--only", nargs="+", default=[*TASKS["produce"]], help="clients", metavar="CLIENT")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    arguments = parser.parse_args()
    configure_logging("error")
    with (
        tempfile.TemporaryDirectory(prefix="clients-", dir=arguments.directory) as directory,
        nodes(Path(directory), {}) as cluster,
    ):
        bench = Bench(cluster, count=arguments.records, rounds=arguments.rounds, clients=arguments.only)
        for task in arguments.tasks:
            for size in arguments.sizes:
                print_figures(task, size, bench.measure(task, size))


if __name__ == "__main__":
    sys.exit(main())
