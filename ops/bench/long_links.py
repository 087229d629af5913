"""How much of a long, narrow way a route uses.

    python -m ops.bench long_links [--megabytes-per-second N] [--round-trips MS ...] [--seconds S]
        [--partitions P] [--batch-kibibytes K] [--apache]

The way is a proxy (`_far_away`) between the mirror and one of the clusters: `produce`, the destination is
far; `fetch`, the source is. The source is filled before the mirror starts with what the way carries in S
seconds. Printed: bytes of batches a second that came to the destination between a tenth and nine tenths of
all, as a share of what the way carries. With --apache Apache Kafka 3.9.1 is the far destination instead of
our node.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from broker.child_process import ChildProcess
from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.embedded import EmbeddedZooKeeper
from broker.loopback import LOOPBACK, accepts, free_ports
from broker.types import HostPort, TopicPartition
from ops.bench._far_away import Way, far_away
from ops.bench.comparison.servers import HEAP, JVM, fetch_kafka
from ops.bench.mirror import COPY, TOPIC, fill

PATIENCE_SECONDS = 180.0
START_TIMEOUT_MS = 60_000
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, where it is and where those who are far from it find it."""

    near: HostPort
    behind: HostPort
    """The end of the way: whoever asks here is told `far`."""
    far: HostPort


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes-per-second", type=float, default=15.0, help="what the way carries")
    parser.add_argument("--round-trips", type=float, nargs="+", default=[1, 50, 150], metavar="MS")
    parser.add_argument("--seconds", type=float, default=15.0, help="how much there is to copy")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--batch-kibibytes", type=int, default=64, help="compressed size")
    parser.add_argument("--apache", action="store_true", help="toward Apache Kafka")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="long-links-"))
    try:
        classpath = fetch_kafka(folder / "kafka") if options.apache else None
        with EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper:
            for number, round_trip_ms in enumerate(options.round_trips):
                way = Way(round_trip_ms=round_trip_ms, bytes_per_second=options.megabytes_per_second * 1e6)
                for side in ("produce",) if options.apache else ("produce", "fetch"):
                    home = folder / f"{number}-{side}"
                    home.mkdir()
                    run(home, zookeeper, side, way, options, classpath)
    finally:
        shutil.rmtree(folder)


def run(
    home: Path,
    zookeeper: EmbeddedZooKeeper,
    side: str,
    way: Way,
    options: argparse.Namespace,
    classpath: str | None,
) -> None:
    """Fill, mirror, measure, print."""
    with (
        _node(home, "source", zookeeper, None) as source,
        _node(home, "destination", zookeeper, classpath) as destination,
        far_away({node.far.port: (node.behind, way) for node in (source, destination)}),
    ):
        size = int(way.bytes_per_second * options.seconds)
        asyncio.run(fill(source.near, options.partitions, size, options.batch_kibibytes << 10))
        stored = sum(file.stat().st_size for file in home.glob(f"source/{TOPIC}-*/*.log"))
        found = source.far if side == "fetch" else source.near
        reached = destination.far if side == "produce" else destination.near
        with _mirror(home, found, reached):
            share = asyncio.run(_share(source.near, destination.near, options.partitions, stored))
    rate = share / 1e6
    used = share / way.bytes_per_second
    to = "Apache Kafka" if classpath else "our node"
    print(
        f"{side}, {way.round_trip_ms:g} ms, {way.bytes_per_second / 1e6:g} MB/s, "
        f"{options.partitions} partitions, "
        f"batches of {options.batch_kibibytes} KiB, {to}: {rate:.1f} MB/s, {used:.0%} of the way",
        flush=True,
    )


@contextmanager
def _node(home: Path, name: str, zookeeper: EmbeddedZooKeeper, classpath: str | None) -> Iterator[Node]:
    node = Node(
        **{
            what: HostPort(LOOPBACK, port)
            for what, port in zip(("near", "behind", "far"), free_ports(3), strict=True)
        }
    )
    settings = {
        "broker.id": 1,
        "listeners": f"NEAR://{node.near},FAR://{node.behind}",
        "advertised.listeners": f"NEAR://{node.near},FAR://{node.far}",
        "listener.security.protocol.map": "NEAR:PLAINTEXT,FAR:PLAINTEXT",
        "inter.broker.listener.name": "NEAR",
        "zookeeper.connect": zookeeper.connect_string(f"{home.name}-{name}"),
        "log.dirs": str(home / name),
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
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
        child.stop(timeout_ms=20_000)


@contextmanager
def _mirror(home: Path, source: HostPort, destination: HostPort) -> Iterator[None]:
    file = home / "topology.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "source": {"bootstrap": [str(source)]},
                    "destination": {"bootstrap": [str(destination)]},
                },
                "routes": [{"from": "source", "to": "destination", "topics": {"include": [TOPIC]}}],
                "data_dir": str(home / "data"),
            }
        )
    )
    command = [sys.executable, "-m", "mirrormaker.cli", "--log-level", "warning", "run", str(file)]
    with subprocess.Popen(command, env=os.environ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def _share(source: HostPort, destination: HostPort, partitions: int, stored: int) -> float:
    """Bytes a second, from a tenth of the records to nine tenths of them."""
    async with Cluster([source]) as near, Cluster([destination]) as far:
        await near.ensure([TOPIC])
        ends = await latest_offsets(near, [TopicPartition(TOPIC, number) for number in range(partitions)])
        copies = [TopicPartition(COPY, number) for number in range(partitions)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(far.leader(copy) is None for copy in copies):
            await far.refresh([COPY])
            await asyncio.sleep(POLL_SECONDS)
        total, seen = sum(ends.values()), [(time.monotonic(), 0)]
        while seen[-1][1] < total * 0.9:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {seen[-1][1]} of {total} records came")
            await asyncio.sleep(POLL_SECONDS)
            seen.append((time.monotonic(), sum((await latest_offsets(far, copies)).values())))
        first = next(each for each in seen if each[1] >= total * 0.1)
        last = seen[-1]
        return (last[1] - first[1]) / total * stored / (last[0] - first[0])


if __name__ == "__main__":
    main()
