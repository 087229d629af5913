"""What a member of a group subscribes to: topics by name, by a regular expression, or as a function chooses
them out of the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from broker.client.metadata import ClusterMetadata
from broker.client.topic_pattern import INTERNAL_TOPICS
from broker.types import TopicPartition

TopicFilter = Callable[[ClusterMetadata], Collection[str]]
"""Chooses the topics to subscribe to out of all topics of the cluster; asked again whenever metadata is
refreshed.
"""
PartitionsCallback = Callable[[frozenset[TopicPartition]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """All topics whose whole name a regular expression matches, also those that will be created.

    Where the coordinator resolves expressions (the consumer protocol from its version 1 on) it reads them as
    RE2 does; elsewhere this process reads them as Python does, and leaves internal topics out.
    """

    expression: str

    def chooser(self) -> TopicFilter:
        """The same as a function of the metadata. Raises ValueError for what is no expression of Python's."""
        try:
            compiled = re.compile(self.expression)
        except re.error as error:
            raise ValueError(f"{self.expression!r} is no regular expression: {error}") from error

        def choose(metadata: ClusterMetadata) -> frozenset[str]:
            return frozenset(
                name
                for name, topic in metadata.topics.items()
                if not topic.internal and name not in INTERNAL_TOPICS and compiled.fullmatch(name)
            )

        return choose


Subscription = Collection[str] | TopicFilter | SubscriptionPattern
