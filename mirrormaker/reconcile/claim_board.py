"""Who writes which topics of one destination, agreed on by all daemons that share its routes: the driver of
`topic_owners`. Owned by the daemon; `run` it as a task where topics are contended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from broker.client.backoff import Backoff
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.topic_silence import watch_silence
from mirrormaker.reconcile.topic_owners import CLAIMS_TOPIC, TopicOwners, Topics
from mirrormaker.topology.model import ClusterSpec, RouteName

TIMEOUT_MS = 15_000
RELEASE_MS = 10_000
"""A topic that its route has not asked for so long is given up."""
RETRY_BACKOFF = Backoff(initial_ms=200, max_ms=10_000)
_REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

Records = list[tuple[Document, Document | None]]


class ClaimBoard:
    """See the module."""

    def __init__(
        self,
        spec: ClusterSpec,
        daemon_id: str,
        clock: Clock,
        on_change: Callable[[], None],
        is_of_others: Callable[[RouteName], bool],
    ) -> None:
        """`on_change`: `owners` may be others. `is_of_others`: whether a route that this daemon does not have
        is none of its business.
        """
        self.spec = spec
        self.owners: Mapping[str, RouteName] = {}
        """As far as known, topic by topic."""
        self.is_refused = False
        """The mirror lacks the rights to the topic: daemons cannot agree."""
        self._daemon_id = daemon_id
        self._clock = clock
        self._on_change = on_change
        self._is_of_others = is_of_others
        self._due = Signal()
        self._wanted: Mapping[str, RouteName] = {}
        self._asked: Mapping[RouteName, Topics] = {}
        self._routes: Collection[RouteName] = ()
        self._unasked_ms: dict[str, int] = {}
        """Since when the owner of a topic does not ask for it."""
        self._failures = 0
        """Since daemons last agreed."""
        self._problem: str | None = None
        """Why they cannot just now."""
        self._log = logger("claims").bind(cluster=spec.name)

    def ask(
        self,
        wanted: Mapping[str, RouteName],
        asked: Mapping[RouteName, Topics],
        routes: Collection[RouteName],
    ) -> None:
        """Who is to have each topic that nobody has; what is asked for by each route that has looked; the
        routes that there are.
        """
        self._wanted, self._asked, self._routes = wanted, asked, routes
        self._due.set()

    def stand_back(self) -> None:
        """Another daemon runs the routes by a newer file: it decides, and this one only reads."""
        self.ask({}, {}, ())

    async def run(self) -> None:
        """Agree, until cancelled."""
        while True:
            try:
                await self._agree()
            except* (BrokerError, ConfigurationError) as group:
                error = group.exceptions[0]
                self.is_refused = isinstance(error, ProtocolError) and error.code in _REFUSED
                self._tell(str(error))
                self._failures += 1
                self._on_change()
            await asyncio.sleep(RETRY_BACKOFF.delay_ms(self._failures, random.random) / 1000)

    async def _agree(self) -> None:
        view = TopicOwners()
        async with (
            open_cluster(self.spec, client_id="mirrormaker-claims") as cluster,
            KeptTopic(cluster, CLAIMS_TOPIC, timeout_ms=TIMEOUT_MS, view=view) as topic,
            asyncio.TaskGroup() as tasks,
        ):
            await topic.read_to_end()
            self.is_refused = False
            tasks.create_task(self._follow(topic), name="follow claims")
            tasks.create_task(watch_silence(topic, self.spec.name, self._tell), name="watch claims")
            while True:
                if records := self._records(view):
                    await topic.put(records)
                    await topic.read_to_end()
                self._take(view)
                self._failures = 0
                self._tell(None)
                await self._due.wait()

    def _tell(self, problem: str | None) -> None:
        """Once, and once that it has passed."""
        if problem is not None and self._problem is None:
            self._log.warning("claims_not_shared", error=problem)
        elif problem is None and self._problem is not None:
            self._log.info("claims_shared")
        self._problem = problem

    async def _follow(self, topic: KeptTopic) -> None:
        while True:
            await topic.changed()
            self._due.set()

    def _take(self, view: TopicOwners) -> None:
        if view.owners != self.owners:
            self.owners = dict(view.owners)
            self._on_change()

    def _records(self, view: TopicOwners) -> Records:
        """What is to be written just now."""
        if not self._routes:
            return []
        now_ms = self._clock.monotonic_ms()
        released = {topic for topic, owner in view.owners.items() if self._is_over(topic, owner, now_ms)}
        anew = {topic: view.owners[topic] for topic in view.overwritten - released}
        fresh = {topic: route for topic, route in self._wanted.items() if topic not in view.owners}
        for topic in released:
            self._unasked_ms.pop(topic, None)
        records: Records = [({"topic": topic}, None) for topic in sorted(released)]
        for topic, route in sorted((anew | fresh).items()):
            said: dict[str, Any] = {"route": route, "daemon": self._daemon_id, "at_ms": self._clock.now_ms()}
            records.append(({"topic": topic}, said))
        return records

    def _is_over(self, topic: str, owner: RouteName, now_ms: int) -> bool:
        if owner not in self._routes:
            return not self._is_of_others(owner)
        if owner not in self._asked or topic in self._asked[owner]:
            self._unasked_ms.pop(topic, None)
            return False
        return now_ms - self._unasked_ms.setdefault(topic, now_ms) > RELEASE_MS
