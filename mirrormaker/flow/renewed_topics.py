"""Topics of the destination that were made anew under their names, with other partitions, while a route
copies to them: whether it may go on there is looked into before anything is sent.

Records that came first would stay in a topic that the route is not to write, and be missing in the one that
takes its place. Metadata tells, which is asked for once nothing is known to be there any more. Owned by the
event loop of the route's copier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId

LOOKS = 2
"""The first to end may have begun before."""

_log = logger("renewed_topics")


class _Shape(NamedTuple):
    topic_id: TopicId
    partitions: int

    def is_like(self, other: _Shape) -> bool:
        """Whether it is the same topic, as far as the cluster tells, or one of the same shape."""
        is_other = NO_TOPIC_ID not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id
        return not is_other or self.partitions == other.partitions


class RenewedTopics:
    """Of one copier. `look_soon`: has what the route copies decided about anew."""

    def __init__(self, destination: Cluster, look_soon: Callable[[], None]) -> None:
        self._destination = destination
        self._look_soon = look_soon
        self._known: dict[str, _Shape] = {}
        self._looks: dict[str, int] = {}
        """Topics that nothing is sent to, with the looks that have to end before."""

    def find_held(self, topics: Collection[str]) -> frozenset[str]:
        """Those that nothing is to be sent to for now, by what metadata says of all that are written."""
        for known in (self._known, self._looks):
            for topic in known.keys() - set(topics):
                del known[topic]
        for topic in topics:
            shape = self._shape(topic)
            if shape is None:
                continue
            was = self._known.setdefault(topic, shape)
            if was.is_like(shape):
                self._known[topic] = shape
                self._looks.pop(topic, None)
            elif topic not in self._looks:
                _log.info("topic_made_anew", topic=topic, before=was.partitions, now=shape.partitions)
                self._looks[topic] = LOOKS
                self._look_soon()
        return frozenset(self._looks)

    def looked(self) -> None:
        """A look has ended; what is still written may be."""
        if not self._looks:
            return
        self._looks = {topic: left - 1 for topic, left in self._looks.items()}
        for topic in [topic for topic, left in self._looks.items() if not left]:
            del self._looks[topic], self._known[topic]
        if self._looks:
            self._look_soon()

    def _shape(self, topic: str) -> _Shape | None:
        known, partitions = self._destination.topics.get(topic), self._destination.partitions(topic)
        return _Shape(known.topic_id, len(partitions)) if known is not None and partitions else None
