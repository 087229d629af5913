"""How long one run of a continuous pipeline goes on: a day, or until its topics are others.

What a run has done is kept in one record, which must not grow for ever; and the topics that a query reads are
those that were there when it began. The daemon starts the next run at once, where this one has ended.
"""

from __future__ import annotations

import time

from broker.errors import BrokerError
from mirrormaker.pipelines.source import find_topics
from mirrormaker.topology.model import ClusterSpec, PipelineSpec

RUN_SECONDS = 86_400.0
TOPICS_SECONDS = 30.0
"""How often topics are looked for."""


class Continuity:
    """Of the run that begins now."""

    def __init__(self, cluster: ClusterSpec, pipeline: PipelineSpec, topics: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._pipeline = pipeline
        self._topics = topics
        self._ends_at = time.monotonic() + RUN_SECONDS
        self._looks_at = time.monotonic() + TOPICS_SECONDS

    def is_over(self) -> bool:
        """Whether the next run had better take over."""
        now = time.monotonic()
        if now < self._looks_at:
            return now >= self._ends_at
        self._looks_at = now + TOPICS_SECONDS
        try:
            return tuple(find_topics(self._cluster, self._pipeline)) != self._topics
        except BrokerError:
            return False  # the query tells what it lacks
