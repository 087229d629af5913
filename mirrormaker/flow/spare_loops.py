"""Which partition is read by the fetch loops that have none of their own. Pure.

A far broker is asked by several loops at a time; where it leads fewer partitions than that, each has a loop,
and the others help with the one that asks for most at a time: its answers have been full (see
`fetch_planning`). One that has next to nothing, as that of the heartbeats, needs no help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.types import TopicPartition
from mirrormaker.flow.partition import Partition

MORE = 2
"""Another partition is helped once it asks for so many times as much."""


class SpareLoops:
    """Of one reader."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """`partitions` as they are at any time."""
        self.read: dict[int, TopicPartition] = {}
        """What they read, by broker."""
        self._partitions = partitions
        self._few: Mapping[int, Sequence[TopicPartition]] = {}

    def spread(self, few: Mapping[int, Sequence[TopicPartition]]) -> None:
        """Brokers that lead fewer partitions than they have loops, at least one, lead these now."""
        self._few = few
        self.read = {node_id: self._choose(node_id, sources) for node_id, sources in few.items()}

    def move(self) -> bool:
        """Whether another partition would be chosen by now."""
        return any(
            self._choose(node_id, sources) != self.read[node_id] for node_id, sources in self._few.items()
        )

    def _choose(self, node_id: int, sources: Sequence[TopicPartition]) -> TopicPartition:
        busiest, former = max(sorted(sources), key=self._wanted), self.read.get(node_id)
        if (
            former is None
            or former not in sources
            or self._wanted(busiest) >= MORE * max(self._wanted(former), 1)
        ):
            return busiest
        return former

    def _wanted(self, source: TopicPartition) -> int:
        partition = self._partitions.get(source)
        return partition.fetch_bytes if partition is not None else 0
