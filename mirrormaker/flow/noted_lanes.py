"""Where lanes stand that are not equally far, as the group is told it beside the position: a process that
ends well, under whatever delivery, leaves nothing to be sent twice. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.types import TopicPartition
from mirrormaker.flow.delivery import Kept
from mirrormaker.flow.lane_note import uneven_note
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.positions import Place
from mirrormaker.flow.progress import acknowledged
from mirrormaker.flow.transaction_steps import LanePositions


class NotedLanes:
    """Of the partitions of one copier that have several lanes."""

    def __init__(self) -> None:
        self._noted: dict[TopicPartition, LanePositions] = {}

    def begin(self, partition: Partition) -> None:
        """It is copied from where its lanes are, as the group says."""
        if len(partition.lanes) > 1:
            self._noted[partition.source] = acknowledged(partition)

    def end(self, sources: Iterable[TopicPartition]) -> None:
        """These are copied no more."""
        for source in sources:
            self._noted.pop(source, None)

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        """These have been stored."""
        self._noted |= {source: each.lanes for source, each in kept.items() if source in self._noted}

    def moved(
        self,
        partitions: Mapping[TopicPartition, Partition],
        lanes_of: Callable[[Partition], LanePositions | None],
    ) -> dict[TopicPartition, int]:
        """Positions to be stored once more, as lanes are further: `lanes_of` says where, None where nothing
        is to be said. What a partition that stands has read may be of another topic.
        """
        found: dict[TopicPartition, int] = {}
        for source, noted in self._noted.items():
            partition = partitions.get(source)
            if partition is None or partition.trouble is not None:
                continue
            lanes = lanes_of(partition)
            if lanes is not None and lanes != noted:
                found[source] = min(lanes)
        return found


def kept_at(partition: Partition, lanes: LanePositions) -> Kept:
    """What is stored where lanes have everything before these positions, and nothing from there on."""
    destinations = tuple(lane.destination for lane in partition.lanes)
    place = Place(lanes, destinations=destinations, former=partition.former, spread=partition.spread)
    return Kept(min(lanes), uneven_note(place), lanes)
