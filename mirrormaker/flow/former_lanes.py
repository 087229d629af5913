"""Where records went while a topic of the destination had another number of partitions, or the route spread
them by another policy. Pure.

Records of one source partition that are spread over the partitions of a topic do not come equally far in all
of them. When that topic grows, or the policy becomes another, each record has another place; which are there
already still goes by the place that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from mirrormaker.topology.model import PartitionPolicy


class FormerLanes(NamedTuple):
    """How far the records of one source partition had come in each partition of a topic."""

    topic: str
    positions: tuple[int, ...]
    """Source offsets, by partition of the topic."""
    spread: PartitionPolicy
    """How they were shared out over these."""

    @property
    def end(self) -> int:
        """From this source offset on nothing is there."""
        return max(self.positions)

    def up_to(self, offset: int) -> FormerLanes:
        """What is there of the source offsets before this."""
        return self._replace(positions=tuple(min(each, offset) for each in self.positions))
