"""Troubles of whole topics: deleted at the source, not to be read, of another shape at the destination."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.client.operations import DESCRIBE
from broker.clock import Clock
from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.trouble import WHOLE_TOPIC, Trouble, TroubleKind
from mirrormaker.missing_rights import UNAUTHORIZED_CODES, missing_right
from mirrormaker.plan.steps import AddPartitions, CreateTopic, TopicStep
from mirrormaker.plan.topics import Destination, TopicPlan, is_too_wide
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.former_topics import FormerTopics
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.reconcile.topic_steps import StepResult
from mirrormaker.topology.further_topics import parked_topic
from mirrormaker.topology.model import FailurePolicy, PartitionPolicy, RouteSpec
from mirrormaker.topology.naming import TopicNaming

LOOKS_BEFORE_DELETED, DELETED_AFTER_MS = 2, 5_000
"""A node that has just started may not know of all topics: so many looks do not find one, for so long."""


class TroubleListener(Protocol):
    """Who is told, as the arbiter of the route is."""

    def meet(self, trouble: Trouble) -> None:
        """A topic has run into this."""
        ...

    def passed(self, source: TopicPartition) -> None:
        """It has left that behind."""
        ...

    def found(self, source: TopicPartition) -> None:
        """It is there, though some process took it for deleted."""
        ...


class TopicWatch:
    """Of one route. `listener` is told of each trouble once, until it has passed."""

    def __init__(
        self,
        source: Cluster,
        halts: RouteHalts,
        former: FormerTopics,
        listener: TroubleListener,
        clock: Clock,
    ) -> None:
        self.hidden: frozenset[str] = frozenset()
        """Topics that the source did not let see when it was asked last."""
        self._source = source
        self._halts = halts
        self._former = former
        self._listener = listener
        self._copied: set[str] = set()
        """Topics of the source that the route has taken, now or before the process began."""
        self._former_of: TopicNaming | None = None
        """By what rules former ones were looked for."""
        self._clock = clock
        self._absences: dict[str, tuple[int, float]] = {}
        """Looks in a row that did not find a topic, and when the first was."""
        told: dict[str, dict[_Told, TroubleKind]] = {}
        self._absent, self._misshapen, self._refused = (_Told(listener, told) for _ in range(3))

    def look_failed(self) -> None:
        """It is not known what was there then: a node may have been started anew meanwhile."""
        self._absences.clear()

    async def find_absent(self, naming: TopicNaming, selected: Iterable[str]) -> dict[str, str]:
        """Topics that were copied, are still to be, and are not there, each with the reason; those that the
        file names, too, where they may not be seen. Raises BrokerError.
        """
        here = set(selected)
        self._copied |= here
        if naming is not self._former_of:
            former = await self._former.find(self._halts.route, naming, here)
            self._copied |= former or set()
            self._former_of = self._former_of if former is None else naming
        for topic in here:
            self._absences.pop(topic, None)
        deleted = self._halts.deleted_topics()
        for topic in here & deleted:
            self._listener.found(TopicPartition(topic, WHOLE_TOPIC))
        known = self._copied | deleted
        absent = {topic for topic in known - here if naming.selects(topic)} | naming.unseen(here)
        self.hidden = frozenset()
        if not absent:
            self._absent.passed_but(absent)
            return {}
        metadata = await self._source.refresh(absent)
        found = {topic: metadata.topics[topic].error for topic in absent & metadata.topics.keys()}
        self.hidden = frozenset(topic for topic, code in found.items() if code in UNAUTHORIZED_CODES)
        missing = absent & known | self.hidden
        self._absent.passed_but(missing)  # the others are there, or wanted no more
        judged = {topic: await self._judge_absent(topic, metadata) for topic in sorted(missing)}
        return {topic: why for topic, why in judged.items() if why is not None}

    async def _judge_absent(self, topic: str, metadata: ClusterMetadata) -> str | None:
        found = metadata.topics.get(topic)
        code = found.error if found is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._absences.pop(topic, None)
        if code in UNAUTHORIZED_CODES:
            lacking = missing_right(code, self._source.name, topic, DESCRIBE)
            trouble = _whole(TroubleKind.UNAUTHORIZED, topic, f"source: {lacking}")
        elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if not self._is_deleted(topic):
                return None
            trouble = _whole(TroubleKind.TOPIC_DELETED, topic, "the topic was deleted at the source")
        else:
            return None  # it is there, and not ready
        if trouble.kind is TroubleKind.TOPIC_DELETED and self._halts.standing(trouble.source) is None:
            was_told = self._absent.has_told(trouble)
            self._absent.passed(topic)  # or what was written of it is gone, and nobody could release it
            if was_told and topic in (await self._former.settled(self._halts.route.name) or ()):
                self._copied.discard(topic)  # another process has gone on behind it
                return None
        self._absent.tell(trouble)
        if trouble.kind is TroubleKind.TOPIC_DELETED and self._is_forgotten(trouble):
            self._copied.discard(topic)
            return None
        return trouble.problem

    def _is_deleted(self, topic: str) -> bool:
        """Whether it has not been found again and again."""
        now_ms = self._clock.monotonic_ms()
        looks, since_ms = self._absences.get(topic, (0, now_ms))
        self._absences[topic] = (looks + 1, since_ms)
        return looks + 1 >= LOOKS_BEFORE_DELETED and now_ms - since_ms >= DELETED_AFTER_MS

    def _is_forgotten(self, trouble: Trouble) -> bool:
        """Whether nobody waits for the topic any more; released, it is told of once more to be noted."""
        if self._halts.route.on.topic_deleted is FailurePolicy.SKIP_AND_RECORD:
            return True
        if self._halts.is_released(trouble):
            self._listener.meet(trouble)
            return True
        return False

    def find_misshapen(
        self,
        route: RouteSpec,
        plan: TopicPlan,
        source: Mapping[str, ObservedTopic],
        destination: Destination,
        steps: Iterable[TopicStep] = (),
    ) -> dict[str, str]:
        """Topics whose destination has more partitions than they have, and so cannot be made to match, that
        the route is not to copy; each with the reason. Where the file asks for more there should be more.

        Of those whose destination has fewer, and does not grow by `steps`, what has a place is copied.
        """
        growing = {step.name for step in steps if isinstance(step, CreateTopic | AddPartitions)}
        obstacles: dict[str, str] = {}
        for topic, name in plan.destinations.items():
            count, there = source[topic].partitions, destination.topics.get(name)
            if is_too_wide(route, source[topic], there, destination.declared.get(name)):
                problem = _shape(name, destination, count)
                if route.on.partition_mismatch is not FailurePolicy.SKIP_AND_RECORD:
                    obstacles[topic] = problem
            elif narrow := [
                each
                for each in _kept_alike(route, name, plan.written[topic]) - growing
                if 0 < _partitions(each, destination) < count
            ]:
                problem = f"{_shape(min(narrow), destination, count)}: the others have no place"
            else:
                self._misshapen.passed(topic)
                continue
            self._misshapen.tell(_whole(TroubleKind.PARTITION_MISMATCH, topic, problem))
        return obstacles

    def look_at_steps(self, results: Iterable[StepResult[TopicStep]], plan: TopicPlan) -> None:
        """The destination's topics that may not be seen, and steps about others that were refused."""
        for topic, problem in plan.hidden.items():
            self._refused.tell(_whole(TroubleKind.UNAUTHORIZED, topic, f"destination: {problem}"))
        refused = {
            result.step.name: result
            for result in results
            if result.error is not None and isinstance(result.step, CreateTopic | AddPartitions)
        }
        for topic, name in plan.destinations.items():
            names = (name, *sorted(plan.written[topic]))
            if result := next((refused[each] for each in names if each in refused), None):
                self._refused.tell(_whole(_kind_of(result.code), topic, f"destination: {result.error}"))
            else:
                self._refused.passed(topic)


