"""A node's entry into the cluster: its id, the cluster's id, and blocks of producer ids."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import uuid4

from broker.coordination import paths
from broker.coordination.protocol import BadVersionError, Coordination, NodeExistsError
from broker.coordination.znodes import BrokerZnode, ClusterIdZnode, ProducerIdBlockZnode, encode_uuid
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.types import BrokerId

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1
DEFAULT_TICK_MS = 2_000
"""ZooKeeper's own default; a session may live on for two ticks after its timeout."""


async def create_layout(coordination: Coordination) -> None:
    """Create the parents that are always there."""
    for path in paths.PERSISTENT:
        if await coordination.get(path) is None:
            try:
                await coordination.create(path, b"")
            except NodeExistsError:
                continue


async def obtain_cluster_id(coordination: Coordination) -> str:
    """The cluster's id, 22 characters, made up by the first node that asks."""
    znode = await coordination.get(paths.CLUSTER_ID)
    if znode is None:
        made = ClusterIdZnode(cluster_id=encode_uuid(uuid4()))
        try:
            await coordination.create(paths.CLUSTER_ID, made.encode())
            return made.cluster_id
        except NodeExistsError:
            znode = await coordination.get(paths.CLUSTER_ID)
    if znode is None:
        raise CoordinationError(f"{paths.CLUSTER_ID} was removed while it was read")
    return ClusterIdZnode.decode(znode.data, paths.CLUSTER_ID).cluster_id


async def register_broker(
    coordination: Coordination,
    broker_id: BrokerId,
    broker: BrokerZnode,
    *,
    session_timeout_ms: int,
    tick_ms: int = DEFAULT_TICK_MS,
) -> int:
    """Register an id for as long as this session lives; returns the broker epoch.

    An id that another session holds is waited for, session timeout + 2 ticks: the session of a node that
    was killed ends within that time. Raises ProtocolError DUPLICATE_BROKER_REGISTRATION when it is still
    held then.
    """
    await create_layout(coordination)
    path = paths.broker(broker_id)
    changed = asyncio.Event()
    end_watch = coordination.watch_data(path, changed.set)
    try:
        async with asyncio.timeout((session_timeout_ms + 2 * tick_ms) / 1000):
            while True:
                changed.clear()
                epoch = await _try_register(coordination, path, broker)
                if epoch is not None:
                    return epoch
                await changed.wait()
    except TimeoutError as error:
        holder = await _holder(coordination, path)
        raise ProtocolError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker id {broker_id} is in use by another live node{holder}; give this one another broker.id",
        ) from error
    finally:
        end_watch()


async def _try_register(coordination: Coordination, path: str, broker: BrokerZnode) -> int | None:
    """The broker epoch, None while another session has the id.

    What this session has there already, but with other content, is removed first: the controller looks at
    the content only when brokers come.
    """
    with contextlib.suppress(NodeExistsError):
        await coordination.create(path, broker.encode(), ephemeral=True)
    znode = await coordination.get(path)
    if znode is None or znode.ephemeral_owner != coordination.session_id:
        return None
    if znode.data != broker.encode():
        await coordination.delete(path)
        return await _try_register(coordination, path, broker)
    return znode.czxid


async def _holder(coordination: Coordination, path: str) -> str:
    znode = await coordination.get(path)
    if znode is None:
        return ""
    try:
        endpoints = BrokerZnode.decode(znode.data, path).endpoints
    except CoordinationError:
        return ""
    return f" at {endpoints[0].address}"


async def allocate_producer_ids(coordination: Coordination, broker_id: BrokerId) -> range:
    """A block of producer ids that no other node gets."""
    while True:
        znode = await coordination.get(paths.PRODUCER_ID_BLOCK)
        first = 0
        if znode is not None:
            first = ProducerIdBlockZnode.decode(znode.data, paths.PRODUCER_ID_BLOCK).last + 1
        last = first + PRODUCER_ID_BLOCK_SIZE - 1
        if last > PRODUCER_ID_MAX:
            raise CoordinationError("producer ids are used up")
        block = ProducerIdBlockZnode(broker_id=broker_id, first=first, last=last)
        try:
            if znode is None:
                await coordination.create(paths.PRODUCER_ID_BLOCK, block.encode())
            else:
                await coordination.set(paths.PRODUCER_ID_BLOCK, block.encode(), version=znode.version)
        except (NodeExistsError, BadVersionError):
            continue
        return range(first, last + 1)
