"""Administration of groups that meet in ZooKeeper: the operations on groups, by way of a session with it.

Nodes of the cluster are asked for the ends of logs alone. Offsets are moved with the owner znodes of their
partitions in hand: whoever joins meanwhile reads them afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from broker.client.admin_requests import Results
from broker.client.cluster import Cluster
from broker.client.group_descriptions import DEAD, GroupDescription, GroupListing, MemberDescription
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.zookeeper_assignment import PartitionNames, consumer_of_stream, stream_name
from broker.client.zookeeper_group_view import GroupView
from broker.client.zookeeper_registry import GroupRegistry
from broker.client.zookeeper_settings import new_consumer_id
from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import Assignment, ConsumerZnode
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.types import TopicPartition

ZOOKEEPER = "zookeeper"
"""The type of these groups."""
_STABLE, _EMPTY = "Stable", "Empty"
_RANGE = "range"
_PROTOCOL_TYPE = "consumer"
_NO_COORDINATOR = -1


class ZooKeeperGroupAdmin(GroupOffsetAdmin):
    """As GroupOffsetAdmin, for groups in ZooKeeper. Everything raises CoordinationError as well, which names
    the znode that cannot be read.
    """

    def __init__(self, cluster: Cluster, coordination: Coordination, *, timeout_ms: int = 30_000) -> None:
        """`coordination` is a started session of the caller's."""
        super().__init__(cluster, timeout_ms=timeout_ms)
        self._coordination = coordination

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """All groups, those without members too; of these states and types where any are given."""
        group_ids = await self._coordination.children(paths.CONSUMERS)
        found = await asyncio.gather(*(self._state(self._view(group_id)) for group_id in group_ids))
        return [
            GroupListing(group_id=group_id, protocol_type=_PROTOCOL_TYPE, state=state, type=ZOOKEEPER)
            for group_id, state in zip(group_ids, found, strict=True)
            if _is_asked_for(state, states) and _is_asked_for(ZOOKEEPER, types)
        ]

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """The groups by name, members with the partitions that they own; one that there is not is Dead."""
        described = await asyncio.gather(*map(self._describe, group_ids))
        return dict(zip(group_ids, described, strict=True))

    async def delete_groups(self, group_ids: Collection[str]) -> Results:
        """Delete groups that have no members, offsets and all. Each succeeds or fails by itself."""
        outcomes = await asyncio.gather(*map(self._outcome_of_delete, group_ids))
        return dict(zip(group_ids, outcomes, strict=True))

    async def group_owners(self, group_id: str) -> dict[TopicPartition, str]:
        """The stream of a member (`C-number`) that reads each partition, sorted."""
        return await self._view(group_id).owners()

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, for all partitions or for those given; left out are those that do not
        exist any more.
        """
        view = self._view(group_id)
        registry = await self._registry(group_id)
        known = set((await view.offset_znodes()).values())
        replicas = await registry.replicas({partition.topic for partition in known})
        wanted = [
            partition
            for partition in known
            if partition.partition in replicas.get(partition.topic, {})
            and (partitions is None or partition in partitions)
        ]
        committed = await registry.committed(wanted)
        return {partition: OffsetAndMetadata(offset=offset) for partition, offset in committed.items()}

    async def reset_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Set the offsets of a group without members.

        Raises ProtocolError: NON_EMPTY_GROUP when it has some, or somebody owns a partition.
        """
        view = self._view(group_id)
        await self._require_empty(view, group_id)
        registry = await self._registry(group_id)
        topics = await registry.replicas({partition.topic for partition in offsets})
        owner = stream_name(registry.consumer_id, 0)
        try:
            if taken := await registry.claim(dict.fromkeys(offsets, owner)):
                raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, f"a partition is owned: {taken[0]}")
            await registry.commit(
                {
                    partition: offset if isinstance(offset, int) else offset.offset
                    for partition, offset in offsets.items()
                }
            )
            await self._forget_former_brokers(view, offsets.keys(), topics)
        finally:
            await registry.release()

    async def _forget_former_brokers(
        self, view: GroupView, partitions: Collection[TopicPartition], topics: Mapping[str, Assignment]
    ) -> None:
        """Where names tell the broker the largest of several offsets would count."""
        names = await view.names()
        if names is PartitionNames.NUMBER:
            return
        for path, partition in (await view.offset_znodes()).items():
            if partition in partitions:
                replicas = topics[partition.topic][partition.partition]
                if not path.endswith(f"/{names.name_of(partition.partition, replicas)}"):
                    await self._coordination.delete(path)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Forget the group's offsets of partitions that nobody in it owns."""
        view = self._view(group_id)
        owners = await view.owners()
        for path, partition in (await view.offset_znodes()).items():
            if partition in partitions and partition not in owners:
                await self._coordination.delete(path)
        return {
            partition: ProtocolError(
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"{partition} is read by {owners[partition]}"
            )
            if partition in owners
            else None
            for partition in partitions
        }

    async def _state(self, view: GroupView) -> str:
        if await self._coordination.children(view.ids_path):
            return _STABLE
        return _EMPTY if await view.exists() else DEAD

    async def _describe(self, group_id: str) -> GroupDescription:
        view = self._view(group_id)
        state, members, owners = await self._state(view), await view.members(), await view.owners()
        return GroupDescription(
            group_id=group_id,
            state=state,
            protocol_type=_PROTOCOL_TYPE,
            protocol=_RANGE if members else "",
            coordinator=_NO_COORDINATOR,
            members=tuple(_member(name, registered, owners) for name, registered in members.items()),
            type=ZOOKEEPER,
        )

    async def _outcome_of_delete(self, group_id: str) -> ProtocolError | None:
        try:
            await self._delete(group_id)
        except ProtocolError as error:
            return error
        return None

    async def _delete(self, group_id: str) -> None:
        view = self._view(group_id)
        if await self._state(view) == DEAD:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        await self._require_empty(view, group_id)
        try:
            await self._coordination.delete(view.ids_path)  # fails when somebody has come since
        except CoordinationError:
            await self._require_empty(view, group_id)
            raise
        await self._coordination.delete(view.path, recursive=True)

    async def _require_empty(self, view: GroupView, group_id: str) -> None:
        if members := await self._coordination.children(view.ids_path):
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, f"{members[0]} is in group {group_id}")

    async def _registry(self, group_id: str) -> GroupRegistry:
        names = await self._view(group_id).names()
        return GroupRegistry(self._coordination, group_id, new_consumer_id(), names)

    def _view(self, group_id: str) -> GroupView:
        try:
            return GroupView(self._coordination, group_id)
        except ValueError as error:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, str(error)) from error


def _member(name: str, registered: ConsumerZnode, owners: Mapping[TopicPartition, str]) -> MemberDescription:
    is_static = registered.pattern == ConsumerZnode.STATIC
    return MemberDescription(
        member_id=name,
        instance_id=None,
        client_id="",
        host="",
        assignment=tuple(
            partition for partition, stream in owners.items() if consumer_of_stream(stream) == name
        ),
        topics=tuple(registered.subscription) if is_static else (),
        pattern=None if is_static else _expression(registered),
    )


def _expression(registered: ConsumerZnode) -> str:
    """What matches the whole names of the topics that are read."""
    expression = "|".join(registered.subscription)
    return f"(?!(?:{expression})$).*" if registered.pattern == ConsumerZnode.DENY else expression


def _is_asked_for(word: str, asked: Collection[str]) -> bool:
    return not asked or word.lower() in {each.lower() for each in asked}
