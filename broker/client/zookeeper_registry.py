"""What a group keeps in ZooKeeper, read and written on behalf of one of its members.

`/consumers/G/ids/C` says who is there, `/consumers/G/owners/T/P` who reads a partition: both are ephemeral,
and belong to whoever's session made them. `/consumers/G/offsets/T/P` is the offset of the next record to be
read.

A write whose answer was lost may have taken effect, so whatever may be this member's counts as claimed
until it is certainly gone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from broker.client.zookeeper_assignment import PartitionNames, partition_of_name
from broker.coordination import paths
from broker.coordination.consumer_offsets import keep_offset, kept_offset
from broker.coordination.protocol import Coordination, CreateNode, DeleteNode, NodeExistsError
from broker.coordination.znodes import Assignment, ConsumerZnode, TopicZnode
from broker.types import TopicPartition

_Result = TypeVar("_Result")


class _Claim(NamedTuple):
    """An owner znode, the session that it lives with, and what it holds."""

    path: str
    session_id: int
    stream: bytes


class GroupRegistry:
    """One member's view of its group; everything raises CoordinationError, and SessionLostError while the
    session is not connected.
    """

    def __init__(
        self, coordination: Coordination, group_id: str, consumer_id: str, names: PartitionNames
    ) -> None:
        self.consumer_id = consumer_id
        self._coordination = coordination
        self._group_id = group_id
        self._names = names
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self._claims: dict[TopicPartition, _Claim] = {}
        """Owner znodes that are or may be this member's."""

    @property
    def id_path(self) -> str:
        """Where this member is registered."""
        return paths.consumer_id(self._group_id, self.consumer_id)

    @property
    def ids_path(self) -> str:
        """Below this all members are registered."""
        return paths.consumer_ids(self._group_id)

    # Members and topics

    async def register(self, registration: ConsumerZnode) -> bool:
        """Make this member known, and anew when it reads other topics than before; whether that is done, or
        another session has the id.
        """
        data = registration.encode()
        try:
            await self._coordination.create(self.id_path, data, ephemeral=True)
        except NodeExistsError:
            known = await self._coordination.get(self.id_path)
            if known is None or known.ephemeral_owner != self._coordination.session_id:
                return False
            before = ConsumerZnode.decode(known.data, self.id_path)
            if replace(before, timestamp_ms=registration.timestamp_ms) != registration:
                await self._coordination.multi(  # the others watch who is there, not what they say
                    [
                        DeleteNode(path=self.id_path, version=known.version),
                        CreateNode(path=self.id_path, data=data, ephemeral=True),
                    ]
                )
        return True

    async def unregister(self) -> None:
        """Be a member no longer."""
        known = await self._coordination.get(self.id_path)
        if known is not None and known.ephemeral_owner == self._coordination.session_id:
            await self._coordination.delete(self.id_path)

    async def registrations(self) -> dict[str, ConsumerZnode]:
        """The members, by id."""

        async def read(member: str) -> tuple[str, ConsumerZnode | None]:
            path = paths.consumer_id(self._group_id, member)
            found = await self._coordination.get(path)
            return member, ConsumerZnode.decode(found.data, path) if found is not None else None

        members = await self._coordination.children(self.ids_path)
        return {member: known for member, known in await _all(map(read, members)) if known is not None}

    async def topics(self) -> list[str]:
        """Names of all topics."""
        return await self._coordination.children(paths.TOPICS)

    async def replicas(self, topics: Collection[str]) -> dict[str, Assignment]:
        """Of those topics that exist the partitions with their replicas; remembered for naming znodes."""

        async def read(topic: str) -> tuple[str, Assignment | None]:
            path = paths.topic(topic)
            found = await self._coordination.get(path)
            return topic, TopicZnode.decode(found.data, path).partitions if found is not None else None

        known = {topic: found for topic, found in await _all(map(read, topics)) if found is not None}
        self._replicas = {
            TopicPartition(topic, partition): replicas
            for topic, partitions in known.items()
            for partition, replicas in partitions.items()
        }
        return known

    # Owners

    async def claim(self, streams: Mapping[TopicPartition, str]) -> list[str]:
        """Own these partitions, each in the name of a stream; returns the owner znodes of others that are in
        the way. Whatever comes of it, `release` gives up what was claimed.
        """

        async def claim(claimed: _Claim) -> str | None:
            return None if await self._own(claimed) else claimed.path

        for topic in {partition.topic for partition in streams}:
            await self._create_missing(paths.consumer_owners(self._group_id, topic))
        session_id = self._coordination.session_id
        self._claims = {
            partition: _Claim(self._owner_path(partition), session_id, stream.encode())
            for partition, stream in streams.items()
        }
        taken = await _all(claim(claimed) for claimed in self._claims.values())
        return [path for path in taken if path is not None] or await self._owners_by_other_names()

    async def _own(self, claim: _Claim) -> bool:
        try:
            await self._coordination.create(claim.path, claim.stream, ephemeral=True)
        except NodeExistsError:
            found = await self._coordination.get(claim.path)
            if found is None or found.ephemeral_owner != claim.session_id:
                return False
            if found.data != claim.stream:
                await self._coordination.set(claim.path, claim.stream)
        return True

    async def _owners_by_other_names(self) -> list[str]:
        """Owner znodes of claimed partitions that are not called as this member calls them: others may, for a
        moment, see another preferred broker. Of two who claim at once one sees the other.
        """
        wanted: dict[str, set[int]] = defaultdict(set)
        for partition in self._claims:
            wanted[partition.topic].add(partition.partition)
        mine = {claim.path for claim in self._claims.values()}

        async def look(topic: str, numbers: set[int]) -> set[str]:
            parent = paths.consumer_owners(self._group_id, topic)
            names = await self._coordination.children(parent)
            return {f"{parent}/{name}" for name in names if partition_of_name(name) in numbers} - mine

        return sorted(set().union(*await _all(look(*each) for each in wanted.items())))

    async def release(self) -> None:
        """Let others own what was claimed."""

        async def release(partition: TopicPartition, claim: _Claim) -> None:
            if await self._is_held(claim):
                await self._coordination.delete(claim.path)
            self._claims.pop(partition, None)

        await _all(release(*each) for each in list(self._claims.items()))

    def forget_claims(self) -> None:
        """The session has ended, and with it what it owned."""
        self._claims.clear()

    async def lost(self) -> list[TopicPartition]:
        """Claimed partitions whose owner is another, or nobody."""
        claims = dict(self._claims)
        held = await _all(self._is_held(claim) for claim in claims.values())
        return [partition for partition, is_held in zip(claims, held, strict=True) if not is_held]

    async def owns(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether all of these are claimed, and no owner is another, or nobody."""
        claims = [self._claims[partition] for partition in partitions if partition in self._claims]
        return len(claims) == len(partitions) and all(await _all(map(self._is_held, claims)))

    def owner_paths(self) -> list[str]:
        """Where this member is told as an owner."""
        return [claim.path for claim in self._claims.values()]

    async def any_exists(self, znodes: Collection[str]) -> bool:
        """Whether one of these is there."""
        return any(found is not None for found in await _all(map(self._coordination.get, znodes)))

    async def _is_held(self, claim: _Claim) -> bool:
        found = await self._coordination.get(claim.path)
        return found is not None and (found.ephemeral_owner, found.data) == (claim.session_id, claim.stream)

    def _owner_path(self, partition: TopicPartition) -> str:
        return f"{paths.consumer_owners(self._group_id, partition.topic)}/{self._name(partition)}"

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep these offsets."""
        await _all(self._keep(partition, offset) for partition, offset in offsets.items())

    async def _keep(self, partition: TopicPartition, offset: int) -> None:
        path = f"{paths.consumer_offsets(self._group_id, partition.topic)}/{self._name(partition)}"
        await keep_offset(self._coordination, path, offset)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that are kept; those without are left out."""
        topics = {partition.topic for partition in partitions}
        found = dict(pair for pairs in await _all(map(self._committed, topics)) for pair in pairs)
        return {partition: found[partition] for partition in partitions if partition in found}

    async def _committed(self, topic: str) -> list[tuple[TopicPartition, int]]:
        """All offsets of a topic. Where names tell the broker the largest counts: the partition may have had
        another before.
        """
        parent = paths.consumer_offsets(self._group_id, topic)

        async def read(name: str, number: int) -> tuple[TopicPartition, int] | None:
            offset = await kept_offset(self._coordination, f"{parent}/{name}")
            return None if offset is None else (TopicPartition(topic, number), offset)

        numbers = {name: partition_of_name(name) for name in await self._coordination.children(parent)}
        reads = [
            read(name, number)
            for name, number in numbers.items()
            if number is not None and (name == str(number)) == (self._names is PartitionNames.NUMBER)
        ]
        return sorted(filter(None, await _all(reads)))

    def _name(self, partition: TopicPartition) -> str:
        return self._names.name_of(partition.partition, self._replicas.get(partition, (-1,)))

    async def _create_missing(self, path: str) -> None:
        try:
            await self._coordination.create(path, b"")
        except NodeExistsError:
            return


async def _all(work: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """The results of all, at once; the first error only when none is at work any more."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)  # type: ignore[arg-type]
