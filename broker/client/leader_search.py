"""Leaders that a producer does not know, or that may have moved: asked for in the background, for as long as
it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from broker.client.backoff import Backoff, Random
from broker.client.cluster import Cluster
from broker.errors import AuthenticationError, BrokerError, ConfigurationError
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchUse:
    """What the search does with the producer that it serves."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    """Runs work in the producer's background."""
    looked: Callable[[TopicPartition], None]
    """The leader of this partition may be known now."""
    refused: Callable[[BrokerError], None]
    """There will be no metadata: nothing can be written any more."""


class LeaderSearch:
    """See the module."""

    def __init__(self, cluster: Cluster, use: SearchUse, *, backoff: Backoff, random: Random) -> None:
        self._cluster = cluster
        self._use = use
        self._backoff = backoff
        self._random = random
        self._leaderless: set[TopicPartition] = set()
        """Partitions with batches for which no leader is known."""
        self._stale_topics: set[str] = set()
        self._refreshing = False

    def find(self, topic_partition: TopicPartition) -> None:
        """No leader is known: `looked` is called once there is news."""
        self._leaderless.add(topic_partition)
        self.want([topic_partition.topic])

    def want(self, topics: Iterable[str]) -> None:
        """The metadata of these may have changed."""
        self._stale_topics.update(topics)
        if self._stale_topics and not self._refreshing:
            self._refreshing = True
            self._use.start(self._refresh())

    async def _refresh(self) -> None:
        """Ask for metadata until every partition with batches has a leader."""
        attempt = 0
        while self._stale_topics:
            topics = set(self._stale_topics)
            try:
                await self._cluster.refresh(topics)
                self._stale_topics -= topics
            except (AuthenticationError, ConfigurationError) as error:
                self._use.refused(error)
                self._stale_topics.clear()
            except BrokerError as error:
                _log.info("metadata_not_refreshed", error=str(error))
            leaderless, self._leaderless = self._leaderless, set()
            for topic_partition in leaderless:
                self._use.looked(topic_partition)
            attempt += 1
            if self._stale_topics:
                await asyncio.sleep(self._backoff.delay_ms(attempt, self._random) / 1000)
        self._refreshing = False
