"""Which partitions are behind, so that what comes next of them are old records. Pure.

A partition is behind when the first record that its destination lacks has been known of for longer than
the route's objective allows. What a process found at the source as it began it has not known of for long:
then a partition of which more is left at the source than it has fetched is behind if the records that it
copies are that old by their own timestamps. Of records that were seen coming timestamps say nothing, as last
year's may arrive just now.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.types import TopicPartition
from mirrormaker.flow.lag import EndHistory
from mirrormaker.flow.partition import Partition
from mirrormaker.topology.model import Objectives


class OldRecords:
    """The rule for one route; `histories` are those of its reader."""

    def __init__(self, histories: Mapping[TopicPartition, EndHistory]) -> None:
        self.lag_ms = Objectives().old_after_ms
        self.wall_shift_ms = 0
        """From the clock that never goes back to that of timestamps."""
        self._histories = histories

    def is_behind(self, partition: Partition, now_ms: int) -> bool:
        """Whether what comes next of it are old records."""
        acknowledged = partition.acknowledged
        if partition.source_end <= acknowledged:
            return False
        history = self._histories.get(partition.source)
        if history is not None:
            since_ms = history.known_since_ms(acknowledged)
            if since_ms is not None and now_ms - since_ms > self.lag_ms:
                return True
            if history.absent_until_ms(acknowledged) is not None:
                return False  # it was seen coming
        age_ms = now_ms + self.wall_shift_ms - partition.last_timestamp
        return (
            partition.source_end > partition.position
            and partition.last_timestamp >= 0
            and age_ms > self.lag_ms
        )
