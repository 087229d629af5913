"""Membership in a route's group that meets in ZooKeeper, for sources that keep groups there.

Members share the partitions of each topic in runs, as Kafka's old consumers do (`zookeeper_group`), not in
buckets, and let go of everything whenever something changes. While it is in doubt whether a partition is
still this process's, nothing is fetched or sent (`certainty`), and positions are not stored, but for those
that partitions begin at which are claimed anew. Owned by the copier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from broker.client.group_offsets import OffsetAndMetadata
from broker.client.zookeeper_group import ZooKeeperMember
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.clock import Clock
from broker.coordination.protocol import Coordination
from broker.errors import CoordinationError
from broker.types import TopicPartition
from mirrormaker.flow.membership import PartitionOwner, Points


class ZooKeeperMembership:
    """See the module; a `SourceMembership`. The session is the caller's."""

    def __init__(
        self,
        coordination: Coordination,
        group_id: str,
        topics: frozenset[str],
        owner: PartitionOwner,
        clock: Clock,
    ) -> None:
        self.assignment_user_data: bytes | None = None
        """Nobody hands out partitions here who could tell anything."""
        self.is_in_doubt = False
        self.problem: str | None = None
        """The session is the caller's, who tells of it."""
        self._coordination = coordination
        self._group_id = group_id
        self._topics = topics
        self._owner = owner
        self._clock = clock
        self._member: ZooKeeperMember | None = None
        self._held: frozenset[TopicPartition] = frozenset()
        self._claimed: frozenset[TopicPartition] = frozenset()
        """Owned in ZooKeeper; held as soon as it is known where they start."""
        self._points: Points = {}
        """Where what is claimed starts."""
        self._closing = False
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What this process owns."""
        return self._held

    @property
    def generation(self) -> int:
        """There are no generations: 0 while it takes part."""
        return 0 if self._member is not None else -1

    async def run(self) -> None:
        """Be a member until `close`. Raises BrokerError."""
        if self._closing:
            return
        self._ended.clear()
        self._member = ZooKeeperMember(
            self._coordination,
            self._group_id,
            ZooKeeperGroupSettings(),
            subscription=_streams(self._topics),
            listener=self,
            clock=self._clock,
        )
        try:
            await self._member.run()
        finally:
            self._member = None
            self._ended.set()

    async def close(self, *, for_good: bool = False) -> None:
        """Leave; others get the partitions at once, `for_good` or not."""
        self._closing = True
        if self._member is not None:
            await self._member.close()
        await self._ended.wait()

    def subscribe(self, subscription: frozenset[str]) -> None:
        """Take part in these topics."""
        self._topics = subscription
        if self._member is not None:
            self._member.subscribe(_streams(subscription))

    def look_every(self, interval_ms: int) -> None:
        """Changes are told by watches: nobody looks."""

    def request_rejoin(self) -> None:
        """Shares are what the number of members makes them: there is nothing to share out anew."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions of what is surely this process's: what is claimed anew after a doubt is looked at
        first. Raises CoordinationError.
        """
        member = self._member
        if member is None or (self.is_in_doubt and not await self._has_claimed(member, offsets.keys())):
            raise CoordinationError(f"group {self._group_id}: not certain whose the partitions are")
        await member.registry.commit(
            {
                partition: position.offset
                for partition, position in offsets.items()
                if partition in self._held or partition in self._claimed
            }
        )

    async def _has_claimed(self, member: ZooKeeperMember, partitions: Collection[TopicPartition]) -> bool:
        return self._claimed.issuperset(partitions) and await member.registry.owns(partitions)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored. Raises CoordinationError."""
        if self._member is None:
            raise CoordinationError(f"group {self._group_id}: not a member at the moment")
        found = await self._member.registry.committed(partitions)
        return {partition: OffsetAndMetadata(offset=offset) for partition, offset in found.items()}

    # ---- told by the member (`ShareListener`)

    async def claimed(self, share: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Find out where to start."""
        self._claimed = frozenset(share)
        self._points = await self._owner.prepare(share.keys())
        return {}

    def assigned(self, share: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        """Copy these."""
        self._held, self._claimed = frozenset(share), frozenset()
        self._owner.begin(share.keys(), self._points)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish what is in flight, and store positions."""
        await self._owner.give_up(partitions)
        self._held -= frozenset(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Stop at once."""
        self._held -= frozenset(partitions)
        self._owner.lose(partitions)

    def doubted(self) -> None:
        """Hold everything back."""
        self.is_in_doubt = True

    def assured(self) -> None:
        """Go on, among as many as there are now."""
        if self._member is not None:
            self._owner.count(self._member.members)
        if self.is_in_doubt:
            self.is_in_doubt = False
            self._owner.look_again()


def _streams(topics: frozenset[str]) -> dict[str, int]:
    return dict.fromkeys(topics, 1)
