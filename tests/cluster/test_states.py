"""In-sync sets in ZooKeeper, as brokers other than the controller write them."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.states import leave_isrs, write_isr
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import BadVersionError
from broker.coordination.znodes import PartitionStateZnode
from broker.types import NO_LEADER, LeaderEpoch, TopicPartition
from tests.cluster.scenes import T0, T1, T2, ids, topic

SECOND = ids(2)[0]


def state(leader: int, *isr: int) -> PartitionStateZnode:
    return PartitionStateZnode(
        controller_epoch=1, leader=ids(leader)[0], leader_epoch=LeaderEpoch(4), isr=ids(*isr)
    )


def test_a_broker_that_may_have_lost_records_leaves_every_set_that_has_another_member() -> None:
    async def scenario() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1000)
        await session.create(paths.topic("t"), topic({0: [1, 2], 1: [2, 1], 2: [2]}).encode())
        for tp, stored in ((T0, state(1, 1, 2)), (T1, state(2, 2, 1)), (T2, state(2, 2))):
            await session.create(paths.partition_state(tp), stored.encode())

        async def now(tp: TopicPartition) -> tuple[PartitionStateZnode, int]:
            znode = await session.get(paths.partition_state(tp))
            assert znode is not None
            return PartitionStateZnode.decode(znode.data, ""), znode.version

        assert (await leave_isrs(session, SECOND)).left == [T0, T1]
        followed, _ = await now(T0)
        assert (followed.leader, followed.isr, followed.leader_epoch) == (1, ids(1), 5)
        led, _ = await now(T1)
        assert (led.leader, led.isr, led.leader_epoch) == (NO_LEADER, ids(1), 5)
        assert await now(T2) == (state(2, 2), 0)
        (announced,) = await session.children(paths.ISR_CHANGES)
        assert announced

    asyncio.run(scenario())


def test_a_broker_that_knows_what_it_lost_leaves_the_sets_of_that_alone() -> None:
    async def scenario() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1000)
        await session.create(paths.topic("t"), topic({0: [1, 2], 1: [2, 1]}).encode())
        for tp, stored in ((T0, state(1, 1, 2)), (T1, state(2, 2, 1))):
            await session.create(paths.partition_state(tp), stored.encode())
        assert (await leave_isrs(session, SECOND, only={T1, T2})).left == [T1]

    asyncio.run(scenario())


def test_such_a_broker_leaves_the_sets_of_topics_that_cannot_be_read_too() -> None:
    async def scenario() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1000)
        await session.create(paths.topic("t"), b"garbage")
        await session.create(paths.partition_state(T0), state(2, 2, 1).encode())
        await session.create(paths.partition_state(T1), b"garbage")
        assert (await leave_isrs(session, SECOND)).left == [T0]

    asyncio.run(scenario())


def test_a_leader_that_is_about_to_take_such_a_broker_in_is_refused() -> None:
    async def scenario() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1000)
        await session.create(paths.topic("t"), topic({0: [1, 2]}).encode())
        await session.create(paths.partition_state(T0), state(1, 1).encode())
        assert (await leave_isrs(session, SECOND)).left == []
        with pytest.raises(BadVersionError):
            await write_isr(session, T0, state(1, 1, 2), 0)
        assert await write_isr(session, T0, state(1, 1, 2), 1) == 2

    asyncio.run(scenario())
