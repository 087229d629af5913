"""The topics of a cluster that a test decides on."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from broker.groups.consumer_groups.topics import Topic, Topics
from broker.types import TopicId


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


class FixedTopics:
    """Implements the TopicDirectory port; ids count up in the order in which topics come."""

    def __init__(self, partition_counts: Mapping[str, int] | None = None) -> None:
        self._topics: dict[str, Topic] = {}
        self._last = 0
        self._current = Topics()
        for name, count in (partition_counts or {}).items():
            self.put(name, count)

    def put(self, name: str, partition_count: int) -> None:
        """A topic comes, or grows."""
        before = self._topics.get(name)
        if before is None:
            self._last += 1
        given = topic_id(self._last) if before is None else before.topic_id
        self._topics[name] = Topic(name=name, topic_id=given, partition_count=partition_count)
        self._current = Topics(self._topics.values())

    def remove(self, name: str) -> None:
        """A topic is deleted."""
        del self._topics[name]
        self._current = Topics(self._topics.values())

    def current(self) -> Topics:
        return self._current
