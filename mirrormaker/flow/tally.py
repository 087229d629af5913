"""Where a machine counts what becomes of records. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.types import TopicPartition
from mirrormaker.flow.facts import FlowCounts
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.left_out import LeftOutOffsets
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.trouble import TroubleKind


class Tally:
    """`counts` are those of the route; heartbeats are nobody's records."""

    def __init__(self) -> None:
        self.counts = FlowCounts()
        self._heartbeats = FlowCounts()
        self._left_out = LeftOutOffsets()

    def of(self, source: TopicPartition) -> FlowCounts:
        """Where records of this partition are counted."""
        return self.counts if source.topic != HEARTBEATS_TOPIC else self._heartbeats

    def leave_out(self, partition: Partition, found: Mapping[int, TroubleKind]) -> Counter[TroubleKind]:
        """Count what is noted or parked, by source offset; what was not counted before, by kind."""
        new = self._left_out.count(partition, found)
        self.of(partition.source).left_out.update(new)
        return new

    def forget_offsets(self, source: TopicPartition, start: int) -> None:
        """Offsets of the source from `start` on mean other records now."""
        self._left_out.forget(source, start)
