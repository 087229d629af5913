"""Membership of a coordinator's group whose partitions go to the streams of one process.

The group is one of members: it hands out partitions to processes, and each spreads what it got of a topic
over its streams for it, in runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from broker.client.cluster import Cluster
from broker.client.group import GroupMember
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import GroupSettings
from broker.client.metadata import ClusterMetadata
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_assignment import spread
from broker.client.zookeeper_group import PatternStreams, ShareListener, StreamCounts
from broker.types import TopicPartition


class CoordinatedStreams:
    """One member, for several streams; as `GroupMember` otherwise. Its positions are kept by the
    coordinator.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        subscription: StreamCounts | PatternStreams,
        listener: ShareListener,
    ) -> None:
        self._subscription = subscription
        self._listener = listener
        self._member = GroupMember(
            cluster,
            settings,
            subscription=subscription.keys() if isinstance(subscription, Mapping) else self._matching,
            on_assigned=self._assigned,
            on_revoked=listener.revoked,
            on_lost=self._lost,
        )

    async def run(self) -> None:
        """Be a member until `close`. Raises as `GroupMember.run`."""
        await self._member.run()

    async def close(self) -> None:
        """Give up the partitions, leave the group, and return when `run` has ended."""
        await self._member.close()

    async def settled(self) -> None:
        """Return when this member has a share, or `run` has ended."""
        await self._member.settled()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep these offsets on behalf of this member. Raises as `GroupMember.commit`."""
        await self._member.commit(
            {partition: OffsetAndMetadata(offset=offset) for partition, offset in offsets.items()}
        )

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What the group keeps; partitions without are left out. Raises as `fetch_offsets`."""
        found = await self._member.committed(partitions)
        return {partition: position.offset for partition, position in found.items()}

    async def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        share = self._spread(partitions)
        positions = await self._listener.claimed(share)
        self._listener.assigned(share, positions)
        self._listener.assured()

    async def _lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._listener.lost(partitions)

    def _spread(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition in sorted(partitions):
            by_topic[partition.topic].append(partition)
        return {
            partition: stream
            for topic, listed in by_topic.items()
            for stream, run in enumerate(spread(listed, self._streams_of(topic)))
            for partition in run
        }

    def _streams_of(self, topic: str) -> int:
        subscription = self._subscription
        return subscription[topic] if isinstance(subscription, Mapping) else subscription[1]

    def _matching(self, metadata: ClusterMetadata) -> Collection[str]:
        assert not isinstance(self._subscription, Mapping)
        pattern: TopicPattern = self._subscription[0]
        return [topic.name for topic in metadata.topics.values() if pattern.matches(topic.name)]
