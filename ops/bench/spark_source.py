"""The data source `mirror` beside Spark's own Kafka source: the same Spark, the same node, the same records.

Run: `python -m ops.bench.spark_source [--mebibytes N] [--sizes ...] [--codecs ...] [--partitions ...]
[--masters ...] [--queries count aggregate load write] [--rounds N] [--minutes N] [--jars DIR]`. One real
node; topics of JSON records with keys. In each Spark session the two sources take turns, after runs that warm
both up; what stands is the best round of each. `write` is the other way: rows that Spark makes up, to a
topic. `ratio` is rows a second of `mirror` over those of `kafka`; the goal is 1. `cpu` is the processor time
of driver, JVM and Python workers for a million rows, of both sources, and the ratio of the two; the goal is 1
at most. All of it takes about `--minutes`: rounds end early, and cases that no time is left for are told.
Spark's source comes from Maven Central (`mvn` is needed) unless its jars are in DIR already.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports
from broker.records.batch import Codec
from broker.types import HostPort

HERE = Path(__file__).parent
GOAL = 1.0
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")
ORIGINS = ("EWR", "JFK", "LGA")
WORDS = ("gate", "late", "crew", "snow", "wind", "fuel", "slot", "taxi", "door", "bags", "hold", "push")
BATCH_BYTES = 64 * 1024
SESSION_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What is read: `rows` records of about `size` bytes."""

    size: int
    codec: Codec
    partitions: int
    rows: int

    @property
    def name(self) -> str:
        return f"r{self.size}-{self.codec.name.lower()}-p{self.partitions}"

    @property
    def copy(self) -> str:
        """The topic that is written."""
        return f"{self.name}-copy"

    def described(self) -> dict[str, Any]:
        """For the process that runs the queries."""
        return {
            "topic": self.name,
            "copy": self.copy,
            "size": self.size,
            "codec": self.codec.name.lower(),
            "partitions": self.partitions,
            "rows": self.rows,
        }


