"""Which topics a route copies, and what the topics of its destination lack for that. Pure.

A destination topic gets as many partitions as its source has, or as the largest of those that a step sends
to it, and grows with it; it is never shrunk. What the file says about a topic of the destination itself
(`clusters.*.topics`) goes before what is carried over from the source. A source topic whose
destination is not ready is told with the reason, and not copied; the others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from broker.client.operations import DESCRIBE
from broker.errors import ErrorCode
from mirrormaker.missing_rights import missing_right
from mirrormaker.plan.settings import (
    CREATED_SETTINGS,
    ORDERED,
    Extent,
    applied_settings,
    carried_settings,
    differing_settings,
    extent_of,
)
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange, TopicStep
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.further_topics import further_topics, parked_topic, written_topics
from mirrormaker.topology.model import ClusterName, PartitionPolicy, RouteName, RouteSpec, SyncSpec, TopicSpec
from mirrormaker.topology.naming import INTERNAL_REFUSAL, TopicNaming, is_internal, is_legal_topic
from mirrormaker.topology.shared_positions import EarlierCopies
from mirrormaker.topology.ways import Ways

TopicClaims = Mapping[str, RouteName]
"""Topics of one destination that other routes write, with the route."""
CLUSTER_DEFAULT = -1
_NOT_DECLARED = TopicSpec()


class TellsOfTopic(Protocol):
    """What it takes to select a topic."""

    @property
    def name(self) -> str: ...
    @property
    def internal(self) -> bool: ...
    @property
    def error(self) -> ErrorCode: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTopic:
    """A topic as it should be; what is None is left to the cluster."""

    name: str
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    created_config: Mapping[str, str] = field(default_factory=dict)
    """What it gets beside when it is created, and may lose again."""
    undecided: Mapping[str, str] = field(default_factory=dict)
    """What its source says, and the route may not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A cluster that is written to: its topics, and what the file says of them."""

    name: ClusterName
    topics: Mapping[str, ObservedTopic]
    nodes: int = 1
    declared: Mapping[str, TopicSpec] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TopicPlan:
    """Topics of one route: what is selected, what is to be done, and what cannot be."""

    destinations: dict[str, str] = field(default_factory=dict)
    """Source topic to destination topic, for all that can be copied once the steps are done."""
    written: dict[str, frozenset[str]] = field(default_factory=dict)
    """By source topic, all topics that its records may go to: that one, and those that steps name."""
    steps: list[TopicStep] = field(default_factory=list)
    obstacles: dict[str, str] = field(default_factory=dict)
    """Source topics that are selected and cannot be copied, with the reason."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Those of them whose copy may not be seen at the destination."""
    left: dict[str, str] = field(default_factory=dict)
    """Source topics of which settings are not carried over, with the reason."""


def select_topics(naming: TopicNaming, topics: Iterable[TellsOfTopic]) -> dict[str, str]:
    """Source topic to destination name, for every topic that the route takes and that exists."""
    return {
        topic.name: naming.destination_of(topic.name)
        for topic in topics
        if topic.error is ErrorCode.NONE and not topic.internal and naming.selects(topic.name)
    }


def written_by_topic(
    route: RouteSpec, naming: TopicNaming, topics: Iterable[TellsOfTopic]
) -> dict[str, frozenset[str]]:
    """All topics that the records of each may go to, for every topic that the route takes and that exists."""
    return {topic: written_topics(route, naming, topic) for topic in select_topics(naming, topics)}


def plan_topics(
    route: RouteSpec,
    naming: TopicNaming,
    source: Mapping[str, ObservedTopic],
    destination: Destination,
    claims: TopicClaims,
    ways: Ways,
    earlier: EarlierCopies,
) -> TopicPlan:
    """Compare the selected topics with `destination`, which must have been asked about all their names.
    `ways`: those that settings may come round by. `earlier`: what this route leaves to others.
    """
    plan = TopicPlan()
    for topic, name in sorted(select_topics(naming, source.values()).items()):
        known = destination.topics.get(name)
        written = written_topics(route, naming, topic)
        taken = _taken(name, written, claims) or _copied(topic, name, earlier)
        obstacle = _illegal(name, written) or _obstacle(name, destination, taken, route.sync)
        if obstacle is not None:
            plan.obstacles[topic] = obstacle
            if taken is None and known is not None and known.is_hidden:
                plan.hidden[topic] = obstacle
            continue
        plan.destinations[topic] = name
        plan.written[topic] = written
        keeps = name == parked_topic(route, name)
        desired = destination_topic(route, source[topic], name, destination, ways, keeps_partitions=keeps)
        plan.steps += compare_topic(destination.name, desired, known)
        if differing := differing_settings(desired.undecided, known) if known is not None else {}:
            plan.left[topic] = _why_left(route, topic, differing, ways)
    own = set(plan.destinations.values())
    further: dict[str, list[str]] = {}
    for topic in plan.destinations:
        for name in further_topics(route, naming, topic):
            if name not in own:
                further.setdefault(name, []).append(topic)
    for name, topics in sorted(further.items()):
        widest = replace(source[topics[-1]], partitions=max(source[topic].partitions for topic in topics))
        keeps = any(name == parked_topic(route, plan.destinations[topic]) for topic in topics)
        desired = destination_topic(route, widest, name, destination, ways, keeps_partitions=keeps)
        plan.steps += compare_topic(destination.name, desired, destination.topics.get(name))
    return plan


