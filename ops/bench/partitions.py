"""A node with many partitions: how long making them and starting again takes, and what each costs while idle.

    python -m ops.bench.partitions [--topics N] [--partitions N] [--idle-seconds S] [--directory DIR]
    python -m ops.bench.partitions --topics 10 --segments 100 [--descriptors 20000]

One node and one ZooKeeper, real processes; every partition holds one batch. Beside wall time stands the
node's processor time, which other work on the machine changes little. Heap is what Python's allocator holds
for each partition, traced in a node that runs inside the benchmark on the same directory; tracing makes that
start slow, and it is not timed. With `--segments`, see `ops.bench.segments`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import shutil
import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter, sleep

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer import Producer
from broker.client.topic_admin import NewTopic
from broker.clock import SystemClock
from broker.config_loading import load_config
from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedCluster
from broker.node import Node
from broker.storage.disk import SystemDisk
from broker.telemetry import configure_logging
from ops.bench._nodes import nodes
from ops.bench.broker_append import Server
from ops.bench.segments import SegmentsBench, limit_descriptors

TIMEOUT_MS = 600_000


class Bench:
    """One node under its figures."""

    def __init__(self, cluster: EmbeddedCluster, topics: int, partitions: int) -> None:
        self._cluster = cluster
        self._names = [f"bench-{number:04d}" for number in range(topics)]
        self._partitions = partitions
        self._count = topics * partitions

    @property
    def server(self) -> Server:
        return Server(self._cluster.bootstrap[0].port, self._cluster.pids[1])

    async def create(self) -> None:
        """Make all partitions and wait for their leaders, then store one batch in each."""
        async with Cluster(self._cluster.bootstrap) as cluster:
            admin = Admin(cluster, timeout_ms=TIMEOUT_MS)
            start, cpu = perf_counter(), self.server.cpu_seconds()
            for name in self._names:
                await admin.create_topic(NewTopic(name=name, partitions=self._partitions))
            self._print_time("create", perf_counter() - start, self.server.cpu_seconds() - cpu)
            start, cpu = perf_counter(), self.server.cpu_seconds()
            async with Producer(cluster) as producer:
                for name in self._names:
                    for partition in range(self._partitions):
                        await producer.send(name, b"value", partition=partition)
                    await producer.flush()
            self._print_time("one batch in each", perf_counter() - start, self.server.cpu_seconds() - cpu)

    def start(self, what: str) -> None:
        """Start the node and wait until it serves."""
        start = perf_counter()
        self._cluster.start_node(1)
        self._print_time(what, perf_counter() - start, self.server.cpu_seconds())

    def stop(self) -> None:
        """End the node as SIGTERM asks it to."""
        server = self.server
        start = perf_counter()
        self._cluster.stop_node(1, timeout_ms=TIMEOUT_MS)
        self._print_time("clean stop", perf_counter() - start, None)
        del server

    def kill(self) -> None:
        self._cluster.kill_node(1)

    def idle(self, seconds: float, resident_mb: float) -> None:
        """Watch the node while nobody asks it for anything."""
        before = self.server.cpu_seconds()
        sleep(seconds)
        share = (self.server.cpu_seconds() - before) / seconds
        resident = self.server.resident_mb()
        files = len(list(Path(f"/proc/{self.server.pid}/fd").iterdir()))
        print(
            f"{'idle':24}{share:8.1%} of a core, resident {resident:.0f} MB "
            f"({(resident - resident_mb) * 1e6 / self._count:.0f} bytes a partition), {files} descriptors",
            flush=True,
        )

    def _print_time(self, what: str, seconds: float, cpu_seconds: float | None) -> None:
        cpu = "" if cpu_seconds is None else f", {cpu_seconds:6.1f} s of processor time"
        rate = f"{seconds / self._count * 1e3:.2f} ms a partition"
        print(f"{what:24}{seconds:8.1f} s{cpu}, {rate}", flush=True)


async def traced_heap(settings: Path) -> int:
    """Bytes that Python's allocator holds for a whole node, once it serves."""
    loaded = load_config(settings, [])
    node = Node(
        loaded,
        coordination=ZooKeeper(
            loaded.node.zookeeper_connect, session_timeout_ms=loaded.node.zookeeper_session_timeout_ms
        ),
        disk=SystemDisk(),
        clock=SystemClock(),
        rng=random.Random(),
    )
    tracemalloc.start()
    try:
        async with node.running():
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def measure(directory: Path, topics: int, partitions: int, idle_seconds: float) -> None:
    count = topics * partitions
    with nodes(directory, {}, timeout_ms=TIMEOUT_MS) as cluster:
        settings = cluster.spec.directory / "node-1.yaml"
        bench = Bench(cluster, topics, partitions)
        resident_mb = bench.server.resident_mb()
        cluster.stop_node(1)
        empty = asyncio.run(traced_heap(settings))
        cluster.start_node(1)
        print(f"{topics} topics of {partitions} partitions", flush=True)
        asyncio.run(bench.create())
        bench.idle(idle_seconds, resident_mb)
        bench.stop()
        bench.start("start after clean stop")
        bench.idle(idle_seconds, resident_mb)
        bench.stop()
        bench.start("start again")
        bench.kill()
        bench.start("start after kill -9")
        bench.stop()
        heap = asyncio.run(traced_heap(settings))
        print(f"{'heap':24}{(heap - empty) / count:8.0f} bytes a partition", flush=True)


def measure_segments(directory: Path, topics: int, partitions: int, segments: int) -> None:
    with nodes(directory, {}, timeout_ms=TIMEOUT_MS) as cluster:
        print(f"{topics} topics of {partitions} partitions of {segments} segments", flush=True)
        SegmentsBench(cluster, topics, partitions, segments).run()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--segments", type=int, default=0, help="of each partition; measures those instead")
    parser.add_argument(
        "--descriptors", type=int, default=20_000, help="limit of open files, with --segments"
    )
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    arguments = parser.parse_args()
    configure_logging("error")
    directory = Path(tempfile.mkdtemp(prefix="partitions-", dir=arguments.directory))
    try:
        if arguments.segments:
            limit_descriptors(arguments.descriptors)
            measure_segments(directory, arguments.topics, arguments.partitions, arguments.segments)
        else:
            measure(directory, arguments.topics, arguments.partitions, arguments.idle_seconds)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
