"""How long readers of committed records wait when the owner of an exactly-once route is killed.

Run: `python -m ops.bench.takeover [--rounds N] [--commit-interval-ms N]`. Two real nodes, records written at
a steady rate, two daemons of one route. The one at work is killed; its transactions stay open until the
other, once the group at the source gives it the partitions, has fenced them. Printed for each round: until
the last stable offset has grown in all partitions of the destination, when the killed daemon is started again
at once, and when the other takes over.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets
from broker.client.producer import Producer, ProducerSettings
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import BrokerError
from broker.types import TopicPartition
from ops.bench.mirror import COPY, TOPIC, _node, create_topic

PARTITIONS = 4
WRITE_SECONDS = 0.01
POLL_SECONDS = 0.01
TIMEOUT_SECONDS = 90.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commit-interval-ms", type=int, default=1000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="takeover-bench-"))
    try:
        with (
            EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper,
            _node(folder, "source", zookeeper) as source,
            _node(folder, "destination", zookeeper) as destination,
        ):
            asyncio.run(measure(folder, source, destination, options))
    finally:
        shutil.rmtree(folder)


class Daemon:
    """One of the two, with a data directory of its own."""

    def __init__(
        self, folder: Path, name: str, source: EmbeddedCluster, destination: EmbeddedCluster, interval_ms: int
    ) -> None:
        topology = {
            "clusters": {
                "source": {"bootstrap": [str(source.bootstrap[0])]},
                "destination": {"bootstrap": [str(destination.bootstrap[0])]},
            },
            "routes": [
                {
                    "from": "source",
                    "to": "destination",
                    "topics": {"include": [TOPIC]},
                    "delivery": "exactly_once",
                    "commit_interval_ms": interval_ms,
                }
            ],
            "data_dir": str(folder / name),
        }
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(topology))
        self._command = [sys.executable, "-m", "mirrormaker.cli", "--log-level", "error", "run", str(file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(self._command)

    def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait for its end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


async def measure(
    folder: Path, source: EmbeddedCluster, destination: EmbeddedCluster, options: argparse.Namespace
) -> None:
    """Write, kill, print."""
    async with Cluster(source.bootstrap) as at_source, Cluster(destination.bootstrap) as at_destination:
        await create_topic(at_source, TOPIC, PARTITIONS)
        writing = asyncio.create_task(_write(at_source))
        for number in range(options.rounds):
            first, second = (
                Daemon(folder, f"{name}-{number}", source, destination, options.commit_interval_ms)
                for name in ("first", "second")
            )
            first.start()
            await _progress(at_destination)
            first.end(signal.SIGKILL)
            first.start()
            again = await _progress(at_destination)
            second.start()
            await asyncio.sleep(5)
            first.end(signal.SIGKILL)
            taken = await _progress(at_destination)
            second.end(signal.SIGTERM)
            print(
                f"killed, started again: readers waited {again:.1f} s; taken over by another: {taken:.1f} s"
            )
        writing.cancel()


async def _write(cluster: Cluster) -> None:
    async with Producer(cluster, settings=ProducerSettings(linger_ms=0)) as producer:
        number = 0
        while True:
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            number += 1
            await asyncio.sleep(WRITE_SECONDS)


async def _progress(cluster: Cluster) -> float:
    """Seconds until what readers of committed records may read has grown in all partitions."""
    started = time.monotonic()
    before = await _stable(cluster)
    while time.monotonic() - started < TIMEOUT_SECONDS:
        now = await _stable(cluster)
        if now and all(now[each] > before.get(each, 0) for each in now):
            return time.monotonic() - started
        await asyncio.sleep(POLL_SECONDS)
    raise SystemExit(f"nothing was committed within {TIMEOUT_SECONDS} s")


async def _stable(cluster: Cluster) -> dict[TopicPartition, int]:
    """Last stable offsets; empty while the topic is not there."""
    copies = [TopicPartition(COPY, number) for number in range(PARTITIONS)]
    try:
        await cluster.ensure([COPY])
        found = await list_offsets(
            cluster, dict.fromkeys(copies, LATEST), read_committed=True, timeout_ms=500
        )
    except BrokerError:
        return {}
    return {each: at.offset for each, at in found.items()}


if __name__ == "__main__":
    main()
