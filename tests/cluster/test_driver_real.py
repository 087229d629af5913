"""The controller on a real ZooKeeper: the whole line once, and a failover with many partitions."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from broker.cluster.topics import create_topic, delete_topic
from broker.coordination import paths
from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedZooKeeper
from broker.types import TopicPartition
from tests.cluster.nodes import Member, Nodes, until_empty
from tests.cluster.scenes import T0, ids

PARTITIONS = 2_000
LONG_SESSION_MS = 30_000
"""One loop does the work of both nodes for all partitions, and may stand still for seconds."""


async def connect(server: EmbeddedZooKeeper, chroot: str, session_timeout_ms: int = 6_000) -> ZooKeeper:
    session = ZooKeeper(server.connect_string(chroot), session_timeout_ms=session_timeout_ms)
    await session.start(timeout_ms=10_000)
    return session


def test_a_topic_lives_and_dies_on_a_real_ensemble(zookeeper: EmbeddedZooKeeper) -> None:
    async def scenario() -> None:
        chroot, nodes = f"line-{uuid4().hex}", Nodes()
        one = await Member.join(nodes, await connect(zookeeper, chroot), 1)
        two = await Member.join(nodes, await connect(zookeeper, chroot), 2)
        try:
            await create_topic(one.session, "t", assignment={0: ids(1, 2)}, config={})
            await nodes.until(lambda: one.node.leads(T0) and two.node.image.partition(T0) is not None)
            await one.leave()
            await nodes.until(lambda: two.node.leads(T0))
            back = await Member.join(nodes, await connect(zookeeper, chroot), 1)
            await nodes.until(lambda: set(two.node.image.brokers) == {1, 2})
            await delete_topic(two.session, "t")
            await until_empty(two.session, paths.DELETE_TOPICS)
            assert two.node.image.topics == {}
            await back.leave()
        finally:
            await one.leave()
            await two.leave()

    asyncio.run(scenario())


def test_a_controller_with_many_partitions_is_followed(zookeeper: EmbeddedZooKeeper) -> None:
    async def scenario() -> None:
        chroot, nodes = f"many-{uuid4().hex}", Nodes()
        one = await Member.join(nodes, await connect(zookeeper, chroot, LONG_SESSION_MS), 1)
        two = await Member.join(nodes, await connect(zookeeper, chroot, LONG_SESSION_MS), 2)
        try:
            assignment = {number: ids(1, 2) for number in range(PARTITIONS)}
            await create_topic(one.session, "t", assignment=assignment, config={})
            await nodes.until(lambda: len(one.node.roles) == PARTITIONS)
            await one.leave()
            last = TopicPartition("t", PARTITIONS - 1)
            await nodes.until(lambda: two.node.leads(T0) and two.node.leads(last))
        finally:
            await one.leave()
            await two.leave()

    asyncio.run(scenario())
