"""Members of a group that meets in ZooKeeper, each a process that reads by streams and writes down what it
got: `python -m tests.node.group_processes` is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.child_process import ChildProcess
from broker.client.cluster import Cluster
from broker.client.consumer_connector import ConsumerConnector, GroupKind
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.client.group_settings import GroupSettings
from broker.client.record_stream import RecordStream
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination.zookeeper import ZooKeeper
from broker.types import HostPort, TopicPartition

SESSION_TIMEOUT_MS = 2_000
START_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What a process is to do."""

    bootstrap: str
    zookeeper: str
    group: str
    name: str
    pattern: str
    streams: int
    kind: str
    journal: str


class Entry(NamedTuple):
    """One record as a process got it, at some time of the machine's clock."""

    at_ns: int
    member: str
    partition: TopicPartition
    offset: int
    value: str


# The process


async def take_part(plan: MemberPlan) -> None:
    """Be a member until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    journal = os.open(plan.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    session = ZooKeeper(plan.zookeeper, session_timeout_ms=SESSION_TIMEOUT_MS)
    await session.start(timeout_ms=START_TIMEOUT_MS)
    async with (
        Cluster([HostPort.parse(plan.bootstrap)]) as cluster,
        ConsumerConnector(
            cluster,
            GroupSettings(group_id=plan.group),
            kind=GroupKind(plan.kind),
            coordination=session,
            zookeeper=ZooKeeperGroupSettings(
                consumer_id=plan.name, rebalance_retries_max=20, rebalance_backoff_ms=500
            ),
            settings=ConsumerSettings(
                offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=200, fetch_max_wait_ms=100
            ),
        ) as connector,
        asyncio.TaskGroup() as tasks,
    ):
        streams = await connector.create_message_streams_by_filter(
            TopicPattern.allow(plan.pattern), plan.streams
        )
        for stream in streams:
            tasks.create_task(write_down(stream, journal))
        await stop.wait()
        await connector.shutdown()
    await session.close()


async def write_down(stream: RecordStream, journal: int) -> None:
    """A line for every record, with the first word of its value."""
    async for record in stream:
        value = (record.value or b"-").split(maxsplit=1)[0].decode()
        line = f"{time.monotonic_ns()} {record.topic} {record.partition} {record.offset} {value}\n"
        os.write(journal, line.encode())


# What tests see of it


class GroupProcess:
    """One member; its journal outlives it."""

    def __init__(self, plan: MemberPlan, directory: Path) -> None:
        self.name = plan.name
        self.is_gone = False
        self._journal = Path(plan.journal)
        command = [sys.executable, "-m", "tests.node.group_processes", json.dumps(asdict(plan))]
        self._process = ChildProcess.start(plan.name, command, directory / f"{plan.name}.log")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Let it leave in order, once it can."""
        self._process.wait_until(self._journal.exists, timeout_ms=START_TIMEOUT_MS)
        assert self._process.stop(timeout_ms=20_000) == 0, self._process.log_tail()
        self.is_gone = True

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)
        self._process.stop(timeout_ms=5_000)
        self.is_gone = True

    def entries(self) -> list[Entry]:
        """What it got so far; a line that is only half there yet comes with the next look."""
        if not self._journal.exists():
            return []
        found = []
        whole, _, _ = self._journal.read_text().rpartition("\n")
        for line in whole.splitlines():
            at_ns, topic, partition, offset, value = line.split(" ")
            read = TopicPartition(topic, int(partition))
            found.append(Entry(int(at_ns), self.name, read, int(offset), value))
        return found


class Group:
    """All members that there were, and what ZooKeeper says of those that there are."""

    def __init__(
        self,
        *,
        bootstrap: str,
        zookeeper: str,
        directory: Path,
        pattern: str,
        kind: GroupKind = GroupKind.ZOOKEEPER,
    ) -> None:
        self.members: list[GroupProcess] = []
        self._plan = {"bootstrap": bootstrap, "zookeeper": zookeeper, "pattern": pattern, "kind": kind.value}
        self._directory = directory
        patience = {"max_tries": -1, "max_delay": 1.0}
        self._client = KazooClient(hosts=zookeeper, connection_retry=patience, command_retry=patience)

    def __enter__(self) -> Group:
        self._client.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.living:
            member.kill()
        self._client.stop()
        self._client.close()

    @property
    def living(self) -> list[GroupProcess]:
        return [member for member in self.members if not member.is_gone]

    def join(self, streams: int = 2) -> GroupProcess:
        """One more member."""
        name = f"member-{len(self.members):03d}"
        plan = MemberPlan(
            group="g",
            name=name,
            streams=streams,
            journal=str(self._directory / f"{name}.journal"),
            **self._plan,
        )
        self.members.append(GroupProcess(plan, self._directory))
        return self.members[-1]

    def owners(self) -> dict[TopicPartition, str]:
        """The owner of each partition, by its znode."""
        found = {}
        for topic in self._children("/consumers/g/owners"):
            for number in self._children(f"/consumers/g/owners/{topic}"):
                owner = self._get(f"/consumers/g/owners/{topic}/{number}")
                found[TopicPartition(topic, int(number))] = owner.rpartition("-")[0]
        return {partition: owner for partition, owner in found.items() if owner}

    def is_shared_out(self, partitions: Mapping[str, int]) -> bool:
        """Whether every partition of these topics has an owner among the living, and all those are
        registered.
        """
        owners = self.owners()
        every = {TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)}
        names = {member.name for member in self.living}
        registered = set(self._children("/consumers/g/ids"))
        return owners.keys() == every and set(owners.values()) <= names == registered

    def entries(self) -> list[Entry]:
        """What all members got, in the order of time."""
        return sorted(entry for member in self.members for entry in member.entries())

    def _children(self, path: str) -> list[str]:
        with contextlib.suppress(NoNodeError):
            return list(self._client.retry(self._client.get_children, path))
        return []

    def _get(self, path: str) -> str:
        with contextlib.suppress(NoNodeError):
            data: bytes = self._client.retry(self._client.get, path)[0]
            return data.decode()
        return ""


def runs(entries: list[Entry]) -> dict[TopicPartition, list[list[Entry]]]:
    """What was read of each partition, cut where another process went on."""
    by_partition: dict[TopicPartition, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_partition[entry.partition].append(entry)
    return {
        partition: [list(run) for _, run in groupby(listed, key=lambda entry: entry.member)]
        for partition, listed in by_partition.items()
    }


if __name__ == "__main__":
    asyncio.run(take_part(MemberPlan(**json.loads(sys.argv[1]))))
