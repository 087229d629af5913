"""Logs of partitions that this node has no role in: found when the controller names all its roles.

A replica may be moved away, or its topic removed, while its node is away: then nobody tells the node to
delete it. But that the controller names no role does not prove it, as what cannot be read is not named
either. So the topic's znode is asked, by its id, and the partition's state:

- the topic is the log's, other brokers are its replicas, and all that are in sync are among them: deleted, as
  it would have been if the node had been there;
- there is no such topic, or another has its name, or it is not certain that others have the partition: set
  aside (see `retired_logs`);
- the topic names this node, or counts on it, or cannot be read: kept where it is.

Nothing happens when the cluster's id is not what it was: then all topics may be gone by mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from broker.cluster.registration import obtain_cluster_id
from broker.cluster.states import read_states
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.errors import CoordinationError
from broker.replication.partition import Assignment
from broker.replication.replicas import Replicas
from broker.replication.retired_logs import Retirement
from broker.telemetry import logger
from broker.types import BrokerId, TopicId, TopicPartition

RETRY_SECONDS = 1.0

log_event = logger("replicas")

Suspects = dict[TopicPartition, Assignment | None]
"""Logs without a role, with the role that they had for this node when they were found."""


class Strays:
    """Looks after the logs of one node; `run` works for ever."""

    def __init__(
        self, local: BrokerId, cluster_id: str, replicas: Replicas, coordination: Coordination
    ) -> None:
        self._local = local
        self._cluster_id = cluster_id
        self._replicas = replicas
        self._coordination = coordination
        self._suspects: Suspects = {}
        self._has_suspects = asyncio.Event()

    def told_all_roles(self, named: Collection[TopicPartition]) -> None:
        """The controller named every role of this node: look at what else there is."""
        self._suspects = {
            partition: self._role_of(partition)
            for directory in self._replicas.directories.live.values()
            for partition in directory.logs
            if partition not in named
        }
        if self._suspects:
            self._has_suspects.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            await self._has_suspects.wait()
            self._has_suspects.clear()
            suspects, self._suspects = self._suspects, {}
            try:
                await self._look_at(suspects)
            except CoordinationError as error:
                log_event.warning("strays_not_looked_at", partitions=len(suspects), reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._suspects = suspects | self._suspects
                self._has_suspects.set()

    async def _look_at(self, suspects: Suspects) -> None:
        """Raises CoordinationError."""
        if await obtain_cluster_id(self._coordination) != self._cluster_id:
            log_event.error("strays_left_alone", reason="ZooKeeper holds another cluster's id")
            return
        reading = await read_states(self._coordination, suspects)
        topics = await self._read_topics({partition.topic for partition in suspects})
        for partition, role in suspects.items():
            if partition.topic not in topics or partition in reading.unreadable:
                continue
            stored = reading.states.get(partition)
            async with self._replicas.orders:
                if self._role_of(partition) is role:
                    await self._retire(partition, topics[partition.topic], stored.state if stored else None)

    async def _read_topics(self, names: Iterable[str]) -> dict[str, TopicZnode | None]:
        """None for those that are not there; those that cannot be read are left out."""
        topics: dict[str, TopicZnode | None] = {}
        for name in sorted(names):
            path = paths.topic(name)
            try:
                znode = await self._coordination.get(path)
                topics[name] = None if znode is None else TopicZnode.decode(znode.data, path)
            except SessionLostError:
                raise
            except CoordinationError as error:
                log_event.error("znode_unreadable", path=path, reason=str(error))
        return topics

    async def _retire(
        self, partition: TopicPartition, topic: TopicZnode | None, state: PartitionStateZnode | None
    ) -> None:
        directory = self._replicas.directories.find(partition)
        if directory is None:
            return
        topic_id = directory.logs[partition].topic_id
        how, reason = fate(self._local, partition.partition, topic_id, topic, state)
        if how is not None:
            await self._replicas.retire(partition, how, reason=reason)

    def _role_of(self, partition: TopicPartition) -> Assignment | None:
        replica = self._replicas.get(*partition)
        return None if replica is None else replica.machine.assignment


def fate(
    local: BrokerId,
    partition: int,
    topic_id: TopicId | None,
    topic: TopicZnode | None,
    state: PartitionStateZnode | None,
) -> tuple[Retirement | None, str]:
    """What becomes of a log of a topic with this id, or of an unknown one, and why; the rules are the
    module's.
    """
    if topic is None:
        return Retirement.SET_ASIDE, "there is no such topic"
    if topic_id not in (None, topic.topic_id):
        return Retirement.SET_ASIDE, f"the topic's id is {topic.topic_id} now"
    replicas = topic.partitions.get(partition)
    if replicas is None:
        return Retirement.SET_ASIDE, "the topic has no such partition"
    if local in replicas or (state is not None and local in state.isr):
        return None, "the topic counts on this node"
    if topic_id is not None and state is not None and state.isr and set(state.isr) <= set(replicas):
        return Retirement.DELETED, f"the replicas are {list(replicas)}"
    return Retirement.SET_ASIDE, f"the replicas are {list(replicas)}, none of which is certain to be in sync"
