"""The mirror beside a bare loop that receives and sends the same bytes.

Run: `python -m ops.bench.mirror [--mebibytes N] [--partitions P] [--batch-kibibytes K ...] [--directory
DIR]`. Two real nodes on one core, the mirror on another; the source is filled with snappy batches of JSON-
like records before the mirror starts. Printed for each batch size: MB/s, CPU seconds of the mirror's process
per GB (10^9 bytes of compressed batches), resident memory of mirror and nodes. The reference moves as many
bytes from one socket to another, on the same core, with neither Kafka nor checksums in between.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.loopback import free_ports
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.types import HostPort, TopicPartition
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ops.bench._bare_loop import bare_loop
from ops.bench.comparison.cases import Figure

TOPIC = "flights"
COPY = f"source.{TOPIC}"
NODE_CORES = [0]
MIRROR_CORES = [1]
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")
SNAPPY_RATIO = 3.4
"""Of these records; only a first guess, the figures are of what was stored."""
REQUEST_BYTES = 1 << 20
LOOP_BYTES = 1 << 20
POLL_SECONDS = 0.02
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFigure(Figure):
    """What one run took. Bytes are those of compressed batches."""

    resident_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mebibytes", type=int, default=512, help="compressed bytes to copy in each run")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument(
        "--batch-kibibytes", type=int, nargs="+", default=[4, 16, 128], help="compressed size"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the nodes keep their data (default: a new one in /tmp)"
    )
    parser.add_argument(
        "--resource", action="append", default=[], metavar="KEY=BYTES", help="of the route, see `resources`"
    )
    parser.add_argument("--profile", type=Path, help="write a cProfile of the mirror here")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirror-bench-", dir=options.directory))
    try:
        reference = bare_loop(options.mebibytes << 20, loop_cores=MIRROR_CORES, end_cores=NODE_CORES)
        print(f"bare loop: {reference.megabytes_per_second:.0f} MB/s, ", end="")
        print(f"{reference.cpu_per_gigabyte:.2f} CPU s/GB")
        for kibibytes in options.batch_kibibytes:
            run(folder / str(kibibytes), options, kibibytes, reference)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, options: argparse.Namespace, kibibytes: int, reference: Figure) -> None:
    """Fill, mirror, measure, print."""
    with (
        EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper,
        _node(folder, "source", zookeeper) as source,
        _node(folder, "destination", zookeeper) as destination,
    ):
        for cluster in (source, destination):
            psutil.Process(cluster.pids[1]).cpu_affinity(NODE_CORES)
        bootstraps = (source.bootstrap[0], destination.bootstrap[0])
        asyncio.run(fill(bootstraps[0], options.partitions, options.mebibytes << 20, kibibytes << 10))
        stored = _log_bytes(folder / "source")
        figure = mirror(folder, bootstraps, options, stored)
        memory = [
            psutil.Process(cluster.pids[1]).memory_info().rss >> 20 for cluster in (source, destination)
        ]
        assert _log_bytes(folder / "destination") == stored, "the copy has another size"
    share = figure.megabytes_per_second / reference.megabytes_per_second
    print(
        f"mirror, batches of {kibibytes} KiB, {options.partitions} partitions: "
        f"{figure.megabytes_per_second:.0f} MB/s ({share:.2f} of the bare loop), "
        f"{figure.cpu_per_gigabyte:.2f} CPU s/GB, resident {figure.resident_bytes >> 20} MiB "
        f"(source node {memory[0]}, destination node {memory[1]})"
    )


@contextlib.contextmanager
def _node(folder: Path, name: str, zookeeper: EmbeddedZooKeeper) -> Iterator[EmbeddedCluster]:
    spec = ClusterSpec(
        name=name,
        zookeeper_connect=zookeeper.connect_string(name),
        port=free_ports(1)[0],
        directory=folder / name,
        settings={"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1},
    )
    with EmbeddedCluster(spec) as cluster:
        yield cluster


def _log_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob(f"node-1/*{TOPIC}-*/*.log"))


# ---- filling the source


async def fill(
    bootstrap: HostPort, partitions: int, size: int, batch_bytes: int, record_bytes: int = 0
) -> None:
    """Produce about `size` bytes of compressed batches of about `batch_bytes` each (see `batch_of`)."""
    batches = [batch_of(index, batch_bytes, record_bytes) for index in range(16)]
    async with Cluster([bootstrap]) as cluster:
        await create_topic(cluster, TOPIC, partitions)
        per_request = max(REQUEST_BYTES // batch_bytes // partitions, 1)
        sent = index = 0
        while sent < size:
            records = b"".join(batches[(index + number) % len(batches)] for number in range(per_request))
            await produce_batches(cluster, TOPIC, [records] * partitions)
            sent, index = sent + len(records) * partitions, index + 1


async def create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Make a topic, and wait until all its partitions have leaders."""
    await cluster.refresh([])
    connection = await cluster.controller()
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    await connection.request(CreateTopicsRequest(timeout_ms=30_000, topics=[topic]))
    await cluster.ensure([name])
    while any(cluster.leader(TopicPartition(name, index)) is None for index in range(partitions)):
        await cluster.refresh([name])


