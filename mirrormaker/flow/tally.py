"""Where a machine counts what becomes of records. Pure."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.flow.facts import FlowCounts
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC


class Tally:
    """`counts` are those of the route; heartbeats are nobody's records."""

    def __init__(self) -> None:
        self.counts = FlowCounts()
        self._heartbeats = FlowCounts()

    def of(self, source: TopicPartition) -> FlowCounts:
        """Where records of this partition are counted."""
        return self.counts if source.topic != HEARTBEATS_TOPIC else self._heartbeats
