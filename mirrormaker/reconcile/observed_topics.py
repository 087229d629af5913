"""Topics as a cluster tells of them, as the picture of the world has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.config_admin import ConfigEntry
from broker.client.metadata import ClusterMetadata, TopicMetadata
from broker.settings import ConfigSource
from mirrormaker.plan.world import ObservedSetting, ObservedTopic


def topics_of(
    metadata: ClusterMetadata, settings: Mapping[str, Mapping[str, ConfigEntry]] | None = None
) -> dict[str, ObservedTopic]:
    """The topics that a cluster told of, with those of their settings that are known."""
    known = settings or {}
    return {topic.name: _observed(topic, known.get(topic.name, {})) for topic in metadata.topics.values()}


def _observed(topic: TopicMetadata, settings: Mapping[str, ConfigEntry]) -> ObservedTopic:
    partitions = topic.partitions.values()
    return ObservedTopic(
        name=topic.name,
        partitions=len(topic.partitions),
        replication=max((len(partition.replicas) for partition in partitions), default=1),
        topic_id=topic.topic_id,
        internal=topic.internal,
        error=topic.error,
        config={
            name: ObservedSetting(value=entry.value, own=entry.source is ConfigSource.TOPIC)
            for name, entry in settings.items()
        },
    )
