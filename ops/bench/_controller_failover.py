"""A node is killed, of the controller or another, and everything until all is led and served is timed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic

from broker.client.connection import Connection
from broker.coordination import paths
from broker.coordination.znodes import ControllerZnode
from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedCluster
from broker.types import BrokerId
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse

CONTROLLER = "/controller"
PROBE_SECONDS = 0.01
TIMEOUT_SECONDS = 300.0
SESSION_TIMEOUT_MS = 10_000
LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverTimes:
    """Seconds since the kill."""

    broker_id: int
    """Who was killed."""
    session_over: float
    """The killed node's znode was gone: that of the controller, or of the broker."""
    elected: float
    """There was a controller."""
    serving: float
    """Every node named a leader that is alive for every partition, and every leader served as one."""


async def fail_over(
    cluster: EmbeddedCluster, *, partitions: int, of_controller: bool = True
) -> FailoverTimes:
    """Kill the controller's node, or another one; `partitions` are in the cluster. Raises TimeoutError."""
    zookeeper = ZooKeeper(cluster.spec.zookeeper_connect, session_timeout_ms=SESSION_TIMEOUT_MS)
    await zookeeper.start(timeout_ms=SESSION_TIMEOUT_MS)
    try:
        controller = await _controller(zookeeper)
        assert controller is not None, "a cluster that serves has a controller"
        if of_controller:
            return await _fail_over(cluster, zookeeper, controller, CONTROLLER, partitions)
        victim = max(broker_id for broker_id in cluster.pids if broker_id != controller)
        return await _fail_over(cluster, zookeeper, victim, paths.broker(BrokerId(victim)), partitions)
    finally:
        await zookeeper.close()


async def _fail_over(
    cluster: EmbeddedCluster, zookeeper: ZooKeeper, victim: int, znode: str, partitions: int
) -> FailoverTimes:
    """Kill `victim`, whose session holds `znode` until it is over."""
    held = await zookeeper.get(znode)
    assert held is not None, "a node that serves is registered"
    async with AsyncExitStack() as connections:
        others = {
            broker_id: await Connection.open(address)
            for broker_id, address in enumerate(cluster.bootstrap, 1)
            if broker_id != victim
        }
        for connection in others.values():
            connections.push_async_callback(connection.close)
        start = monotonic()
        await asyncio.to_thread(cluster.kill_node, victim)

        async def is_gone() -> bool:
            now = await zookeeper.get(znode)
            return now is None or now.czxid != held.czxid

        async def is_elected() -> bool:
            return await _controller(zookeeper) in others

        async def is_served() -> bool:
            return await _is_served(others, partitions)

        session_over = await _time(is_gone, start)
        elected = await _time(is_elected, start)
        return FailoverTimes(
            broker_id=victim,
            session_over=session_over,
            elected=elected,
            serving=await _time(is_served, start),
        )


async def _time(condition: Callable[[], Awaitable[bool]], start: float) -> float:
    """Seconds from `start` until the condition holds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if await condition():
                return monotonic() - start
            await asyncio.sleep(PROBE_SECONDS)


async def _controller(zookeeper: ZooKeeper) -> int | None:
    znode = await zookeeper.get(CONTROLLER)
    return None if znode is None else ControllerZnode.decode(znode.data, CONTROLLER).broker_id


async def _is_served(nodes: dict[int, Connection], partitions: int) -> bool:
    """Whether all nodes know the same leaders, all of them among the nodes, and these lead."""
    pictures = [_leaders(await node.request(MetadataRequest(topics=None))) for node in nodes.values()]
    first = pictures[0]
    if any(picture != first for picture in pictures) or len(first) < partitions:
        return False
    if not set(first.values()) <= nodes.keys():
        return False
    served = [
        await _leads(node, [found for found, leader in first.items() if leader == broker_id])
        for broker_id, node in nodes.items()
    ]
    return all(served)


def _leaders(metadata: MetadataResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name or "", partition.partition_index): partition.leader_id
        for topic in metadata.topics
        for partition in topic.partitions
    }


async def _leads(node: Connection, partitions: Collection[tuple[str, int]]) -> bool:
    """Whether the node tells where these end, as only their leader does, once it knows what is committed."""
    wanted = defaultdict(list)
    for topic, partition in partitions:
        wanted[topic].append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
    topics = [ListOffsetsTopic(name=topic, partitions=found) for topic, found in wanted.items()]
    answer = await node.request(ListOffsetsRequest(replica_id=-1, topics=topics))
    return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)
