"""Adds heartbeats to what a route copies, once its source has some and its destination a topic for them.

Where the mirror may not make that topic, the route goes without and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.side_topics import make_heartbeats_topic

LOOK_INTERVAL_MS = 5_000
ABSENT_INTERVAL_MS = 1_000
FIRST_LOOK_TIMEOUT_MS = 2_000


class HeartbeatCarriage:
    """Of one route at work. `set_topics` passes on to `on_topics` what else is copied."""

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        on_topics: Callable[[Mapping[str, str]], None],
        events: RouteEvents,
    ) -> None:
        self._source = source
        self._destination = destination
        self._on_topics = on_topics
        self._events = events
        self._topics: Mapping[str, str] = {}
        self._is_ready = False
        self._problem: str | None = None

    def set_topics(self, topics: Mapping[str, str]) -> None:
        """Copy these, and heartbeats."""
        self._topics = dict(topics)
        heartbeats = {HEARTBEATS_TOPIC: HEARTBEATS_TOPIC} if self._is_ready else {}
        self._on_topics(self._topics | heartbeats)

    async def begin(self) -> None:
        """A first look, before there is anything to copy; it takes no longer than a moment."""
        try:
            async with asyncio.timeout(FIRST_LOOK_TIMEOUT_MS / 1000):
                self._is_ready = await self._look()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            is_ready = await self._look()
            if is_ready != self._is_ready:
                self._is_ready = is_ready
                self.set_topics(self._topics)
            await asyncio.sleep((LOOK_INTERVAL_MS if is_ready else ABSENT_INTERVAL_MS) / 1000)

    async def _look(self) -> bool:
        try:
            known = (await self._source.refresh([HEARTBEATS_TOPIC])).topics.get(HEARTBEATS_TOPIC)
            if known is None or known.error is not ErrorCode.NONE:
                return False
            await make_heartbeats_topic(self._destination)
        except BrokerError as error:
            if str(error) != self._problem:
                self._events.note("heartbeats_not_carried", error=str(error))
            self._problem = str(error)
            return False
        self._problem = None
        return True
