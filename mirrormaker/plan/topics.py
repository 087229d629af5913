"""Which topics a route copies, and what its destination lacks for that. Pure.

A destination topic gets as many partitions as its source has, and grows with it; it is never shrunk. A source
topic whose destination is not ready is told with the reason, and not copied; the others are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.client.metadata import ClusterMetadata, TopicMetadata
from broker.errors import ErrorCode
from mirrormaker.topology.model import RouteName
from mirrormaker.topology.naming import TopicNaming, is_legal_topic

TopicClaims = Mapping[str, RouteName]
"""Topics of one destination that other routes write, with the route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """A topic that the destination lacks."""

    name: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """A topic of the destination that has fewer partitions than its source."""

    name: str
    partitions: int
    """In all, afterwards."""


TopicStep = CreateTopic | AddPartitions


@dataclass(slots=True, kw_only=True)
class TopicPlan:
    """Topics of one route: what is selected, what is to be done, and what cannot be."""

    destinations: dict[str, str] = field(default_factory=dict)
    """Source topic to destination topic, for all that can be copied once the steps are done."""
    steps: list[TopicStep] = field(default_factory=list)
    obstacles: dict[str, str] = field(default_factory=dict)
    """Source topics that are selected and cannot be copied, with the reason."""


def select_topics(naming: TopicNaming, source: ClusterMetadata) -> dict[str, str]:
    """Source topic to destination name, for every topic that the route takes and that exists."""
    return {
        topic.name: naming.destination_of(topic.name)
        for topic in source.topics.values()
        if topic.error is ErrorCode.NONE and not topic.internal and naming.selects(topic.name)
    }


def plan_topics(
    naming: TopicNaming, source: ClusterMetadata, destination: ClusterMetadata, claims: TopicClaims
) -> TopicPlan:
    """Compare the selected topics with `destination`, which must have been asked about all their names."""
    plan = TopicPlan()
    for topic, name in sorted(select_topics(naming, source).items()):
        obstacle = _obstacle(name, destination.topics.get(name), claims)
        if obstacle is not None:
            plan.obstacles[topic] = obstacle
            continue
        plan.destinations[topic] = name
        step = _step(source.topics[topic], name, destination)
        if step is not None:
            plan.steps.append(step)
    return plan


def _obstacle(name: str, known: TopicMetadata | None, claims: TopicClaims) -> str | None:
    if not is_legal_topic(name):
        return f"{name!r} is not a legal topic name"
    if name in claims:
        return f"the route {claims[name]!r} writes {name!r} already"
    if known is not None and known.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return f"{name!r}: {known.error.meaning}" if not known.error.retriable else None
    return None


def _step(source: TopicMetadata, name: str, destination: ClusterMetadata) -> TopicStep | None:
    count = len(source.partitions)
    known = destination.topics.get(name)
    if known is None or known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        replicas = max((len(partition.replicas) for partition in source.partitions.values()), default=1)
        brokers = max(len(destination.nodes), 1)
        return CreateTopic(name=name, partitions=count, replication_factor=max(min(replicas, brokers), 1))
    if known.partitions and len(known.partitions) < count:
        return AddPartitions(name=name, partitions=count)
    return None
