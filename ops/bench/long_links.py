"""How much of a long, narrow way a route uses, and how it catches up after the way was down.

    python -m ops.bench long_links [--megabytes-per-second N] [--round-trips MS ...] [--seconds S]
        [--partitions P ...] [--batch-kibibytes K ...] [--record-bytes N ...] [--delivery D]
        [--commit-interval-ms MS] [--kafka] [--only use|catch_up]

The way is a proxy (`_far_away`) between the mirror and one of the clusters: `produce`, the destination is
far; `fetch`, the source is. The source is filled before the mirror starts with what the way carries in S
seconds. Printed: bytes of batches a second that came to the logs of the destination between a tenth and nine
tenths of the records, as a share of what the way carries; batches are as they were produced, so where small
ones are gathered their records take fewer bytes. Records are of some 60 bytes as they are compressed, or of
as many more as --record-bytes says: gathering costs by the record. With --kafka Apache Kafka 3.9.1 is the far
destination as well. Catching up is told in `_catch_up`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.embedded import EmbeddedZooKeeper
from broker.types import TopicPartition
from ops.bench import _catch_up
from ops.bench._far_away import Way, far_away
from ops.bench._far_nodes import Node, far_mirror, far_node
from ops.bench.comparison.servers import fetch_kafka
from ops.bench.mirror import COPY, TOPIC, fill

PATIENCE_SECONDS = 240.0
POLL_SECONDS = 0.05
GOAL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table."""

    way: Way
    far: str
    """`destination` or `source`."""
    partitions: int
    batch_kibibytes: int
    record_bytes: int
    seconds: float
    delivery: str
    commit_interval_ms: int
    is_kafka: bool = False
    """Whether Apache Kafka is the destination."""

    @property
    def name(self) -> str:
        who = f"far {self.far}" + (", Apache Kafka" if self.is_kafka else "")
        size = f"{self.batch_kibibytes} KiB of {60 + self.record_bytes} B, {self.partitions}"
        return f"{self.way.round_trip_ms:g} ms | {size} | {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What came to the destination."""

    bytes_per_second: float
    records_per_second: float
    cpu_per_record: float
    """Seconds of the mirror's process."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes-per-second", type=float, default=15.0, help="what the way carries")
    parser.add_argument("--round-trips", type=float, nargs="+", default=[1, 50, 150], metavar="MS")
    parser.add_argument("--seconds", type=float, default=12.0, help="how much there is to copy")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 12])
    parser.add_argument("--batch-kibibytes", type=int, nargs="+", default=[4, 64], help="compressed size")
    parser.add_argument(
        "--record-bytes", type=int, nargs="+", default=[0], help="that cannot be compressed, in each record"
    )
    parser.add_argument(
        "--delivery",
        choices=("at_least_once", "exactly_once", "at_most_once"),
        default="at_least_once",
        help="of the route, in the first part",
    )
    parser.add_argument(
        "--commit-interval-ms", type=int, default=1000, metavar="MS", help="of the route, in the first part"
    )
    parser.add_argument("--kafka", action="store_true", help="toward Apache Kafka as well")
    parser.add_argument("--only", choices=("use", "catch_up"), help="one of the two parts")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="long-links-"))
    try:
        classpath = fetch_kafka(folder / "kafka") if options.kafka else None
        with EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper:
            if options.only != "catch_up":
                _print_use(folder, zookeeper, list(_cases(options)), classpath)
            if options.only != "use":
                rate = options.megabytes_per_second * 1e6
                _catch_up.main(folder, zookeeper, rate, max(options.round_trips), classpath)
    finally:
        shutil.rmtree(folder)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    rate = options.megabytes_per_second * 1e6
    ends = [("destination", False), *([("destination", True)] if options.kafka else []), ("source", False)]
    for round_trip_ms, (far, is_kafka), kibibytes, record_bytes, partitions in itertools.product(
        options.round_trips, ends, options.batch_kibibytes, options.record_bytes, options.partitions
    ):
        yield Case(
            way=Way(round_trip_ms=round_trip_ms, bytes_per_second=rate),
            far=far,
            partitions=partitions,
            batch_kibibytes=kibibytes,
            record_bytes=record_bytes,
            seconds=options.seconds,
            delivery=options.delivery,
            commit_interval_ms=options.commit_interval_ms,
            is_kafka=is_kafka,
        )


def _print_use(
    folder: Path, zookeeper: EmbeddedZooKeeper, cases: Iterable[Case], classpath: str | None
) -> None:
    print("| round trip | batches, partitions | far | MB/s | records/s | CPU a record | of the way | goal |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for number, case in enumerate(cases):
        home = folder / f"use-{number}"
        home.mkdir()
        figure = run(home, zookeeper, case, classpath if case.is_kafka else None)
        shutil.rmtree(home)
        used = figure.bytes_per_second / case.way.bytes_per_second
        print(
            f"| {case.name} | {figure.bytes_per_second / 1e6:.1f} | {figure.records_per_second:,.0f} | "
            f"{figure.cpu_per_record * 1e6:.2f} µs | "
            f"{used:.0%} | {GOAL:.0%}{'' if used >= GOAL else ', missed'} |",
            flush=True,
        )


def run(home: Path, zookeeper: EmbeddedZooKeeper, case: Case, classpath: str | None) -> Figure:
    """Fill, mirror, measure."""
    with (
        far_node(home, "source", zookeeper, None) as source,
        far_node(home, "destination", zookeeper, classpath) as destination,
        far_away({node.far.port: (node.behind, case.way) for node in (source, destination)}),
    ):
        size = int(case.way.bytes_per_second * case.seconds)
        batch_bytes = case.batch_kibibytes << 10
        asyncio.run(fill(source.near, case.partitions, size, batch_bytes, case.record_bytes))
        found = source.far if case.far == "source" else source.near
        reached = destination.far if case.far == "destination" else destination.near
        ends = {"from": "source", "to": "destination"}
        route = {
            **ends,
            "topics": {"include": [TOPIC]},
            "delivery": case.delivery,
            "commit_interval_ms": case.commit_interval_ms,
        }
        with far_mirror(home, found, reached, {"routes": [route]}) as mirror:
            return asyncio.run(_measure(source, destination, case.partitions, mirror))


async def _measure(source: Node, destination: Node, partitions: int, mirror: psutil.Process) -> Figure:
    """What comes a second, from a tenth of the records to nine tenths of them."""
    async with Cluster([source.near]) as near, Cluster([destination.near]) as far:
        await near.ensure([TOPIC])
        ends = await latest_offsets(near, [TopicPartition(TOPIC, number) for number in range(partitions)])
        copies = [TopicPartition(COPY, number) for number in range(partitions)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(far.leader(copy) is None for copy in copies):
            await far.refresh([COPY])
            await asyncio.sleep(POLL_SECONDS)
        total, seen = sum(ends.values()), [(time.monotonic(), 0, 0, 0.0)]
        while seen[-1][1] < total * 0.9:
            if time.monotonic() > deadline:
                print(f"only {seen[-1][1]} of {total} records came", flush=True)
                break
            await asyncio.sleep(POLL_SECONDS)
            count = sum((await latest_offsets(far, copies)).values())
            used = mirror.cpu_times()
            seen.append((time.monotonic(), count, destination.stored(COPY), used.user + used.system))
        first = next((each for each in seen if each[1] >= total * 0.1), seen[0])
        last = seen[-1]
        seconds = last[0] - first[0]
        return Figure(
            bytes_per_second=(last[2] - first[2]) / seconds,
            records_per_second=(last[1] - first[1]) / seconds,
            cpu_per_record=(last[3] - first[3]) / max(last[1] - first[1], 1),
        )


if __name__ == "__main__":
    main()
