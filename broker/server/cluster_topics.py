"""The topics of the cluster image as group coordinators see them."""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.image import TopicImage
from broker.groups.consumer_groups.topics import Topic, Topics
from broker.server.cluster_view import ClusterView


class ClusterTopics:
    """Implements the coordinator's TopicDirectory.

    Most changes of the image are of leaders and replicas: what groups see stays the same object then.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._seen: Mapping[str, TopicImage] | None = None
        self._topics = Topics()

    def current(self) -> Topics:
        """The topics of now. Cost where the image has changed: the number of topics."""
        topics = self._view.image.topics
        if topics is not self._seen:
            self._seen = topics
            found = Topics(
                Topic(name=name, topic_id=topic.topic_id, partition_count=len(topic.partitions))
                for name, topic in topics.items()
            )
            if found != self._topics:
                self._topics = found
        return self._topics