class _Told:
    """What one look has told, of each topic. The listener knows of one thing for a topic: once that has
    passed the other looks tell it again of what they find on.
    """

    def __init__(self, listener: TroubleListener, told: dict[str, dict[_Told, TroubleKind]]) -> None:
        """`told`: by all looks."""
        self._listener = listener
        self._told = told

    def tell(self, trouble: Trouble) -> None:
        """Unless that was told last."""
        topic = trouble.source.topic
        if not self.has_told(trouble):
            self.passed(topic)
            self._told.setdefault(topic, {})[self] = trouble.kind
            self._listener.meet(trouble)

    def has_told(self, trouble: Trouble) -> bool:
        """Whether that was told last."""
        return self._told.get(trouble.source.topic, {}).get(self) is trouble.kind

    def passed_but(self, topics: Collection[str]) -> None:
        """With no others anything is wrong any more, as far as this look goes."""
        for topic in self._told.keys() - topics:
            self.passed(topic)

    def passed(self, topic: str) -> None:
        """Nothing is wrong with it any more, as far as this look goes."""
        if self in self._told.get(topic, {}):
            del self._told[topic]
            self._listener.passed(TopicPartition(topic, WHOLE_TOPIC))


def _kept_alike(route: RouteSpec, name: str, written: frozenset[str]) -> frozenset[str]:
    """Of the topics that records of one may go to those where they keep their partition; `name`: its copy."""
    if route.topics.partitions is PartitionPolicy.SAME:
        return written
    return written & {parked_topic(route, name)}


def _partitions(name: str, destination: Destination) -> int:
    known = destination.topics.get(name)
    return 0 if known is None else known.partitions


def _shape(name: str, destination: Destination, count: int) -> str:
    return f"{name!r} has {_partitions(name, destination)} partitions at the destination, the source {count}"


def _kind_of(code: ErrorCode | None) -> TroubleKind:
    """What it is that a topic of the destination could not be made as it should be."""
    if code in UNAUTHORIZED_CODES:
        return TroubleKind.UNAUTHORIZED
    if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return TroubleKind.DESTINATION_FULL
    return TroubleKind.PARTITION_MISMATCH


def _whole(kind: TroubleKind, topic: str, problem: str) -> Trouble:
    source = TopicPartition(topic, WHOLE_TOPIC)
    return Trouble(kind=kind, source=source, position=0, resume_at=0, problem=problem)
