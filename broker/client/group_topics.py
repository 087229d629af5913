"""The topics that a member of a classic group subscribes to, and what the leader hands out of those of all
members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.client.assignors import Assignment, Assignor
from broker.client.cluster import Cluster
from broker.client.group_protocol import read_members
from broker.client.subscription import Subscription, SubscriptionPattern, TopicFilter
from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.join_group import JoinGroupResponse


class GroupTopics:
    """As one member knows them, from one generation to the next."""

    def __init__(self, cluster: Cluster, subscription: Subscription) -> None:
        """Raises ValueError as `SubscriptionPattern.chooser`."""
        self.chosen: frozenset[str] = frozenset()
        """Those that the member told the others when it joined last."""
        self._cluster = cluster
        self._subscription = _by_this_process(subscription)
        self._counts: Mapping[str, int] = {}
        """Partitions per topic as the leader handed them out."""

    def subscribe(self, subscription: Subscription) -> None:
        """From the next time on that it chooses. Raises ValueError as `SubscriptionPattern.chooser`."""
        self._subscription = _by_this_process(subscription)

    async def choose(self) -> frozenset[str]:
        """What to tell the others. Raises BrokerError."""
        self.chosen = await self._find(refresh=False)
        return self.chosen

    async def have_changed(self, *, is_leader: bool) -> bool:
        """Whether the metadata shows now that the member should join again. Raises BrokerError."""
        topics = await self._find(refresh=True)
        counts = {topic: len(self._cluster.partitions(topic)) for topic in self._counts}
        return topics != self.chosen or (is_leader and counts != self._counts)

    async def hand_out(
        self, joined: JoinGroupResponse, assignors: Mapping[str, Assignor]
    ) -> Mapping[str, Assignment]:
        """The leader's part: the partitions of every topic that is wanted and exists. Raises BrokerError."""
        assignor = assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group chose {joined.protocol_name}, never offered",
            )
        members = read_members(joined.members)
        topics = {topic for member in members.values() for topic in member.topics}
        metadata = await self._cluster.refresh(topics)
        self._counts = {topic: len(metadata.partitions(topic)) for topic in topics}
        if joined.skip_assignment:  # a static leader that came back: the assignment stands (KIP-814)
            return {}
        return assignor.assign(members, {topic: count for topic, count in self._counts.items() if count})

    async def _find(self, *, refresh: bool) -> frozenset[str]:
        if callable(self._subscription):
            return frozenset(self._subscription(await self._cluster.refresh()))
        if refresh:
            await self._cluster.refresh({*self._subscription, *self._counts})
        return frozenset(self._subscription)


def _by_this_process(subscription: Subscription) -> Collection[str] | TopicFilter:
    """In groups of this protocol nobody else resolves expressions."""
    return subscription.chooser() if isinstance(subscription, SubscriptionPattern) else subscription
