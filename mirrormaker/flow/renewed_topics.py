"""Topics of the destination that were made anew under their names, with other partitions, while a route
copies to them: whether it may go on there is looked into before anything is sent.

Records that came first would stay in a topic that the route is not to write, and be missing in the one that
takes its place. Metadata tells, which is asked for once nothing is known to be there any more. Owned by the
event loop of the route's copier.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.flow.topic_looks import TopicLooks

_log = logger("renewed_topics")


class _Shape(NamedTuple):
    topic_id: TopicId
    partitions: int

    def is_like(self, other: _Shape) -> bool:
        """Whether it is the same topic, as far as the cluster tells, or one of the same shape."""
        is_other = NO_TOPIC_ID not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id
        return not is_other or self.partitions == other.partitions


class RenewedTopics:
    """Of one copier; what is still written after a look may be."""

    def __init__(self, destination: Cluster, looks: TopicLooks) -> None:
        self._destination = destination
        self._looks = looks
        self._known: dict[str, _Shape] = {}
        self._held: dict[str, int] = {}
        """Topics that nothing is sent to, with the look that has to end before."""

    def find_held(self, topics: Collection[str]) -> frozenset[str]:
        """Those that nothing is to be sent to for now, by what metadata says of all that are written."""
        for topic in self._known.keys() - set(topics):
            self._forget(topic)
        for topic in [topic for topic, look in self._held.items() if self._looks.has_ended(look)]:
            self._forget(topic)
        for topic in topics:
            shape = self._shape(topic)
            if shape is None:
                continue
            was = self._known.setdefault(topic, shape)
            if was.is_like(shape):
                self._known[topic] = shape
                self._held.pop(topic, None)
            elif topic not in self._held:
                _log.info("topic_made_anew", topic=topic, before=was.partitions, now=shape.partitions)
                self._held[topic] = self._looks.ask()
        return frozenset(self._held)

    def _forget(self, topic: str) -> None:
        del self._known[topic]
        self._held.pop(topic, None)

    def _shape(self, topic: str) -> _Shape | None:
        known, partitions = self._destination.topics.get(topic), self._destination.partitions(topic)
        return _Shape(known.topic_id, len(partitions)) if known is not None and partitions else None
