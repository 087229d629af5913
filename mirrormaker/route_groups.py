"""Where the group of a route is: at the coordinators of its source, or in the ZooKeeper of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.client.cluster import Cluster
from broker.client.group_descriptions import DEAD
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.coordination.paths import BROKER_IDS, CLUSTER_ID
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import ClusterIdZnode
from broker.errors import CoordinationError
from mirrormaker.topology.model import ClusterSpec, Membership, RouteSpec

SESSION_TIMEOUT_MS = 10_000
"""How long partitions of a process that died stay nobody's."""
CONNECT_TIMEOUT_MS = 5_000
_EMPTY = frozenset({"Empty", DEAD})


@asynccontextmanager
async def meeting_place(
    route: RouteSpec, source: ClusterSpec, cluster: Cluster
) -> AsyncIterator[Coordination | None]:
    """A session with the source's ZooKeeper where the route's group meets there, else None; `cluster` is the
    source, and the ZooKeeper is surely its own. Nothing is made there, not even what the address names.

    Raises CoordinationError that names the cluster.
    """
    if route.membership is not Membership.ZOOKEEPER:
        yield None
        return
    from broker.coordination.zookeeper import ZooKeeper  # here alone: few routes meet there

    connect = source.zookeeper or _embedded_zookeeper(source)
    session = ZooKeeper(connect, session_timeout_ms=SESSION_TIMEOUT_MS, makes_chroot=False)
    try:
        await session.start(timeout_ms=CONNECT_TIMEOUT_MS)
        try:
            await _require_own(session, cluster, connect)
        except CoordinationError:
            await session.close()
            raise
    except CoordinationError as error:
        raise CoordinationError(f"cluster {source.name!r}: {error}") from error
    try:
        yield session
    finally:
        await session.close()


async def _require_own(session: Coordination, cluster: Cluster, connect: str) -> None:
    """Raises CoordinationError where another cluster is there, or none: a group that met there would find
    no partitions, or those of others.
    """
    kept = await session.get(CLUSTER_ID)
    if kept is None:  # nodes before Kafka 0.10.1 have no id
        if cluster.cluster_id is None and await session.children(BROKER_IDS):
            return
        raise CoordinationError(f"the ZooKeeper at {connect} has no cluster: is its chroot the right one?")
    cluster_id = ClusterIdZnode.decode(kept.data, CLUSTER_ID).cluster_id
    if cluster.cluster_id not in (None, cluster_id):
        raise CoordinationError(
            f"the ZooKeeper at {connect} is of the cluster {cluster_id}, not of {cluster.cluster_id}"
        )


def _embedded_zookeeper(source: ClusterSpec) -> str:
    """Where `mirrormaker up` runs it now; its port is another after each start. Raises CoordinationError."""
    from broker.zookeeper_server import configured_address

    assert source.embedded is not None, "checked with the topology"
    assert source.embedded.zookeeper_directory is not None, "set by the loader"
    address = configured_address(source.embedded.zookeeper_directory)
    if address is None:
        raise CoordinationError(
            f"cluster {source.name!r}: its ZooKeeper was not started in {source.embedded.zookeeper_directory}"
        )
    return f"{address}/{source.name}"


@asynccontextmanager
async def route_group(
    route: RouteSpec,
    source: ClusterSpec,
    cluster: Cluster,
    *,
    timeout_ms: int = 30_000,
) -> AsyncIterator[GroupOffsetAdmin]:
    """Administration of the route's group; `cluster` is the source. Raises CoordinationError."""
    async with meeting_place(route, source, cluster) as coordination:
        if coordination is None:
            yield GroupOffsetAdmin(cluster, timeout_ms=timeout_ms)
        else:
            from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin  # as above

            yield ZooKeeperGroupAdmin(cluster, coordination, timeout_ms=timeout_ms)


async def count_members(admin: GroupOffsetAdmin, group_id: str) -> int:
    """How many processes are in a group; at least one while it is not settled. Raises BrokerError."""
    group = (await admin.describe_groups([group_id]))[group_id]
    return 0 if group.state in _EMPTY else max(len(group.members), 1)
