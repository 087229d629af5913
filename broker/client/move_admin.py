"""Moves of replicas from beginning to end: as fast as they may, until they are done."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from broker.client.config_admin import ConfigAdmin
from broker.client.metadata import TopicMetadata
from broker.client.reassignment_admin import ReassignmentAdmin
from broker.client.topic_admin import TopicAdmin
from broker.errors import ProtocolError
from broker.types import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class MoveAdmin(ReassignmentAdmin, TopicAdmin, ConfigAdmin):
    """Operations on topics, their settings and their replicas, and moves that are waited for."""

    async def move(
        self,
        targets: Mapping[TopicPartition, Sequence[int]],
        *,
        bytes_per_second: int | None = None,
        poll_ms: float = 500,
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Move partitions to these replicas, as `reassign`, and return once every move that began has ended;
        whether there are some left is asked every `poll_ms`.

        Each broker copies at most `bytes_per_second` for it until then; that is taken back at the end, also
        of a call that is cancelled. Raises ProtocolError.
        """
        async with self._throttled(targets, bytes_per_second):
            results = await self.reassign(targets)
            await self.await_moves([tp for tp, error in results.items() if error is None], poll_ms=poll_ms)
        return results

    async def await_moves(self, partitions: Collection[TopicPartition], *, poll_ms: float = 500) -> None:
        """Return once none of these partitions is being moved. Raises ProtocolError."""
        wanted = set(partitions)
        while True:
            if wanted.isdisjoint(await self.reassignments()):
                return
            await asyncio.sleep(poll_ms / 1000)

    @asynccontextmanager
    async def _throttled(
        self, targets: Mapping[TopicPartition, Sequence[int]], bytes_per_second: int | None
    ) -> AsyncIterator[None]:
        """Have what moves copied no faster, until the end."""
        if bytes_per_second is None or not targets:
            yield
            return
        rates = dict.fromkeys(_RATES, str(bytes_per_second))
        replicas = _throttled_replicas(targets, await self.describe_topics({tp.topic for tp in targets}))
        nodes = sorted(self._cluster.metadata.nodes)
        try:
            for topic, settings in replicas.items():
                await self.alter_topic_configs(topic, settings)
            for node in nodes:
                await self.alter_broker_configs(node, rates)
            yield
        finally:
            for node in nodes:
                await self.alter_broker_configs(node, dict.fromkeys(_RATES))
            for topic in replicas:
                await self.alter_topic_configs(topic, dict.fromkeys((_LEADERS, _FOLLOWERS)))


def _throttled_replicas(
    targets: Mapping[TopicPartition, Sequence[int]], topics: Mapping[str, TopicMetadata]
) -> dict[str, dict[str, str]]:
    """By topic: replicas that are copied from, and those that are copied to, as `partition:broker`."""
    leaders, followers = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for tp, wanted in targets.items():
        had = topics[tp.topic].partitions[tp.partition].replicas
        leaders[tp.topic] += [f"{tp.partition}:{broker}" for broker in had]
        followers[tp.topic] += [f"{tp.partition}:{broker}" for broker in wanted if broker not in had]
    return {
        topic: {_LEADERS: ",".join(leaders[topic]), _FOLLOWERS: ",".join(followers[topic])}
        for topic in leaders
    }
