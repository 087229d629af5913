"""Desired x observed -> plan: what a topology asks for against the world as it is. Pure.

Topics of a destination are compared one route after the other, each with what the ones before leave behind,
and one topic belongs to the route that comes first, unless both say that they merge. What a cluster looks
like after the steps is what is checked for fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from broker.client.access_rule import AccessRule
from broker.errors import ErrorCode
from mirrormaker.plan.adoption import undecided_topics
from mirrormaker.plan.circles import circle_notices, real_names
from mirrormaker.plan.effects import after
from mirrormaker.plan.fit import (
    access_notices,
    declared_right_notices,
    destination_right_notices,
    fit_notices,
    hidden_notices,
    own_right_notices,
    parking_notices,
    size_notices,
    source_right_notices,
)
from mirrormaker.plan.grounds import Written
from mirrormaker.plan.joining import joined
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.plan import Plan
from mirrormaker.plan.rules import RuleScope, lacking_rules
from mirrormaker.plan.standing import (
    RouteEstimate,
    budget_notices,
    estimate_route,
    gone_notices,
    lag_notices,
    moved_notices,
    standing_notices,
)
from mirrormaker.plan.steps import (
    AddPartitions,
    AddRules,
    AdoptTopic,
    ChangeSettings,
    CreateTopic,
    RouteStep,
    Step,
    TopicStep,
)
from mirrormaker.plan.topics import (
    CLUSTER_DEFAULT,
    Destination,
    TopicClaims,
    TopicPlan,
    compare_topic,
    declared_topic,
    plan_topics,
)
from mirrormaker.plan.world import ObservedCluster, ObservedTopic, UnreachableCluster, World
from mirrormaker.topology.further_topics import parked_topic
from mirrormaker.topology.group_selection import GroupSelection
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, TopicSpec, Topology
from mirrormaker.topology.naming import compile_naming
from mirrormaker.topology.shared_positions import EarlierCopies, earlier_sharers
from mirrormaker.topology.ways import Ways, settings_ways

_OF_WHAT_IS_LEFT = frozenset(
    {
        NoticeKind.OBSTACLE,
        NoticeKind.PARTITIONS,
        NoticeKind.MESSAGE_SIZE,
        NoticeKind.COMPRESSION,
        NoticeKind.TIMESTAMPS,
    }
)
"""Notices about topics as they are once the steps are done: what the last draft tells of them counts."""


def make_plan(topology: Topology, world: World, digest: str, route_steps: Sequence[RouteStep] = ()) -> Plan:
    """The plan for `topology`, whose text has `digest`; `route_steps`: those of the daemon that runs here."""
    circles = tuple(circle_notices(topology, world))
    hops_max = 1 if any(notice.blocks for notice in circles) else len(topology.clusters)
    steps, notices, estimates = _draft_all(topology, world, hops_max)
    return Plan(
        digest=digest,
        generation=topology.generation,
        clusters={
            name: cluster.cluster_id
            for name, cluster in world.clusters.items()
            if isinstance(cluster, ObservedCluster)
        },
        steps=(*steps, *route_steps),
        notices=(*_cluster_notices(world), *circles, *notices),
        routes=tuple(estimates),
    )


def _draft_all(
    topology: Topology, world: World, hops_max: int
) -> tuple[list[Step], list[Notice], list[RouteEstimate]]:
    """Steps, notices and estimates: draft after draft, each in the world that the one before leaves behind,
    as what that makes may be what a route copies.
    """
    sources = {route.source for route in topology.routes if route.enabled}
    draft = _Draft(topology, world)
    draft.complete()
    steps, notices = [*draft.steps], [*draft.notices]
    for _ in range(hops_max - 1):
        if not any(_changes_one_of(sources, step) for step in draft.steps):
            break
        decided = {step for step in steps if isinstance(step, AdoptTopic)}
        world = draft.world_after()
        draft = _Draft(topology, world)
        draft.complete()
        draft.steps = [step for step in draft.steps if not (isinstance(step, AdoptTopic) and step in decided)]
        steps += draft.steps
        notices = [notice for notice in notices if notice.kind not in _OF_WHAT_IS_LEFT]
        notices += [notice for notice in draft.notices if notice not in notices]
    return joined(steps), notices, draft.estimates


def _changes_one_of(clusters: Collection[ClusterName], step: Step) -> bool:
    """Whether the step makes, or changes, a topic of one of these."""
    match step:
        case CreateTopic() | AddPartitions() | ChangeSettings():
            return step.cluster in clusters
    return False


class _Draft:
    """A plan while it is made."""

    def __init__(self, topology: Topology, world: World) -> None:
        self.steps: list[Step] = []
        self.notices: list[Notice] = []
        self.estimates: list[RouteEstimate] = []
        self._topology = topology
        self._world = world
        self._names = real_names(world)
        self._merging = {route.name for route in topology.routes if route.topics.merge}
        self._topics: dict[ClusterName, Mapping[str, ObservedTopic]] = {
            name: cluster.topics
            for name, cluster in world.clusters.items()
            if isinstance(cluster, ObservedCluster)
        }
        self._ways = _ways_by_route(topology)
        self._earlier = earlier_sharers(topology.routes)
        self._writers: dict[ClusterName, dict[str, RouteName]] = defaultdict(dict)
        self._copies: dict[ClusterName, set[str]] = defaultdict(set)

    def complete(self) -> None:
        """All that the topology asks for."""
        for route in self._topology.routes:
            if route.enabled:
                self.add_route(route)
        self.add_declared_topics()

    def world_after(self) -> World:
        """The world once the steps are done."""
        rules: dict[ClusterName, list[AccessRule]] = defaultdict(list)
        unknown: dict[ClusterName, set[str]] = defaultdict(set)
        for step in self.steps:
            match step:
                case AddRules():
                    rules[self._names[step.cluster]] += step.rules
                case CreateTopic(partitions=partitions) if partitions == CLUSTER_DEFAULT:
                    unknown[self._names[step.cluster]].add(step.name)

        def after_steps(cluster: ObservedCluster) -> ObservedCluster:
            key = self._names[cluster.name]
            known = None if cluster.rules is None else (*cluster.rules, *rules[key])
            return replace(cluster, topics=_hidden(self._topics[key], unknown[key]), rules=known)

        return World(
            clusters={
                name: after_steps(cluster) if isinstance(cluster, ObservedCluster) else cluster
                for name, cluster in self._world.clusters.items()
            }
        )

    def add_route(self, route: RouteSpec) -> None:
        """Steps and notices of one route; nothing while one of its ends is away."""
        source, destination = self._world.reached(route.source), self._world.reached(route.destination)
        if source is None or destination is None:
            return
        naming = compile_naming(route.source, route.topics)
        key = self._names[destination.name]
        planned = plan_topics(
            route,
            naming,
            source.topics,
            Destination(
                name=destination.name,
                topics=self._topics[key],
                nodes=destination.nodes,
                declared=self._topology.clusters[destination.name].topics,
            ),
            self._claims(route, key),
            self._ways.get(route.name, Ways()),
            EarlierCopies(self._earlier.get(route.name, ())),
        )
        self._copies[key].update(planned.destinations.values())
        for written in planned.written.values():
            self._writers[key] |= dict.fromkeys(written, route.name)
        self._topics[key] = after(self._topics[key], planned.steps)
        self.steps += planned.steps
        self.steps += _adoptions(route, source, destination, planned.written)
        self.steps += _rule_steps(route, source, destination, planned.destinations)
        seen = [name for name, topic in source.topics.items() if not topic.is_hidden]
        self.notices += hidden_notices(route.name, source, sorted(naming.unseen(seen)))
        self.notices += own_right_notices(route, source, destination)
        self.notices += access_notices(route, source, destination)
        self._tell_obstacles(route, planned.obstacles)
        self.notices += (
            Notice(kind=NoticeKind.SETTING, about=f"{route.name}: {topic}", message=why)
            for topic, why in planned.left.items()
        )
        self._tell_fit(route, source, destination, planned)
        copied = [source.topics[name] for name in planned.destinations]
        positions = source.stands(route.name)
        groups, starts = _carried_groups(route, source), source.starts.get(route.name, {})
        estimate = estimate_route(route, copied, positions, groups, starts)
        self.notices += budget_notices(route, estimate)
        self.estimates.append(estimate)

    def add_declared_topics(self) -> None:
        """Topics that the file asks for and that are no copies of others."""
        for spec in self._topology.clusters.values():
            key = self._names[spec.name]
            known, cluster = self._topics.get(key), self._world.reached(spec.name)
            if known is None or cluster is None:
                continue
            steps: list[TopicStep] = []
            for name in sorted(spec.topics):
                if name not in self._copies[key]:
                    desired = declared_topic(name, spec.topics[name])
                    steps += compare_topic(spec.name, desired, known.get(name))
                self.notices += _declared_notices(spec.name, spec.topics[name], known.get(name))
            self.notices += hidden_notices(spec.name, cluster, sorted(spec.topics))
            self.notices += declared_right_notices(cluster, steps)
            self.steps += steps
            self._topics[key] = after(known, steps)

    def _claims(self, route: RouteSpec, key: ClusterName) -> TopicClaims:
        merges = route.topics.merge
        return {
            topic: owner
            for topic, owner in self._writers[key].items()
            if not (merges and owner in self._merging)
        }

    def _tell_obstacles(self, route: RouteSpec, obstacles: Mapping[str, str]) -> None:
        self.notices += (
            Notice(kind=NoticeKind.OBSTACLE, about=f"{route.name}: {topic}", message=f"is not copied: {why}")
            for topic, why in obstacles.items()
        )

    def _tell_fit(
        self,
        route: RouteSpec,
        source: ObservedCluster,
        destination: ObservedCluster,
        planned: TopicPlan,
    ) -> None:
        copies = self._topics[self._names[destination.name]]
        declared = self._topology.clusters[destination.name].topics
        positions, punctual = source.stands(route.name), source.punctual.get(route.name, {})
        for topic, name in planned.destinations.items():
            further = sorted(planned.written[topic] - {name})
            self.notices += source_right_notices(route, source.topics[topic])
            self.notices += fit_notices(route, source.topics[topic], copies[name], declared.get(name))
            if (parked := parked_topic(route, name)) not in (None, name):
                self.notices += parking_notices(route, source.topics[topic], copies.get(parked))
            for each in further:
                self.notices += size_notices(route, source.topics[topic], copies[each])
            at = positions.get(topic, {})
            if (before := source.moved.get(route.name, {}).get(topic)) is not None:
                self.notices += moved_notices(route, source.topics[topic], before, name)
            elif name not in destination.topics or not destination.topics[name].exists:
                self.notices += gone_notices(route, source.topics[topic], name, at)
            self.notices += standing_notices(route, source.topics[topic], at)
            self.notices += lag_notices(route, source.topics[topic], at, punctual)
        names = sorted({name for written in planned.written.values() for name in written})
        self.notices += destination_right_notices(route, destination, names, planned.steps)


def _hidden(topics: Mapping[str, ObservedTopic], unknown: Collection[str]) -> Mapping[str, ObservedTopic]:
    """The topics, of which some cannot be told yet what they are like: their cluster decides that."""
    return {
        name: replace(topic, error=ErrorCode.LEADER_NOT_AVAILABLE) if name in unknown else topic
        for name, topic in topics.items()
    }


def _ways_by_route(topology: Topology) -> dict[RouteName, Ways]:
    """Those of settings; routes that have the same share them."""
    ways = settings_ways(topology.routes)
    trees = {each: Ways(each) for each in set(ways.values())}
    return {name: trees[each] for name, each in ways.items()}


def _cluster_notices(world: World) -> Iterator[Notice]:
    for name, cluster in world.clusters.items():
        if isinstance(cluster, UnreachableCluster):
            yield Notice(kind=NoticeKind.UNREACHABLE, about=name, message=cluster.problem)
        else:
            for problem in cluster.problems:
                yield Notice(kind=NoticeKind.NOT_TOLD, about=name, message=problem)


def _adoptions(
    route: RouteSpec, source: ObservedCluster, destination: ObservedCluster, written: Written
) -> Iterator[AdoptTopic]:
    """Topics that hold records which, for all that is known, are not the route's."""
    left = undecided_topics(route, source, destination, written)
    sources = {name: topic for topic in sorted(left, reverse=True) for name in left[topic]}
    for name, topic in sorted(sources.items()):
        yield AdoptTopic(
            route=route.name,
            cluster=destination.name,
            name=name,
            source=topic,
            topic_id=destination.topics[name].topic_id,
        )


