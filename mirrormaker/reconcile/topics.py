"""Keeps the topics of a route's destination in step with its source: look, compare, repair, again.

Only the differences found at the moment count, not how they came about: a topic that is deleted at the
destination is created again with the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.timing.appearances import Appearances
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.plan.steps import AddPartitions, CreateTopic, TopicStep
from mirrormaker.plan.topics import Destination, plan_topics, select_topics
from mirrormaker.reconcile.adoption import Adoption
from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.reconcile.drift import Drift, News
from mirrormaker.reconcile.lost_topics import LostTopics
from mirrormaker.reconcile.old_formats import FormatCheck
from mirrormaker.reconcile.repair import Repairer
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.reconcile.topic_pictures import TopicCamera
from mirrormaker.reconcile.topic_steps import StepResult
from mirrormaker.reconcile.topic_watch import TopicWatch
from mirrormaker.topology.further_topics import further_topics
from mirrormaker.topology.model import RouteSpec, TopicSpec
from mirrormaker.topology.naming import TopicNaming, compile_naming
from mirrormaker.topology.shared_positions import EarlierCopies
from mirrormaker.topology.ways import Ways

LOOKS_AFTER_CREATION = 50
LOOK_INTERVAL_MS = 100


class Circles(Protocol):
    """What knows where topics would go."""

    async def find(self, topics: Collection[str]) -> dict[str, str]:
        """Those of these topics of the source that would go in a circle, each with the way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What a look goes by, from its beginning to its end: what it has not asked about it takes for absent."""

    route: RouteSpec
    naming: TopicNaming
    declared: Mapping[str, TopicSpec]
    """Topics that the file asks for at the destination."""
    ways: Ways
    earlier: EarlierCopies

    @classmethod
    def of(cls, work: RouteWork) -> _Terms:
        return cls(
            route=work.route,
            naming=compile_naming(work.route.source, work.route.topics),
            declared=work.destination.topics,
            ways=Ways(work.settings_ways),
            earlier=EarlierCopies(work.earlier),
        )


class TopicReconciler:
    """The loop of one route. `on_topics` is told what can be copied, source name to destination name."""

    def __init__(
        self,
        work: RouteWork,
        source: Cluster,
        destination: Cluster,
        claims: DestinationClaims,
        on_topics: Callable[[Mapping[str, str]], None],
        watch: TopicWatch,
        adoption: Adoption,
        news: News,
        circles: Circles,
        appearances: Appearances,
    ) -> None:
        self.obstacles: Mapping[str, str] = {}
        """Source topics that are selected and not copied, with the reason."""
        self.standing: Mapping[str, TroubleKind] = {}
        """Those of them that a failure policy is about, and that wait for that to pass."""
        self.problem: str | None = None
        """Why the last look failed, None when it did not."""
        self.is_blind = False
        """Whether there are topics, and none of them can be copied."""
        self.topics: Mapping[str, str] = {}
        """What can be copied, source name to destination name."""
        self._terms = _Terms.of(work)
        self._destination = destination
        self._claims = claims
        self._on_topics = on_topics
        self._formats = FormatCheck(Admin(destination))
        self._watch = watch
        self._adoption = adoption
        self._lost = LostTopics(adoption, news)
        self._news = news
        self._circles = circles
        self._paused: frozenset[str] = frozenset()
        self._due = Signal()
        self._log = logger("reconcile").bind(route=work.name)
        self._camera = TopicCamera(source, destination, appearances)
        self._repairer = Repairer(self._log, news)

    @property
    def drift(self) -> tuple[Drift, ...]:
        """What differs at the destination and is left so."""
        return self._repairer.drift

    @property
    def settings_problem(self) -> str | None:
        """Why settings are not carried over, None when they are."""
        return self._camera.problem

    def change(self, work: RouteWork) -> None:
        """Go on with the topics and intervals of `work`, and look at once, or once more."""
        self._terms = _Terms.of(work)
        self._camera.look_closely()
        self._due.set()

    def pause(self, topics: Collection[str]) -> None:
        """Leave these topics of the source alone from now on, and no others."""
        if frozenset(topics) != self._paused:
            self._paused = frozenset(topics)
            self._due.set()

    def look_soon(self) -> None:
        """Something of what decides may be other than it was."""
        self._due.set()

    async def run(self) -> None:
        """Look every `refresh_interval_ms`, until cancelled. A failed look is told in `problem`."""
        while True:
            await self._due.wait(self._terms.route.refresh_interval_ms)
            try:
                await self.look()
            except BrokerError as error:
                self._watch.look_failed()
                if self.problem is None:
                    self._log.warning("topics_not_reconciled", error=str(error))
                self.problem = str(error)

    async def look(self) -> None:
        """Compare once and repair what differs. Raises BrokerError when a cluster cannot be asked."""
        terms = self._terms
        naming, spec = terms.naming, terms.route
        pictures = await self._camera.take(naming, (), partial(further_topics, spec, naming))
        selected = select_topics(naming, pictures.source.values())
        circling = await self._circles.find(selected)
        straight = {name: topic for name, topic in pictures.source.items() if name not in circling}
        destination = Destination(
            name=spec.destination,
            topics=pictures.destination,
            nodes=pictures.nodes,
            declared=terms.declared,
        )
        route, shares = spec.name, spec.topics.merge
        others = self._claims.of_others(route, shares=shares)
        plan = plan_topics(spec, naming, straight, destination, others, terms.ways, terms.earlier)
        repair = await self._repairer.repair(
            Admin(self._destination), plan.steps, spec.sync, is_unseen=pictures.lacks_settings_of
        )
        await self._await_partitions(repair.results)
        made = {one.step.name for one in repair.results if isinstance(one.step, CreateTopic) and one.is_own}
        copies = set(plan.destinations.values())
        await self._lost.tell(spec, plan.written, copies, pictures.destination, made)
        self._watch.look_at_steps(repair.results, plan)
        absent = await self._watch.find_absent(naming, selected)
        refused = await self._adoption.find_refused(spec, plan.written, pictures.destination)
        taken = [result.step for result in repair.results]
        misshapen = self._watch.find_misshapen(spec, plan, pictures.source, destination, taken)
        missing = {one.name: one.reason for one in repair.drift if isinstance(one.step, CreateTopic)}
        if spec.provenance:
            missing |= await self._formats.obstacles(copies - missing.keys())
        lacking = {
            topic: missing[min(names)]
            for topic, written in plan.written.items()
            if (names := written & missing.keys())
        }
        topics = {
            topic: name
            for topic, name in plan.destinations.items()
            if topic not in lacking and topic not in misshapen and topic not in refused
        }
        self._tell_obstacles(absent | circling | misshapen | refused | plan.obstacles | lacking)
        self.problem, self.topics = None, topics
        self.is_blind = not topics and bool(self._watch.hidden | (self.obstacles.keys() - absent.keys()))
        self.standing = {
            **dict.fromkeys(misshapen, TroubleKind.PARTITION_MISMATCH),
            **dict.fromkeys(plan.hidden, TroubleKind.UNAUTHORIZED),
        }
        self._hand_on(topics, plan.written, shares=shares)

    def _tell_obstacles(self, obstacles: Mapping[str, str]) -> None:
        """Those that are there now, by source topic; what has come and what has gone is told."""
        for topic in sorted(obstacles.keys() - self.obstacles.keys()):
            self._news.note("topic_not_copied", topic=topic, reason=obstacles[topic])
        for topic in sorted(self.obstacles.keys() - obstacles.keys()):
            self._news.note_end("topic_obstacle_gone", topic=topic)
        self.obstacles = obstacles

    def _hand_on(
        self, topics: Mapping[str, str], written: Mapping[str, frozenset[str]], *, shares: bool
    ) -> None:
        """Have copied what no other route writes, and no pause or edit holds back by now."""
        route = self._terms.route.name
        self._claims.claim(route, frozenset().union(*(written[topic] for topic in topics)), shares=shares)
        granted = self._claims.granted(route)
        self._on_topics(
            {
                topic: name
                for topic, name in topics.items()
                if topic not in self._paused
                and written[topic] <= granted
                and self._terms.naming.selects(topic)
            }
        )

    async def _await_partitions(self, results: Iterable[StepResult[TopicStep]]) -> None:
        """Until metadata shows the partitions; what does not appear in time is found by the next look."""
        counts = {
            result.step.name: result.step.partitions
            for result in results
            if isinstance(result.step, CreateTopic | AddPartitions) and result.error is None
        }
        for _ in range(LOOKS_AFTER_CREATION if counts else 0):
            metadata = await self._destination.refresh(counts)
            if all(len(metadata.partitions(name)) >= count for name, count in counts.items()):
                return
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
