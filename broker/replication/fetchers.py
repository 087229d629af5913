"""Which task follows which partition: a few tasks for each leader node, each with a connection of its own.

A partition goes to one of the `num.replica.fetchers` tasks of its leader by a hash, so that all of a leader's
partitions are asked for in as many requests. A task ends with the last of its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from types import TracebackType
from typing import Any
from zlib import crc32

from broker.clock import Clock
from broker.cluster.image import BrokerInfo
from broker.replication.fetcher import FetchCounts, Fetcher, Surroundings
from broker.replication.following import FetchBounds
from broker.replication.node_connection import NodePort
from broker.replication.partition import Role
from broker.replication.replica import Replica
from broker.replication.replication_quotas import ReplicationQuota
from broker.types import NO_LEADER, BrokerId, TopicPartition

_Place = tuple[BrokerId, int]


class Fetchers:
    """All fetchers of one node; a context manager within which replicas are followed.

    `count` is how many tasks follow one leader; `open_port` makes the way to a node for one task.
    """

    def __init__(
        self,
        local: BrokerId,
        bounds: FetchBounds,
        *,
        quota: ReplicationQuota,
        count: int,
        clock: Clock,
        executor: Executor,
        broker: Callable[[BrokerId], BrokerInfo | None],
        broker_epoch: Callable[[], int],
        open_port: Callable[[], NodePort],
    ) -> None:
        self._around = Surroundings(
            local=local,
            bounds=bounds,
            quota=quota,
            clock=clock,
            executor=executor,
            broker=broker,
            broker_epoch=broker_epoch,
            start=self._start,
        )
        self._count = count
        self._open_port = open_port
        self._group = asyncio.TaskGroup()
        self._fetchers: dict[_Place, tuple[Fetcher, asyncio.Task[None]]] = {}
        self._placed: dict[TopicPartition, tuple[_Place, Replica]] = {}

    async def __aenter__(self) -> None:
        await self._group.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends every task; cuts of logs are waited for."""
        for partition in list(self._placed):
            self.forget(partition)
        await self._group.__aexit__(kind, error, traceback)

    @property
    def counts(self) -> FetchCounts:
        """What was done since the node started."""
        return self._around.counts

    @property
    def partition_count(self) -> int:
        """Partitions that are followed."""
        return len(self._placed)

    @property
    def lag_max(self) -> int:
        """The largest number of offsets that a partition ends below its leader's high watermark."""
        return max((fetcher.lag_max for fetcher, _ in list(self._fetchers.values())), default=0)

    def update(self, replica: Replica) -> None:
        """The replica has a role, or another one: follow its leader, or nobody."""
        machine, partition = replica.machine, replica.topic_partition
        leader = machine.assignment.leader
        if machine.role is not Role.FOLLOWER or leader == NO_LEADER:
            self.forget(partition)
            return
        place = (leader, _number(partition, self._count))
        if partition in self._placed and self._placed[partition][0] != place:
            self.forget(partition)
        self._placed[partition] = place, replica
        self._fetcher(place).follow(replica)

    def forget(self, partition: TopicPartition) -> None:
        """Follow it no longer."""
        place, _ = self._placed.pop(partition, (None, None))
        if place is None:
            return
        fetcher, task = self._fetchers[place]
        fetcher.forget(partition)
        if not len(fetcher):
            del self._fetchers[place]
            task.cancel()

    def reconfigure(self, count: int) -> None:
        """Follow each leader with so many tasks from now on."""
        if count == self._count:
            return
        self._count = count
        for _, replica in list(self._placed.values()):
            self.update(replica)

    def _fetcher(self, place: _Place) -> Fetcher:
        if place not in self._fetchers:
            fetcher = Fetcher(place[0], self._open_port(), self._around)
            self._fetchers[place] = fetcher, self._group.create_task(fetcher.run())
        return self._fetchers[place][0]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._group.create_task(work)


def _number(partition: TopicPartition, count: int) -> int:
    """Neighbouring partitions of a topic go to different tasks."""
    return (crc32(partition.topic.encode()) + partition.partition) % count
