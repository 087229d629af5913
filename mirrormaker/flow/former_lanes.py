"""Where records went while a topic of the destination had another number of partitions. Pure.

Records of one source partition that are spread over the partitions of a topic do not come equally far in all
of them. When that topic grows, each record has another place; which are there already still goes by the
place that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.records.record import Record
from mirrormaker.flow.ways import choose_lane
from mirrormaker.topology.model import PartitionPolicy


class FormerLanes(NamedTuple):
    """How far the records of one source partition had come in each partition of a topic."""

    topic: str
    positions: tuple[int, ...]
    """Source offsets, by partition of the topic."""

    @property
    def end(self) -> int:
        """From this source offset on nothing is there."""
        return max(self.positions)

    def have(self, policy: PartitionPolicy, record: Record) -> bool:
        """Whether the record is there."""
        positions = self.positions
        return record.offset < self.end and record.offset < positions[self._lane_of(policy, record)]

    def _lane_of(self, policy: PartitionPolicy, record: Record) -> int:
        return choose_lane(policy, range(len(self.positions)), record)
