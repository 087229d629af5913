"""How a cluster's figures grow with its partitions: as a table, and as a plot.

    python -m ops.bench.growth [--partitions N ...] [--session-seconds S] [--plot FILE.svg] [--directory DIR]

Three nodes and one ZooKeeper, real processes, a new cluster for each number of partitions; each of these has
three replicas and no records, and all of them belong to one topic.

create: from the request until all replicas are in sync.
propagate: a topic of one partition is made besides; from the request until every node names its leader.
elect: a node is killed that is not the controller; from the end of its session until every partition has a
leader that is alive, known to all nodes and serving.
start: the same node starts again, until it is ready; the interpreter's start and recovery are part of it.
in sync: from then on until all replicas are in sync again.
controller: the controller's node is killed; as `elect`, with the election of another controller before it.
Goal: 5 s with 2,000 partitions.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import monotonic

from broker.client.connection import Connection
from broker.embedded import EmbeddedCluster
from broker.telemetry import configure_logging
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ops.bench._controller_failover import fail_over
from ops.bench._growth_plot import Series, plot
from ops.bench._nodes import nodes
from ops.bench._replicated_topics import create, wait_until_in_sync

TOPIC = "growth"
REPLICAS = 3
PARTITIONS = (10, 100, 1_000, 2_000, 10_000)
PROBES = 5
"""Topics of which one after the other is made; the median counts."""
PROBE_SECONDS = 0.002
TIMEOUT_MS = 600_000
CONTROLLER_GOAL_SECONDS = 5.0
CONTROLLER_GOAL_PARTITIONS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds; see the module's description."""

    create: float
    propagate: float
    elect: float
    start: float
    in_sync: float
    controller: float


def measure(directory: Path, partitions: int, session_seconds: float) -> Times:
    """All figures of a cluster with so many partitions."""
    settings = {"zookeeper.session.timeout.ms": int(session_seconds * 1000)}
    with nodes(directory, settings, brokers=REPLICAS, timeout_ms=TIMEOUT_MS) as cluster:
        began = monotonic()
        create(cluster, TOPIC, partitions, REPLICAS)
        created = monotonic()
        propagate = asyncio.run(propagation(cluster))
        total = partitions + PROBES
        lost = asyncio.run(fail_over(cluster, partitions=total, of_controller=False))
        stopped = monotonic()
        cluster.start_node(lost.broker_id)
        started = monotonic()
        wait_until_in_sync(cluster)
        in_sync = monotonic()
        controller = asyncio.run(fail_over(cluster, partitions=total))
    return Times(
        create=created - began,
        propagate=propagate,
        elect=lost.serving - lost.session_over,
        start=started - stopped,
        in_sync=in_sync - started,
        controller=controller.serving - controller.session_over,
    )


async def propagation(cluster: EmbeddedCluster) -> float:
    """Seconds until a new topic is known to all nodes."""
    async with AsyncExitStack() as stack:
        connections = []
        for address in cluster.bootstrap:
            connections.append(await Connection.open(address))
            stack.push_async_callback(connections[-1].close)
        creator = await Connection.open(cluster.bootstrap[0])
        stack.push_async_callback(creator.close)
        return statistics.median(
            [await _propagation(creator, connections, f"probe-{number}") for number in range(PROBES)]
        )


async def _propagation(creator: Connection, connections: list[Connection], topic: str) -> float:
    began = monotonic()
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=REPLICAS)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    answer = creator.send(request, timeout_ms=TIMEOUT_MS)
    await asyncio.gather(*[_is_known(connection, topic) for connection in connections])
    seconds = monotonic() - began
    (created,) = (await answer).topics
    assert not created.error_code, f"{topic} was not made: {created.error_message}"
    return seconds


async def _is_known(connection: Connection, topic: str) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    while True:
        (told,) = (await connection.request(asked)).topics
        if told.partitions and told.partitions[0].leader_id >= 0:
            return
        await asyncio.sleep(PROBE_SECONDS)


def table(figures: dict[int, Times]) -> str:
    """The figures in Markdown."""
    names = [field.name for field in fields(Times)]
    lines = [
        "| partitions | " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "| --- " * (len(names) + 1) + "|",
    ]
    for partitions, times in figures.items():
        seconds = " | ".join(f"{getattr(times, name):.2f} s" for name in names)
        lines.append(f"| {partitions:,} | {seconds} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=PARTITIONS, help="of three replicas each"
    )
    parser.add_argument("--session-seconds", type=float, default=6.0, help="zookeeper.session.timeout.ms")
    parser.add_argument("--plot", type=Path, default=None, help="an SVG file to write")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    arguments = parser.parse_args()
    configure_logging("error")
    figures: dict[int, Times] = {}
    is_met = True
    for partitions in sorted(arguments.partitions):
        directory = Path(tempfile.mkdtemp(prefix="growth-", dir=arguments.directory))
        try:
            figures[partitions] = measure(directory, partitions, arguments.session_seconds)
        finally:
            shutil.rmtree(directory)
        print(table({partitions: figures[partitions]}).splitlines()[-1], file=sys.stderr, flush=True)
        if partitions == CONTROLLER_GOAL_PARTITIONS:
            is_met = figures[partitions].controller <= CONTROLLER_GOAL_SECONDS
    print(table(figures))
    if CONTROLLER_GOAL_PARTITIONS in figures:
        print(f"goal of controller: {CONTROLLER_GOAL_SECONDS:g} s, {'met' if is_met else 'missed'}")
    if arguments.plot is not None:
        names = [field.name for field in fields(Times)]
        series = [
            Series(name.replace("_", " "), [(count, asdict(times)[name]) for count, times in figures.items()])
            for name in names
        ]
        arguments.plot.write_text(plot(series, across="partitions of three replicas", up="seconds"))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
