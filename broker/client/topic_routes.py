"""What a partitioner needs to know of topics, kept as long as the metadata that it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.errors import ErrorCode, ProtocolError


class TopicRoute(NamedTuple):
    """One topic, as of some metadata."""

    topic: str
    metadata: ClusterMetadata
    partition_count: int
    available: Sequence[int]
    """The partitions with a leader, in the order of (leader, partition); all, when none has one."""

    def require(self, partition: int) -> None:
        """Raises ProtocolError when there is no such partition."""
        if not 0 <= partition < self.partition_count:
            message = f"{self.topic} has {self.partition_count} partitions and no partition {partition}"
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


class TopicRoutes:
    """The routes of all topics that were asked for."""

    def __init__(self, cluster: Cluster, *, timeout_ms: float) -> None:
        """`timeout_ms` bounds the search for a topic's metadata."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._routes: dict[str, TopicRoute] = {}

    def known(self, topic: str) -> TopicRoute | None:
        """The route as of the present metadata, if it was found before."""
        route = self._routes.get(topic)
        return route if route is not None and route.metadata is self._cluster.metadata else None

    async def find(self, topic: str) -> TopicRoute:
        """The route, for which the cluster may have to be asked, and may create the topic.

        Raises ProtocolError, RequestTimedOutError, ConnectionFailedError.
        """
        known = self._cluster.topics.get(topic)
        if known is None or not known.partitions:
            await self._cluster.ensure([topic], create=True, timeout_ms=self._timeout_ms)
        metadata = self._cluster.metadata
        partitions = metadata.topics[topic].partitions
        led = sorted(
            (partition.leader, number)
            for number, partition in partitions.items()
            if partition.leader in metadata.nodes
        )
        available = [number for _, number in led] or sorted(partitions)
        route = self._routes[topic] = TopicRoute(topic, metadata, len(partitions), available)
        return route
