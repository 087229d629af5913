"""Topics of the source that took the place of others of their name.

Positions stored in the group name their topic (see `group_positions`), but clusters forget the positions of
what is deleted: so the ids that topics had are remembered here, and the halts say which were deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.arbiter import Arbiter, Halts
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.trouble import WHOLE_TOPIC, SourceRange, TroubleKind, recreated


class Successors:
    """Of one copier."""

    def __init__(self, source: Cluster, halts: Halts, arbiter: Arbiter) -> None:
        self._source = source
        self._halts = halts
        self._arbiter = arbiter
        self._topic_ids: dict[str, TopicId] = {}
        self._found: set[TopicPartition] = set()
        """Partitions to be started that are of such topics."""
        self._missed: set[TopicPartition] = set()
        """Those of topics that were taken for deleted: what is stored of them may tell that they were not."""

    def notice(self, partitions: Collection[TopicPartition]) -> None:
        """These are taken over: look which are of other topics than before."""
        for topic in {source.topic for source in partitions}:
            topic_id = self._topic_id(topic)
            before = self._topic_ids.get(topic, NO_TOPIC_ID)
            is_told = NO_TOPIC_ID not in (before, topic_id)
            sources = {source for source in partitions if source.topic == topic}
            if is_told and before != topic_id:
                self._found |= sources
            if is_told and before == topic_id:
                self._missed -= sources
            elif self._was_deleted(topic):
                self._missed |= sources
            if topic_id != NO_TOPIC_ID:
                self._topic_ids[topic] = topic_id

    def _was_deleted(self, topic: str) -> bool:
        stood = self._halts.standing(TopicPartition(topic, WHOLE_TOPIC))
        return stood is not None and stood.kind is TroubleKind.TOPIC_DELETED

    def is_other(self, source: TopicPartition, point: StartingPoint) -> bool:
        """Whether one that is to be started is of another topic than before."""
        is_another = source in self._missed and not point.names_topic
        return is_another or source in self._found or point.former_position is not None

    def is_told(self, source: TopicPartition, point: StartingPoint) -> bool:
        """Whether that is told of it, or was and it stands: what the former was says nothing of it."""
        stood = self._halts.standing(source)
        stands = stood is not None and stood.kind is TroubleKind.TOPIC_RECREATED
        return stands or self.is_other(source, point)

    def begin(self, points: Mapping[TopicPartition, StartingPoint]) -> None:
        """Copying of these begins; tell of those that are others than before."""
        for source, point in points.items():
            start, is_other = min(point.lanes), self.is_other(source, point)
            former = start if point.former_position is None else point.former_position
            self._found.discard(source)
            self._missed.discard(source)
            if is_other:
                found = SourceRange(start=start, end=start)
                self._arbiter.meet(recreated(source, former, found, self._topic_id(source.topic)))

    def _topic_id(self, topic: str) -> TopicId:
        known = self._source.topics.get(topic)
        return known.topic_id if known is not None else NO_TOPIC_ID
