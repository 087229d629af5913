"""What a group keeps in ZooKeeper, as somebody sees it who is no member: see `zookeeper_registry`."""

from __future__ import annotations

import asyncio

from broker.client.zookeeper_assignment import PartitionNames, partition_of_name
from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import ConsumerZnode
from broker.types import TopicPartition


class GroupView:
    """One group; everything raises CoordinationError."""

    def __init__(self, coordination: Coordination, group_id: str) -> None:
        """Raises ValueError for what cannot be the id of such a group."""
        if not paths.is_name(group_id):
            raise ValueError(f"{group_id!r} cannot be the id of a group: it names a znode")
        self.path = f"{paths.CONSUMERS}/{group_id}"
        self.ids_path = paths.consumer_ids(group_id)
        self._group_id = group_id
        self._coordination = coordination

    async def exists(self) -> bool:
        """Whether anything is kept."""
        return await self._coordination.get(self.path) is not None

    async def members(self) -> dict[str, ConsumerZnode]:
        """Who is registered, by id, sorted."""
        names = await self._coordination.children(self.ids_path)
        znodes = [paths.consumer_id(self._group_id, name) for name in names]
        found = await asyncio.gather(*map(self._coordination.get, znodes))
        return {
            name: ConsumerZnode.decode(znode.data, path)
            for name, path, znode in zip(names, znodes, found, strict=True)
            if znode is not None
        }

    async def owners(self) -> dict[TopicPartition, str]:
        """The stream that reads each partition, sorted."""
        znodes = await self._partitions(f"{self.path}/owners")
        found = await asyncio.gather(*map(self._coordination.get, znodes))
        owners = {
            partition: znode.data.decode(errors="replace")
            for partition, znode in zip(znodes.values(), found, strict=True)
            if znode is not None
        }
        return dict(sorted(owners.items()))

    async def offset_znodes(self) -> dict[str, TopicPartition]:
        """Where offsets are kept, and of what; a partition may have several, by other names."""
        return await self._partitions(f"{self.path}/offsets")

    async def names(self) -> PartitionNames:
        """What the members of the group call the znodes of partitions, as far as offsets tell."""
        znodes = await self.offset_znodes()
        if znodes and not any(path.rpartition("/")[2].isdecimal() for path in znodes):
            return PartitionNames.BROKER_AND_NUMBER
        return PartitionNames.NUMBER

    async def _partitions(self, parent: str) -> dict[str, TopicPartition]:
        """The znodes of partitions, two levels below `parent`."""
        topics = await self._coordination.children(parent)
        named = await asyncio.gather(*(self._coordination.children(f"{parent}/{topic}") for topic in topics))
        return {
            f"{parent}/{topic}/{name}": TopicPartition(topic, number)
            for topic, names in zip(topics, named, strict=True)
            for name in names
            if (number := partition_of_name(name)) is not None
        }
