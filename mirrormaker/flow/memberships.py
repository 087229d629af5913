"""The group that a route asks for: at the coordinator of its source, or in the source's ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.client.cluster import Cluster
from broker.client.group import GroupMember
from broker.client.group_settings import GroupSettings
from broker.clock import Clock
from broker.types import TopicPartition
from broker.wire.messages.join_group import JoinGroupRequest
from mirrormaker.flow.balancer import Balancer
from mirrormaker.flow.membership import PartitionOwner, SourceMembership
from mirrormaker.flow.route_parts import RouteParts
from mirrormaker.flow.zookeeper_membership import ZooKeeperMembership
from mirrormaker.topology.model import RouteSpec

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000

_FIRST_JOIN_VERSION_WITH_INSTANCES = 5


async def make_membership(
    route: RouteSpec,
    source: Cluster,
    parts: RouteParts,
    topics: Callable[[], frozenset[str]],
    owner: PartitionOwner,
    balancer: Balancer,
    clock: Clock,
) -> SourceMembership:
    """Of a process that copies `topics` as the `owner` of what it is given; `balancer` evens the work out
    where members do that themselves. Raises BrokerError when the source cannot be asked.
    """
    if parts.coordination is not None:
        return ZooKeeperMembership(parts.coordination, route.group, topics(), owner, clock)
    settings = await _group_settings(source, route, parts.instance_id)

    async def take_over(partitions: Collection[TopicPartition]) -> None:
        balancer.shared_out(member)
        owner.count(balancer.members)
        owner.begin(partitions, await owner.prepare(partitions))

    async def lose(partitions: Collection[TopicPartition]) -> None:
        owner.lose(partitions)

    member = GroupMember(
        source,
        settings,
        subscription=topics(),
        assignors=(balancer.assignor,),
        on_assigned=take_over,
        on_revoked=owner.give_up,
        on_lost=lose,
    )
    return member


async def _group_settings(source: Cluster, route: RouteSpec, instance_id: str) -> GroupSettings:
    """For a static member where the source knows such. Raises BrokerError."""
    connection = await source.any_connection()
    static = connection.version_of(JoinGroupRequest) >= _FIRST_JOIN_VERSION_WITH_INSTANCES
    return GroupSettings(
        group_id=route.group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        instance_id=instance_id if static else None,
        metadata_max_age_ms=route.refresh_interval_ms,
    )
