"""At least once: what the destination has acknowledged counts. The group keeps the position, and beside it
where each lane is, so that only a crash has anything sent again. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.types import TopicPartition
from mirrormaker.flow.delivery import GroupDelivery, Kept, Say
from mirrormaker.flow.hooks import DeliveryAtOnce, KafkaRemedies
from mirrormaker.flow.noted_lanes import NotedLanes, kept_at
from mirrormaker.flow.progress import acknowledged
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.flow.withdrawal import Withdrawal


class AtLeastOnce(GroupDelivery):
    """See the module, and `DeliveryMode` for what its methods say. The machine goes by its own rules."""

    def __init__(self, withdrawal: Withdrawal | None = None) -> None:
        super().__init__(withdrawal)
        self.say = Say(delivery=DeliveryAtOnce(), remedies=KafkaRemedies())
        self._lanes = NotedLanes()

    def joined(self, sources: Collection[TopicPartition]) -> None:
        super().joined(sources)
        for source in sources:
            self._lanes.begin(self._machine.partitions[source])

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        self._lanes.end(sources)

    def keep(self, source: TopicPartition, position: int, reached: LanePositions) -> Kept | None:
        """As far as the ledger knows of; more may have arrived since."""
        partition = self._machine.partitions.get(source)
        if partition is None or len(reached) != len(partition.lanes):
            return Kept(position)
        return kept_at(partition, reached)

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        self._lanes.kept(kept)

    def unnoted(self) -> Mapping[TopicPartition, int]:
        return self._lanes.moved(self._machine.partitions, acknowledged)
