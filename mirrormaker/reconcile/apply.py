"""Takes the steps of a plan, cluster by cluster, and tells of each as soon as it is known. What one cluster
does not do keeps no other from being asked; taken again, only what is lacking is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError, ProtocolError
from mirrormaker.clusters import open_cluster
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
from mirrormaker.reconcile.control_records import control_of, this_user
from mirrormaker.reconcile.take_overs import take_over_record
from mirrormaker.reconcile.topic_steps import StepResult, take_topic_steps
from mirrormaker.topology.model import ClusterName, Topology


async def apply_steps(
    topology: Topology, steps: Sequence[Step], clock: Clock
) -> AsyncIterator[StepResult[Step]]:
    """Take those steps that concern clusters; what the daemon does about its routes is its own business."""
    by_cluster: dict[ClusterName, list[ClusterStep]] = defaultdict(list)
    adoptions: dict[ClusterName, list[AdoptTopic]] = defaultdict(list)
    for step in steps:
        match step:
            case CreateTopic() | AddPartitions() | ChangeSettings() | AddRules():
                by_cluster[step.cluster].append(step)
            case AdoptTopic():
                adoptions[step.cluster].append(step)
    for name, listed in by_cluster.items():
        async for result in _at_cluster(topology, name, listed):
            yield result
    for name, adopted in adoptions.items():
        for result in await _adopt(topology, name, adopted, clock):
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
                yield StepResult(step=result.step, error=result.shortfall)
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


async def _adopt(
    topology: Topology, name: ClusterName, steps: Sequence[AdoptTopic], clock: Clock
) -> list[StepResult[Step]]:
    """Note what was decided; whoever runs the routes, now or later, goes by it."""
    records = [
        take_over_record(step.route, step.name, step.topic_id, clock.now_ms(), this_user()) for step in steps
    ]
    error: str | None = None
    try:
        async with control_of(topology.clusters[name]) as topic:
            await topic.put(records)
    except BrokerError as failure:
        error = str(failure)
    return [StepResult(step=step, error=error) for step in steps]
