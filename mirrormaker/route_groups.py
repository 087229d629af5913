"""Where the group of a route is: at the coordinators of its source, or in the ZooKeeper of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.coordination.protocol import Coordination
from broker.errors import CoordinationError
from mirrormaker.topology.model import ClusterSpec, Membership, RouteSpec

SESSION_TIMEOUT_MS = 10_000
"""How long partitions of a process that died stay nobody's."""
CONNECT_TIMEOUT_MS = 5_000


@asynccontextmanager
async def meeting_place(
    route: RouteSpec, source: ClusterSpec, *, reads_only: bool = False
) -> AsyncIterator[Coordination | None]:
    """A session with the source's ZooKeeper where the route's group meets there, else None. Who `reads_only`
    makes nothing there, not even what the address names.

    Raises CoordinationError that names the cluster.
    """
    if route.membership is not Membership.ZOOKEEPER:
        yield None
        return
    from broker.coordination.zookeeper import ZooKeeper  # here alone: few routes meet there

    assert source.zookeeper is not None, "checked with the topology"
    session = ZooKeeper(source.zookeeper, session_timeout_ms=SESSION_TIMEOUT_MS, makes_chroot=not reads_only)
    try:
        await session.start(timeout_ms=CONNECT_TIMEOUT_MS)
    except CoordinationError as error:
        raise CoordinationError(f"cluster {source.name!r}: {error}") from error
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def route_group(
    route: RouteSpec,
    source: ClusterSpec,
    cluster: Cluster,
    *,
    timeout_ms: int = 30_000,
    reads_only: bool = False,
) -> AsyncIterator[GroupOffsetAdmin]:
    """Administration of the route's group; `cluster` is the source. `reads_only`: see `meeting_place`.
    Raises CoordinationError.
    """
    async with meeting_place(route, source, reads_only=reads_only) as coordination:
        if coordination is None:
            yield GroupOffsetAdmin(cluster, timeout_ms=timeout_ms)
        else:
            from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin  # as above

            yield ZooKeeperGroupAdmin(cluster, coordination, timeout_ms=timeout_ms)