async def produce_batches(cluster: Cluster, topic: str, records: Sequence[bytes]) -> None:
    """Produce one after the other to the partitions of a topic, all led by one node."""
    node = cluster.leader(TopicPartition(topic, 0))
    assert node is not None
    connection = await cluster.connection(node, "fill")
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    response = await connection.request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics))
    for answer in response.responses[0].partition_responses:
        assert not answer.error_code, ErrorCode.of(answer.error_code)


def batch_of(seed: int, batch_bytes: int, record_bytes: int = 0) -> bytes:
    """JSON-like records, snappy-compressed to about `batch_bytes`. With `record_bytes` each has as many more
    that cannot be compressed; some 60 are left of the others.
    """
    source = random.Random(seed)
    builder, now_ms = BatchBuilder(Codec.SNAPPY, size_max=64 << 20), int(time.time() * 1000)
    count = batch_bytes // record_bytes if record_bytes else 0
    while builder.count < count if count else builder.size < batch_bytes * SNAPPY_RATIO:
        tail = f"N{source.randrange(10_000, 99_999)}"
        record = (
            f'{{"year":2013,"month":{source.randrange(1, 13)},"day":{source.randrange(1, 29)},'
            f'"dep_delay":{source.randrange(-20, 300)},"arr_delay":{source.randrange(-40, 300)},'
            f'"carrier":"{source.choice(CARRIERS)}","flight":{source.randrange(6000)},"tailnum":"{tail}",'
            f'"origin":"JFK","dest":"LAX","air_time":{source.randrange(20, 600)},'
            f'"distance":{source.randrange(80, 4900)}}}'
        )
        builder.append(now_ms, tail.encode(), record.encode() + source.randbytes(record_bytes))
    return bytes(builder.build())


# ---- the mirror


def mirror(
    folder: Path, bootstraps: tuple[HostPort, HostPort], options: argparse.Namespace, size: int
) -> MirrorFigure:
    """Run the daemon until the destination has everything; CPU and time from its first copied byte on."""
    topology = {
        "clusters": {
            "source": {"bootstrap": [str(bootstraps[0])]},
            "destination": {"bootstrap": [str(bootstraps[1])]},
        },
        "routes": [
            {
                "from": "source",
                "to": "destination",
                "topics": {"include": [TOPIC]},
                "resources": {
                    key: int(value) for key, _, value in (r.partition("=") for r in options.resource)
                },
            }
        ],
        "data_dir": str(folder / "data"),
    }
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(topology))
    profiler = ["-m", "cProfile", "-o", str(options.profile)] if options.profile else []
    command = [sys.executable, *profiler, "-m", "mirrormaker.cli", "--log-level", "warning", "run", str(file)]
    with subprocess.Popen(command) as process:
        try:
            watched = psutil.Process(process.pid)
            watched.cpu_affinity(MIRROR_CORES)
            return asyncio.run(_watch(watched, bootstraps, options.partitions, size))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


async def _watch(
    process: psutil.Process, bootstraps: tuple[HostPort, HostPort], partitions: int, size: int
) -> MirrorFigure:
    async with Cluster([bootstraps[0]]) as source, Cluster([bootstraps[1]]) as destination:
        await source.ensure([TOPIC])
        wanted = await latest_offsets(source, [TopicPartition(TOPIC, index) for index in range(partitions)])
        copies = [TopicPartition(COPY, index) for index in range(partitions)]
        await _until_created(destination, copies)
        started, cpu_started, reached = time.monotonic(), _cpu(process), 0
        resident = 0
        while reached < sum(wanted.values()):
            if not reached:
                started, cpu_started = time.monotonic(), _cpu(process)
            if time.monotonic() - started > TIMEOUT_SECONDS:
                raise SystemExit(f"only {reached} of {sum(wanted.values())} records were copied")
            await asyncio.sleep(POLL_SECONDS)
            reached = sum((await latest_offsets(destination, copies)).values())
            resident = max(resident, process.memory_info().rss)
        return MirrorFigure(
            bytes=size,
            seconds=time.monotonic() - started,
            cpu_seconds=_cpu(process) - cpu_started,
            resident_bytes=resident,
        )


async def _until_created(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    while any(cluster.leader(partition) is None for partition in partitions):
        await cluster.refresh([COPY])
        await asyncio.sleep(POLL_SECONDS)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