def main() -> None:
    arguments = _arguments()
    ends_at = time.monotonic() + arguments.minutes * 60
    topics = [
        Topic(size=size, codec=codec, partitions=partitions, rows=arguments.mebibytes * 2**20 // size)
        for size in arguments.sizes
        for codec in (Codec[name.upper()] for name in arguments.codecs)
        for partitions in arguments.partitions
    ]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        folder = Path(directory)
        jars = source_jars(arguments.jars or folder / "jars")
        spec_folder = folder / "node"
        with (
            EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper,
            EmbeddedCluster(
                ClusterSpec(
                    name="bench",
                    zookeeper_connect=zookeeper.connect_string("bench"),
                    port=free_ports(1)[0],
                    directory=spec_folder,
                )
            ) as cluster,
        ):
            bootstrap = cluster.bootstrap[0]
            asyncio.run(_fill(bootstrap, topics))
            print(
                f"{'master':<10}{'topic':<18}{'query':<11}{'mirror':>18}{'kafka':>18}"
                f"{'ratio':>7}{'goal':>6}{'cpu s/M: mirror':>17}{'kafka':>9}{'ratio':>7}{'goal':>6}",
                flush=True,
            )
            for number, master in enumerate(arguments.masters):
                left = ends_at - time.monotonic()
                work = {
                    "master": master,
                    "folder": str(folder),
                    "jars": jars,
                    "bootstrap": str(bootstrap),
                    "topics": [topic.described() for topic in topics],
                    "queries": arguments.queries,
                    "rounds": arguments.rounds,
                    "seconds": left / (len(arguments.masters) - number),
                }
                _report(master, topics, arguments.queries, _run_session(work))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mebibytes", type=int, default=100, help="uncompressed, of each topic")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--codecs", nargs="+", help="none, snappy and zstd; none with several --partitions")
    parser.add_argument("--partitions", type=int, nargs="+", default=[10])
    parser.add_argument("--masters", nargs="+", default=["local[2]"])
    parser.add_argument("--queries", nargs="+", default=["count", "aggregate", "load", "write"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10, help="for all of it")
    parser.add_argument("--jars", type=Path, help="where the jars are kept")
    parser.add_argument("--directory", type=Path, help="where the node keeps its logs")
    arguments = parser.parse_args()
    if arguments.codecs is None:
        arguments.codecs = ["none"] if len(arguments.partitions) > 1 else ["none", "snappy", "zstd"]
    return arguments


def source_jars(folder: Path) -> list[str]:
    """The jars of Spark's own source, put into the folder unless they are there."""
    if not list(folder.glob("spark-sql-kafka*.jar")):
        command = ["mvn", "-q", "-B", "-f", str(HERE / "spark_kafka.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, timeout=600)
    return [str(path) for path in sorted(folder.glob("*.jar"))]


async def _fill(bootstrap: HostPort, topics: Sequence[Topic]) -> None:
    async with Cluster([bootstrap]) as cluster:
        for topic in topics:
            for name in (topic.name, topic.copy):
                new = NewTopic(name=name, partitions=topic.partitions, replication_factor=1)
                await Admin(cluster).create_topic(new)
        for size in {topic.size for topic in topics}:
            await _write(cluster, [topic for topic in topics if topic.size == size])


async def _write(cluster: Cluster, topics: Sequence[Topic]) -> None:
    """The same records to all of these."""
    async with AsyncExitStack() as stack:
        producers = {}
        for codec in {topic.codec for topic in topics}:
            settings = ProducerSettings(codec=codec, batch_bytes=BATCH_BYTES, linger_ms=50)
            producers[codec] = await stack.enter_async_context(Producer(cluster, settings=settings))
        for row in range(topics[0].rows):
            key, value = _record(row, topics[0].size)
            for topic in topics:
                partition = row // 500 % topic.partitions
                await producers[topic.codec].send(topic.name, value, key, partition=partition)
        for producer in producers.values():
            await producer.flush()


def _record(row: int, size: int) -> tuple[bytes, bytes]:
    """A record that differs from the others in content and a little in length."""
    chosen = random.Random(row)
    flight = {
        "row": row,
        "origin": chosen.choice(ORIGINS),
        "carrier": chosen.choice(CARRIERS),
        "delay": chosen.randrange(-20, 200) / 2,
        "note": "",
    }
    missing = size - len(json.dumps(flight)) + chosen.randrange(-9, 10)
    while len(flight["note"]) < missing:
        flight["note"] += chosen.choice(WORDS)
    return b"%08d" % row, json.dumps(flight).encode()


def _run_session(work: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures of every run in one Spark session, which is a process of its own."""
    command = [sys.executable, "-m", "ops.bench._spark_queries", json.dumps(work)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=SESSION_TIMEOUT_SECONDS)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def _report(master: str, topics: Iterable[Topic], queries: Iterable[str], runs: list[dict[str, Any]]) -> None:
    for topic in topics:
        for query in queries:
            mine = [run for run in runs if (run["topic"], run["query"]) == (topic.name, query)]
            assert all(run["rows"] in (topic.rows, -1) for run in mine), mine
            by_source = [[run for run in mine if run["source"] == source] for source in ("mirror", "kafka")]
            told = _figures(topic, *by_source) if all(by_source) else "   no time was left"
            print(f"{master:<10}{topic.name:<18}{query:<11}{told}", flush=True)


def _figures(topic: Topic, mirror: list[dict[str, Any]], kafka: list[dict[str, Any]]) -> str:
    """The best of each."""
    rates = [topic.rows / min(run["seconds"] for run in runs) for runs in (mirror, kafka)]
    cpu = [min(run["cpu_seconds"] for run in runs) / topic.rows * 1e6 for runs in (mirror, kafka)]
    told = "".join(f"{rate / 1e6:>7.2f} M/s{rate * topic.size / 1e6:>5.0f} MB" for rate in rates)
    told += f"{rates[0] / rates[1]:>7.2f}{GOAL:>6.1f}"
    return f"{told}{cpu[0]:>17.2f}{cpu[1]:>9.2f}{cpu[0] / cpu[1]:>7.2f}{GOAL:>6.1f}"


if __name__ == "__main__":
    main()
