"""How long a group takes to be stable: our node beside Apache Kafka 3.9.1, with the same members.

    python -m ops.bench.rebalance [--members N] [--partitions N] [--rounds N] [--directory DIR]

Each server runs alone with its default settings on a processor core of its own; the members, of our wire
code, are on another, each with a connection of its own and a heartbeat every 100 ms. Stable: all members are
of one generation (epoch) and have every partition once.

form: all join an empty group at once; with the classic protocol both servers wait 3 s for more members
(`group.initial.rebalance.delay.ms`), which is in the figure. join: one more comes to a stable group. leave:
one leaves it. Printed: median seconds, and the server's processor time, which are warm figures: the first
round does not count. The consumer protocol (KIP-848) is our node's alone: Apache Kafka 3.9.1 does not serve
it with ZooKeeper. Needs Java and Maven; without them our node is measured alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from uuid import UUID

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode, ProtocolError
from broker.types import HostPort
from ops.bench._group_members import ClassicMember, ConsumerMember, GroupMember, Work, are_stable
from ops.bench.comparison.processor_time import cpu_seconds
from ops.bench.comparison.servers import (
    CLIENT_CORE,
    Server,
    apache_kafka,
    fetch_kafka,
    missing_tool,
    our_nodes,
)

TOPIC = "rebalance"
TIMEOUT_SECONDS = 120.0
CASES = ("form", "join", "leave")


@dataclass(slots=True)
class Figures:
    """Seconds and processor seconds of the server, by case, one for each round."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {case: [] for case in CASES})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {case: [] for case in CASES})

    def line(self, name: str) -> str:
        """The medians of all rounds but the first."""
        parts = []
        for case in CASES:
            seconds, cpu = (median(each[case][1:] or each[case]) for each in (self.seconds, self.cpu))
            parts.append(f"{case} {seconds:6.2f} s ({cpu:5.2f} s CPU)")
        return f"{name:28} {'   '.join(parts)}"


class Group:
    """The members of one group on one server."""

    def __init__(self, work: Work, kind: type[GroupMember], server: Server) -> None:
        self._work = work
        self._kind = kind
        self._server = server
        self._members: list[GroupMember] = []
        self._changed = asyncio.Event()

    async def measure(self, count: int, figures: Figures) -> None:
        """Form the group, let one join, let one leave, and end it."""
        await self._timed("form", figures, lambda: self._add(count))
        await self._timed("join", figures, lambda: self._add(1))
        leaving = self._members.pop()
        await self._timed("leave", figures, lambda: self._remove(leaving))
        await asyncio.gather(*(member.stop() for member in self._members))

    def _add(self, count: int) -> None:
        for _ in range(count):
            member = self._kind(self._work, len(self._members))
            self._members.append(member)
            member.start(self._changed.set)

    def _remove(self, member: GroupMember) -> None:
        self._leaving = asyncio.create_task(member.stop())

    async def _timed(self, case: str, figures: Figures, change: Callable[[], None]) -> None:
        cpu, begin = cpu_seconds(self._server.pid), time.monotonic()
        change()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not are_stable(self._members, self._work.partitions):
                for member in self._members:
                    member.check()
                self._changed.clear()
                await self._changed.wait()
        figures.seconds[case].append(time.monotonic() - begin)
        figures.cpu[case].append(cpu_seconds(self._server.pid) - cpu)


async def prepare(address: HostPort, partitions: int, groups: Sequence[str]) -> UUID:
    """Make the benchmark's topic, and have the groups coordinated; returns the topic's id."""
    cluster = Cluster([address])
    await cluster.start()
    try:
        admin = Admin(cluster)
        if TOPIC not in await admin.list_topics():
            await _create(admin, partitions)
        for group in groups:
            await admin.group_offsets(group)
        while True:
            topic = (await admin.describe_topics([TOPIC]))[TOPIC]
            if len(topic.partitions) == partitions:
                return topic.topic_id
            await asyncio.sleep(0.1)
    finally:
        await cluster.close()


async def _create(admin: Admin, partitions: int) -> None:
    """Some servers answer before the topic is there; it comes."""
    try:
        await admin.create_topic(NewTopic(name=TOPIC, partitions=partitions, replication_factor=1))
    except ProtocolError as error:
        if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            raise


def measure(
    server: Server, name: str, kinds: Sequence[type[GroupMember]], options: argparse.Namespace
) -> None:
    """Print the figures of one server, for each kind of member."""

    async def run() -> None:
        groups = [f"{kind.__name__}-{number}" for kind in kinds for number in range(options.rounds + 1)]
        its_id = await prepare(server.address, options.partitions, groups)
        for kind in kinds:
            figures = Figures()
            for number in range(options.rounds + 1):
                work = Work(
                    address=server.address,
                    group=f"{kind.__name__}-{number}",
                    topic=TOPIC,
                    topic_id=its_id,
                    partitions=options.partitions,
                )
                await Group(work, kind, server).measure(options.members, figures)
            print(figures.line(f"{name}, {kind.__name__}"), flush=True)

    asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where files go; default: a temporary directory")
    options = parser.parse_args()
    reason = missing_tool()
    os.sched_setaffinity(0, {CLIENT_CORE})
    directory = Path(tempfile.mkdtemp(prefix="rebalance-", dir=options.directory))
    try:
        with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
            with our_nodes(directory / "ours", zookeeper) as (ours,):
                measure(ours, "our node", (ClassicMember, ConsumerMember), options)
            if reason is not None:
                print(f"Apache Kafka is not measured: {reason}")
                return
            classpath = fetch_kafka(directory / "jars")
            with apache_kafka(directory / "apache", zookeeper, classpath) as (kafka,):
                measure(kafka, "Apache Kafka 3.9.1", (ClassicMember,), options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
