from __future__ import annotations

import asyncio

import pytest

from broker.cluster.registration import allocate_producer_ids, obtain_cluster_id, register_broker
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import BrokerZnode
from broker.errors import CoordinationError, ProtocolError
from broker.types import BrokerId
from tests.cluster.scenes import broker_znode

ONE = BrokerId(1)


async def two_sessions() -> tuple[MemorySession, MemorySession]:
    tree = MemoryTree()
    first, second = MemorySession(tree), MemorySession(tree)
    await first.start(timeout_ms=1_000)
    await second.start(timeout_ms=1_000)
    return first, second


def test_a_registered_broker_is_found_with_its_endpoints() -> None:
    async def scenario() -> None:
        session, other = await two_sessions()
        epoch = await register_broker(session, ONE, broker_znode(1), session_timeout_ms=100)
        znode = await other.get(paths.broker(ONE))
        assert znode is not None
        assert znode.czxid == epoch
        assert BrokerZnode.decode(znode.data, "") == broker_znode(1)

    asyncio.run(scenario())


def test_an_id_in_use_is_refused_and_its_holder_named() -> None:
    async def scenario() -> None:
        session, other = await two_sessions()
        await register_broker(other, ONE, broker_znode(1), session_timeout_ms=100)
        with pytest.raises(ProtocolError, match=r"broker id 1 is in use.*127\.0\.0\.1:9001"):
            await register_broker(session, ONE, broker_znode(2), session_timeout_ms=20, tick_ms=10)

    asyncio.run(scenario())


def test_an_id_is_taken_over_once_the_old_session_ends() -> None:
    async def scenario() -> None:
        session, other = await two_sessions()
        old = await register_broker(other, ONE, broker_znode(1), session_timeout_ms=100)
        waiting = asyncio.create_task(
            register_broker(session, ONE, broker_znode(2), session_timeout_ms=10_000)
        )
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
        await other.close()
        assert await waiting > old

    asyncio.run(scenario())


def test_registering_again_after_an_expiry_gives_a_new_epoch() -> None:
    async def scenario() -> None:
        session, _ = await two_sessions()
        old = await register_broker(session, ONE, broker_znode(1), session_timeout_ms=100)
        assert await register_broker(session, ONE, broker_znode(1), session_timeout_ms=100) == old
        session.expire()
        assert await register_broker(session, ONE, broker_znode(1), session_timeout_ms=100) > old

    asyncio.run(scenario())


def test_all_nodes_get_the_same_cluster_id() -> None:
    async def scenario() -> None:
        session, other = await two_sessions()
        made = await asyncio.gather(obtain_cluster_id(session), obtain_cluster_id(other))
        assert made[0] == made[1]
        assert len(made[0]) == 22

    asyncio.run(scenario())


def test_a_corrupt_cluster_id_is_an_error_that_names_it() -> None:
    async def scenario() -> None:
        session, _ = await two_sessions()
        await session.create(paths.CLUSTER_ID, b"garbage")
        with pytest.raises(CoordinationError, match=paths.CLUSTER_ID):
            await obtain_cluster_id(session)

    asyncio.run(scenario())


def test_no_producer_id_is_handed_out_twice() -> None:
    async def scenario() -> None:
        session, other = await two_sessions()
        blocks = await asyncio.gather(
            *(allocate_producer_ids(s, ONE) for _ in range(5) for s in (session, other))
        )
        ids = [producer_id for block in blocks for producer_id in block]
        assert len(set(ids)) == len(ids) == 10_000

    asyncio.run(scenario())
