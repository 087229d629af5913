"""Partitions that are not well, and how far each of their replicas is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from broker.client.metadata import PartitionMetadata
from broker.client.move_admin import MoveAdmin
from broker.client.offsets import replica_ends
from broker.client.reassignment_admin import OngoingReassignment
from broker.errors import ProtocolError
from broker.types import TopicPartition

_MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """Where the log of one replica ends, and how many offsets behind the leader's; None while its node does
    not tell.
    """

    broker: int
    in_sync: bool
    end: int | None
    lag: int | None


class PartitionAdmin(MoveAdmin):
    """Operations on topics and their replicas, and what there is to know of partitions."""

    async def find_partitions(
        self,
        names: Collection[str] | None = None,
        *,
        under_replicated: bool = False,
        unavailable: bool = False,
        under_min_isr: bool = False,
        at_min_isr: bool = False,
    ) -> dict[TopicPartition, PartitionMetadata]:
        """The partitions of these topics, or of all but the cluster's own: those that have replicas out of
        sync (beside those that a move adds), have no live leader, have fewer in sync than
        `min.insync.replicas`, or just as many; those for whom all holds that is asked (one of the two last).

        Raises ProtocolError for a topic that is not there.
        """
        described = await self.describe_topics(await self.list_topics() if names is None else names)
        found = {
            TopicPartition(name, number): partition
            for name, topic in described.items()
            for number, partition in sorted(topic.partitions.items())
        }
        if under_replicated:
            moves = await self.visible_reassignments()
            found = {tp: each for tp, each in found.items() if _is_under_replicated(each, moves.get(tp))}
        if unavailable:
            live = self._cluster.metadata.nodes.keys()
            found = {tp: each for tp, each in found.items() if each.leader not in live}
        if under_min_isr or at_min_isr:
            needed = await self._min_isr({tp.topic for tp in found})
            found = {
                tp: each
                for tp, each in found.items()
                if (under_min_isr and len(each.isr) < needed[tp.topic])
                or (at_min_isr and len(each.isr) == needed[tp.topic])
            }
        return found

    async def replica_progress(
        self, partitions: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, list[ReplicaProgress]]:
        """How far each replica of partitions is that `find_partitions` found."""
        ends = await replica_ends(self._cluster, {tp: each.replicas for tp, each in partitions.items()})
        return {tp: _progress(each, _ends_of(tp, each, ends)) for tp, each in partitions.items()}

    async def visible_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """The moves under way; none where the cluster does not tell, being older or not letting everybody
        see.
        """
        try:
            return await self.reassignments()
        except ProtocolError:
            return {}

    async def _min_isr(self, topics: Iterable[str]) -> dict[str, int]:
        """How many replicas each topic wants in sync."""
        settings = {topic: await self.describe_topic_configs(topic, [_MIN_ISR]) for topic in sorted(topics)}
        return {topic: int(entries[_MIN_ISR].value or 1) for topic, entries in settings.items()}


def _is_under_replicated(partition: PartitionMetadata, move: OngoingReassignment | None) -> bool:
    """Whether any is out of sync of those that were to have it before a move began."""
    adding = move.adding if move is not None else ()
    return bool(set(partition.replicas) - set(partition.isr) - set(adding))


def _ends_of(
    tp: TopicPartition, partition: PartitionMetadata, ends: Mapping[tuple[TopicPartition, int], int]
) -> dict[int, int]:
    return {broker: ends[tp, broker] for broker in partition.replicas if (tp, broker) in ends}


def _progress(partition: PartitionMetadata, ends: Mapping[int, int]) -> list[ReplicaProgress]:
    furthest = ends.get(partition.leader, max(ends.values(), default=0))
    return [
        ReplicaProgress(
            broker=broker,
            in_sync=broker in partition.isr,
            end=ends.get(broker),
            lag=max(furthest - ends[broker], 0) if broker in ends else None,
        )
        for broker in partition.replicas
    ]
