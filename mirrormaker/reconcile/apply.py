"""Takes the steps of a plan, cluster by cluster, and tells of each as soon as it is known. What one cluster
does not do keeps no other from being asked; taken again, only what is lacking is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.start import start_offsets
from mirrormaker.plan.steps import (
    AddPartitions,
    AddRules,
    AdoptTopic,
    ChangeSettings,
    ClusterStep,
    CreateTopic,
    Step,
    TopicStep,
)
from mirrormaker.reconcile.topic_steps import StepResult, take_topic_steps
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import ClusterName, Delivery, RouteName, RouteSpec, Topology

_BUSY = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.NON_EMPTY_GROUP)
"""What the group of a route that is at work answers to others who would move its positions."""

_KEPT_IN_TRANSACTIONS = (
    "an exactly-once route keeps positions in its transactions alone: say 'topics.existing: append'"
)


async def apply_steps(topology: Topology, steps: Sequence[Step]) -> AsyncIterator[StepResult[Step]]:
    """Take those steps that concern clusters; what the daemon does about its routes is its own business."""
    by_cluster: dict[ClusterName, list[ClusterStep]] = defaultdict(list)
    adoptions: dict[RouteName, list[AdoptTopic]] = defaultdict(list)
    for step in steps:
        match step:
            case CreateTopic() | AddPartitions() | ChangeSettings() | AddRules():
                by_cluster[step.cluster].append(step)
            case AdoptTopic():
                adoptions[step.route].append(step)
    for name, listed in by_cluster.items():
        async for result in _at_cluster(topology, name, listed):
            yield result
    for route in topology.routes:
        if route.name in adoptions:
            for result in await _adopt(topology, route, adoptions[route.name]):
                yield result


async def _at_cluster(
    topology: Topology, name: ClusterName, steps: Sequence[ClusterStep]
) -> AsyncIterator[StepResult[Step]]:
    about_topics: list[TopicStep] = [step for step in steps if not isinstance(step, AddRules)]
    about_rules = [step for step in steps if isinstance(step, AddRules)]
    done: list[Step] = []
    try:
        async with open_cluster(topology.clusters[name]) as cluster:
            for result in await take_topic_steps(Admin(cluster), about_topics):
                done.append(result.step)
                yield StepResult(step=result.step, error=result.error)
            for rules in about_rules:
                done.append(rules)
                yield StepResult(step=rules, error=await _add_rules(cluster, rules))
    except BrokerError as error:
        for step in steps:
            if step not in done:
                yield StepResult(step=step, error=str(error))


async def _add_rules(cluster: Cluster, step: AddRules) -> str | None:
    try:
        outcomes = await AclAdmin(cluster).add_rules(step.rules)
    except ProtocolError as error:
        return str(error)
    return next((str(error) for error in outcomes if error is not None), None)


async def _adopt(topology: Topology, route: RouteSpec, steps: Sequence[AdoptTopic]) -> list[StepResult[Step]]:
    if route.delivery is Delivery.EXACTLY_ONCE:
        return [StepResult(step=step, error=_KEPT_IN_TRANSACTIONS) for step in steps]
    try:
        spec = topology.clusters[route.source]
        async with open_cluster(spec) as source, route_group(route, spec, source) as group:
            await source.refresh([step.source for step in steps])
            partitions = source.metadata.topic_partitions([step.source for step in steps])
            starts = await start_offsets(source, route.start, partitions)
            await group.reset_group_offsets(route.group, starts)
    except ProtocolError as error:
        busy = error.code in _BUSY
        told = f"the route {route.name!r} is at work: pause it first" if busy else str(error)
        return [StepResult(step=step, error=told) for step in steps]
    except BrokerError as error:
        return [StepResult(step=step, error=str(error)) for step in steps]
    return [StepResult(step=step, error=None) for step in steps]