def destination_topic(
    route: RouteSpec,
    source: ObservedTopic,
    name: str,
    destination: Destination,
    ways: Ways,
    *,
    keeps_partitions: bool = False,
) -> DesiredTopic:
    """What the destination's topic `name` should be, for the copies of `source`. `keeps_partitions`: records
    keep their partition there, whatever the route says.
    """
    declared = destination.declared.get(name, _NOT_DECLARED)
    known = destination.topics.get(name)
    keeps = keeps_partitions or route.topics.partitions is PartitionPolicy.SAME
    is_new = known is None or not known.exists
    follows = (keeps or declared.partitions is None) if is_new else (keeps and route.sync.partitions)
    counts = [source.partitions] if follows else []
    replicas = declared.replication or max(min(source.replication, max(destination.nodes, 1)), 1)
    has_replicas = known.replication if known is not None and known.exists else replicas
    carried = carried_settings(source, route.sync.config, replicas=has_replicas)
    extent = extent_of(route, source.name, name, ways)
    return DesiredTopic(
        name=name,
        partitions=max([*counts, declared.partitions or 0]) or None,
        replication=replicas,
        config={**applied_settings(carried, known, extent), **declared.config},
        created_config={**CREATED_SETTINGS, **carried},
        undecided={
            setting: value
            for setting, value in carried.items()
            if setting not in declared.config
            and (extent is Extent.NONE or (extent is Extent.LARGER and setting not in ORDERED))
        },
    )


def declared_topic(name: str, spec: TopicSpec) -> DesiredTopic:
    """What the file says about a topic of a cluster."""
    return DesiredTopic(
        name=name, partitions=spec.partitions, replication=spec.replication, config=spec.config
    )


def is_too_wide(
    route: RouteSpec, source: ObservedTopic, copy: ObservedTopic | None, declared: TopicSpec | None
) -> bool:
    """Whether a copy has more partitions than its source, and than the file asks for: it cannot be made to
    match, and nobody would look for keys where the source has them.
    """
    if copy is None or route.topics.merge or route.topics.partitions is not PartitionPolicy.SAME:
        return False
    asked = (declared or _NOT_DECLARED).partitions or 0
    return copy.partitions > max(source.partitions, asked)


def compare_topic(
    cluster: ClusterName, desired: DesiredTopic, known: ObservedTopic | None
) -> Iterator[TopicStep]:
    """What makes the topic that is known, None where there is none, the one that is desired."""
    if known is None or not known.exists:
        yield CreateTopic(
            cluster=cluster,
            name=desired.name,
            partitions=desired.partitions or CLUSTER_DEFAULT,
            replication_factor=desired.replication or CLUSTER_DEFAULT,
            config={**desired.created_config, **desired.config},
        )
        return
    if known.partitions and known.partitions < (desired.partitions or 0):
        yield AddPartitions(
            cluster=cluster,
            name=desired.name,
            topic_id=known.topic_id,
            have=known.partitions,
            partitions=desired.partitions or 0,
        )
    differing = differing_settings(desired.config, known)
    if differing:
        yield ChangeSettings(
            cluster=cluster,
            name=desired.name,
            topic_id=known.topic_id,
            changes={
                name: SettingChange(old=known.setting(name), new=value) for name, value in differing.items()
            },
        )


def _why_left(route: RouteSpec, topic: str, differing: Mapping[str, str], ways: Ways) -> str:
    said = ", ".join(f"{setting} {value}" for setting, value in differing.items())
    first = ways.first_cluster(topic, route.source, route.destination)
    if route.topics.merge or first is None:
        why = "other routes may write the topic, too ('merge')"
    else:
        why = f"of the clusters that bring it to each other {first!r} is first by name"
    return f"{said} is not carried over: {why}"


def _taken(name: str, written: frozenset[str], claims: TopicClaims) -> str | None:
    """Which of these topics another route writes; `name` is told before others."""
    taken = written & claims.keys()
    if not taken:
        return None
    told = name if name in taken else min(taken)
    return f"the route {claims[told]!r} writes {told!r} already"


def _copied(topic: str, name: str, earlier: EarlierCopies) -> str | None:
    """Which route has the position that this one would have."""
    other = earlier.route_of(topic, name)
    if other is None:
        return None
    return (
        f"the route {other!r} copies it to {name!r} already, 'exactly_once' as this one: they would have one "
        "position there; make them one route, or use another 'name' or 'delivery'"
    )


def _illegal(name: str, written: frozenset[str]) -> str | None:
    """Which of these topics nobody can make, or no route may write; `name` is told before others."""
    for each in (name, *sorted(written - {name})):
        if not is_legal_topic(each):
            return f"{each!r} is not a legal topic name"
        if is_internal(each):
            return f"{each!r}: {INTERNAL_REFUSAL}"
    return None


def _obstacle(name: str, destination: Destination, taken: str | None, sync: SyncSpec) -> str | None:
    known = destination.topics.get(name)
    if taken is not None:
        return taken
    if known is None or not known.exists:
        return None if sync.topics else f"there is no {name!r}, and 'sync.topics' says not to create it"
    if known.is_hidden:
        return str(missing_right(known.error, destination.name, name, DESCRIBE))
    if known.error is not ErrorCode.NONE:
        return f"{name!r}: {known.error.meaning}" if not known.error.retriable else None
    return None
