"""What the transit of a route needs of its destination: partitions counted, the topic for notes made, and how
large a batch each topic takes. Owned by the event loop of the route's copier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from broker.client.cluster import Cluster
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.batch_limits import BatchLimits, SplittingRemedies
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage
from mirrormaker.flow.hooks import Remedies
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.position_note import Led
from mirrormaker.flow.side_topics import make_skipped_topic, read_batch_sizes_max
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.transit import RouteTransit
from mirrormaker.topology.model import RouteSpec

LIMITS_AGE_MS = 30_000
"""How often the destination is asked how large a batch its topics take."""
LIMITS_AGE_WHILE_STANDING_MS = 3_000
"""The same while a partition stands in front of something."""


class Crossing:
    """See the module."""

    def __init__(
        self, route: RouteSpec, destination: Cluster, heartbeats: HeartbeatPassage | None = None
    ) -> None:
        self._route = route
        self._destination = destination
        self._limits_due = Signal()
        self._limits = BatchLimits(self._limits_due.set)
        self._all_due = 0.0
        """When all topics are to be looked at again, in seconds of the event loop."""
        self.transit = RouteTransit(route, self._limits, heartbeats)
        self._log = logger("crossing").bind(route=route.name)

    def remedies(self, others: Remedies) -> Remedies:
        """`others`, and splitting what is too large."""
        return SplittingRemedies(self._limits, others)

    def assignment(self, source: TopicPartition) -> Assignment:
        """Where the partition leads; its positions are not known yet. `make_ready` its topic first."""
        ways = self.transit.ways(source.topic)
        lanes = ways.lanes(source.partition, self._partition_count)
        return Assignment(
            source=source,
            destinations=lanes.destinations,
            bucket=bucket_of(source, self._route.buckets),
            position=0,
            is_merged=lanes.is_merged,
            spread=ways.policy,
        )

    def led(self, topic: str) -> Led:
        """Where copies of a topic go."""
        ways = self.transit.ways(topic)
        return Led(ways.main, self._destination.cluster_id, ways.policy)

    def outgrown(self, partitions: Iterable[Partition]) -> frozenset[TopicPartition]:
        """Those that lead to other destinations by now than when they were assigned: records are spread over
        topics of which the partitions have become more.
        """
        return frozenset(
            partition.source
            for partition in partitions
            if self.transit.ways(partition.source.topic).spread_topics()
            and len(self.assignment(partition.source).destinations) != len(partition.lanes)
        )

    async def make_ready(self, topics: Collection[str]) -> None:
        """See that the destination has what the ways of these source topics need. Raises BrokerError."""
        ways = [self.transit.ways(topic) for topic in topics]
        if any(each.notes for each in ways):
            await make_skipped_topic(self._destination)
        spread = {topic for each in ways for topic in each.spread_topics()}
        if spread:
            await self._destination.ensure(spread)
        self._limits_due.set()

    async def follow_limits(self, machine: FlowMachine, on_larger: Callable[[], None]) -> None:
        """Learn how large a batch the destination's topics take, until cancelled; those of the machine's
        partitions. `on_larger`: it may go on where something was too large, or refused for another reason.
        """
        partitions = machine.partitions
        while True:
            await self._wait_for_age(partitions)
            if self._limits.puzzles:
                await asyncio.sleep(LIMITS_AGE_WHILE_STANDING_MS / 1000)
            for topic in await self._look(partitions):
                machine.takes_larger(topic)
                on_larger()

    async def _look(self, partitions: Mapping[TopicPartition, Partition]) -> list[str]:
        """At topics that have refused something, or at all of them when these were looked at long ago.
        Returns those for which what waits is to be tried again.
        """
        sources = {source.topic for source in partitions}
        topics = {topic for source in sources for topic in self.transit.ways(source).topics}
        self._limits.keep(topics)
        now = asyncio.get_running_loop().time()
        if not self._limits.suspects or now >= self._all_due:
            self._all_due = now + LIMITS_AGE_MS / 1000
            self._limits.doubt()
        else:
            topics = set(self._limits.suspects)
        try:
            found = await read_batch_sizes_max(self._destination, topics)
        except BrokerError as error:
            self._log.info("batch_limits_not_read", topics=len(topics), error=str(error))
            return []
        return [topic for topic, size_max in found.items() if self._configure(topic, size_max)]

    def _configure(self, topic: str, size_max: int | None) -> bool:
        was_closed = self._limits.is_closed(topic)
        is_due = self._limits.configure(topic, size_max)
        if self._limits.is_closed(topic) != was_closed:
            self._log.info("topic_opened" if was_closed else "topic_closed_by_switch", topic=topic)
        return is_due

    async def _wait_for_age(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """Until somebody asks, or the limits are old; a partition may come to stand meanwhile."""
        for _ in range(LIMITS_AGE_MS // LIMITS_AGE_WHILE_STANDING_MS):
            is_due = await self._limits_due.wait(LIMITS_AGE_WHILE_STANDING_MS)
            if is_due or any(partition.stands_for_size for partition in partitions.values()):
                return

    def _partition_count(self, topic: str) -> int:
        return len(self._destination.partitions(topic))
