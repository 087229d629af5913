"""Where a group keeps how far it has read: in ZooKeeper, at its coordinator, or in both while it moves from
one to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.errors import BrokerError
from broker.types import TopicPartition


class GroupPositions(Protocol):
    """Offsets of the next record to be read, by partition."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep these. Raises BrokerError when not all of them certainly are kept."""
        ...

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What is kept; partitions without are left out. Raises BrokerError."""
        ...


class CoordinatorPositions:
    """Kept by the coordinator, for a group that has no members there: it refuses the commits of outsiders as
    soon as there is one.
    """

    def __init__(self, cluster: Cluster, group_id: str, *, timeout_ms: float = 30_000) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._timeout_ms = timeout_ms

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        noted = {partition: OffsetAndMetadata(offset=offset) for partition, offset in offsets.items()}
        await commit_offsets(self._cluster, self._group_id, noted, timeout_ms=self._timeout_ms)

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await fetch_offsets(self._cluster, self._group_id, partitions, timeout_ms=self._timeout_ms)
        return {partition: position.offset for partition, position in found.items()}


class DualPositions:
    """Kept in two places, so that either can be given up: what is committed goes to both, and the larger
    offset counts, as with Kafka's `dual.commit.enabled`.

    One write may succeed where the other fails. Then `commit` fails, and the two differ until the next one.
    For a group that went back in between (rewind) the larger of them is the older: it counts again after a
    restart at that very moment.
    """

    def __init__(self, first: GroupPositions, second: GroupPositions) -> None:
        self._both = first, second

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        failures: list[BrokerError] = []
        for positions in self._both:
            try:
                await positions.commit(offsets)
            except BrokerError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        first, second = [await positions.committed(partitions) for positions in self._both]
        return {
            partition: max(found[partition] for found in (first, second) if partition in found)
            for partition in partitions
            if partition in first or partition in second
        }