def _rule_steps(
    route: RouteSpec,
    source: ObservedCluster,
    destination: ObservedCluster,
    destinations: Mapping[str, str],
) -> Iterator[AddRules]:
    if not route.sync.acls or source.rules is None or destination.rules is None:
        return
    scope = RuleScope(topics=destinations, groups=_carried_groups(route, source), moves=route.sync.write_acls)
    rules = lacking_rules(source.rules, destination.rules, scope)
    if rules:
        yield AddRules(cluster=destination.name, rules=rules)


def _carried_groups(route: RouteSpec, source: ObservedCluster) -> tuple[str, ...]:
    selection = GroupSelection(route.sync.groups)
    return tuple(filter(selection.selects, source.groups or ()))


def _declared_notices(cluster: ClusterName, spec: TopicSpec, known: ObservedTopic | None) -> Iterator[Notice]:
    if known is None or not known.exists or known.error is not ErrorCode.NONE:
        return
    about, wanted = f"{cluster}: {known.name}", spec.partitions
    if wanted is not None and known.partitions > wanted:
        message = f"{known.partitions} partitions, the file asks for {wanted}: they are never made fewer"
        yield Notice(kind=NoticeKind.PARTITIONS, about=about, message=message)
    if spec.replication is not None and known.replication != spec.replication:
        message = f"{known.replication} replicas, the file asks for {spec.replication}: reassign them by hand"
        yield Notice(kind=NoticeKind.REPLICATION, about=about, message=message)
