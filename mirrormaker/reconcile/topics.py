"""Keeps the topics of a route's destination in step with its source: look, compare, repair, again.

Only the differences found at the moment count, not how they came about: a topic that is deleted at the
destination is created again with the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.flow.signal import Signal
from mirrormaker.plan.topics import AddPartitions, CreateTopic, TopicPlan, plan_topics, select_topics
from mirrormaker.topology.model import RouteName, RouteSpec
from mirrormaker.topology.naming import TopicNaming, compile_naming

LOOKS_AFTER_CREATION = 50
LOOK_INTERVAL_MS = 100


class DestinationClaims:
    """Which route of this process writes which topic of one destination cluster: the first one that asked."""

    def __init__(self) -> None:
        self._owners: dict[str, RouteName] = {}

    def of_others(self, route: RouteName) -> Mapping[str, RouteName]:
        """Topics that routes other than `route` write."""
        return {topic: owner for topic, owner in self._owners.items() if owner != route}

    def claim(self, route: RouteName, topics: frozenset[str]) -> None:
        """`route` writes these now, and nothing else. Those that belong to another stay the other's."""
        others = self.of_others(route)
        self._owners = {**others, **dict.fromkeys(topics - others.keys(), route)}


class TopicReconciler:
    """The loop of one route. `on_topics` is told what can be copied, source name to destination name."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        claims: DestinationClaims,
        on_topics: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.obstacles: Mapping[str, str] = {}
        """Source topics that are selected and not copied, with the reason."""
        self.problem: str | None = None
        """Why the last look failed, None when it did not."""
        self._route = route
        self._naming: TopicNaming = compile_naming(route.source, route.topics)
        self._source = source
        self._destination = destination
        self._claims = claims
        self._on_topics = on_topics
        self._paused: frozenset[str] = frozenset()
        self._due = Signal()
        self._log = logger("reconcile").bind(route=route.name)

    def change(self, route: RouteSpec) -> None:
        """Go on with the topics and intervals of `route`, and look at once."""
        self._route = route
        self._naming = compile_naming(route.source, route.topics)
        self._due.set()

    def pause(self, topics: Collection[str]) -> None:
        """Leave these topics of the source alone from now on, and no others."""
        if frozenset(topics) != self._paused:
            self._paused = frozenset(topics)
            self._due.set()

    async def run(self) -> None:
        """Look every `refresh_interval_ms`, until cancelled. A failed look is told in `problem`."""
        while True:
            await self._due.wait(self._route.refresh_interval_ms)
            try:
                await self.look()
            except BrokerError as error:
                if self.problem is None:
                    self._log.warning("topics_not_reconciled", error=str(error))
                self.problem = str(error)

    async def look(self) -> None:
        """Compare once and repair what differs. Raises BrokerError when a cluster cannot be asked."""
        naming = self._naming
        await self._source.refresh()
        await self._destination.refresh(set(select_topics(naming, self._source.metadata).values()))
        others = self._claims.of_others(self._route.name)
        plan = plan_topics(naming, self._source.metadata, self._destination.metadata, others)
        failures = await self._apply(plan)
        topics = {topic: name for topic, name in plan.destinations.items() if name not in failures}
        obstacles = plan.obstacles | {
            topic: failures[name] for topic, name in plan.destinations.items() if name in failures
        }
        for topic in obstacles.keys() - self.obstacles.keys():
            self._log.warning("topic_not_copied", topic=topic, reason=obstacles[topic])
        self.obstacles, self.problem = obstacles, None
        self._claims.claim(self._route.name, frozenset(topics.values()))
        self._on_topics({topic: name for topic, name in topics.items() if topic not in self._paused})

    async def _apply(self, plan: TopicPlan) -> dict[str, str]:
        """Do the steps; destination topics that could not be made right, with the reason."""
        creations = [step for step in plan.steps if isinstance(step, CreateTopic)]
        growths = [step for step in plan.steps if isinstance(step, AddPartitions)]
        admin = Admin(self._destination)
        results: dict[str, ProtocolError | None] = {}
        if creations:
            results |= await admin.create_topics(
                [
                    NewTopic(
                        name=step.name, partitions=step.partitions, replication_factor=step.replication_factor
                    )
                    for step in creations
                ]
            )
        if growths:
            results |= await admin.create_partitions({step.name: step.partitions for step in growths})
        for step in plan.steps:
            self._tell(step, results.get(step.name))
        created = {step.name: step.partitions for step in plan.steps if _succeeded(results.get(step.name))}
        await self._await_partitions(created)
        return {
            step.name: str(results[step.name])
            for step in creations
            if not _succeeded(results.get(step.name)) and results.get(step.name) is not None
        }

    def _tell(self, step: CreateTopic | AddPartitions, error: ProtocolError | None) -> None:
        event = "topic_created" if isinstance(step, CreateTopic) else "partitions_added"
        if _succeeded(error):
            self._log.info(event, topic=step.name, partitions=step.partitions)
        else:
            self._log.warning(
                "topic_step_failed", step=event, topic=step.name, partitions=step.partitions, error=str(error)
            )

    async def _await_partitions(self, counts: Mapping[str, int]) -> None:
        """Until metadata shows the partitions; what does not appear in time is found by the next look."""
        for _ in range(LOOKS_AFTER_CREATION if counts else 0):
            metadata = await self._destination.refresh(counts)
            if all(len(metadata.partitions(name)) >= count for name, count in counts.items()):
                return
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)


def _succeeded(error: ProtocolError | None) -> bool:
    return error is None or error.code is ErrorCode.TOPIC_ALREADY_EXISTS
