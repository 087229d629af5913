from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from broker.client.cluster import Cluster
from broker.client.discovery import discovered
from broker.client.producer import Producer
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import BrokerZnode, Endpoint
from broker.errors import ConnectionFailedError
from broker.types import HostPort, TopicPartition
from tests.client.leaders import Leader, ProducingPeer
from tests.client.peers import serving
from tests.client.running import QUICK, run, until
from tests.client.test_producer import CONNECTIONS, SETTINGS


@asynccontextmanager
async def session(tree: MemoryTree) -> AsyncIterator[MemorySession]:
    opened = MemorySession(tree)
    await opened.start(timeout_ms=1_000)
    try:
        yield opened
    finally:
        await opened.close()


async def register(coordination: MemorySession, broker_id: int, address: HostPort) -> None:
    endpoint = Endpoint(
        listener="OUTSIDE", host=address.host, port=address.port, security_protocol="PLAINTEXT"
    )
    inner = Endpoint(listener="INSIDE", host="inside", port=1, security_protocol="SSL")
    znode = BrokerZnode(endpoints=(inner, endpoint))
    await coordination.create(f"/brokers/ids/{broker_id}", znode.encode(), ephemeral=True)


def test_brokers_are_read_from_zookeeper_and_followed_as_they_come_and_go() -> None:
    async def main() -> None:
        tree = MemoryTree()
        async with session(tree) as brokers, session(tree) as client:
            await register(brokers, 10, HostPort("ten", 10))
            await register(brokers, 9, HostPort("nine", 9))
            async with discovered(client) as discovery:
                assert discovery.addresses == [HostPort("nine", 9), HostPort("ten", 10)]
                await brokers.delete("/brokers/ids/9")
                await until(lambda: discovery.addresses == [HostPort("ten", 10)])

    run(main)


def test_a_cluster_moves_on_to_brokers_that_were_registered_later() -> None:
    async def main() -> None:
        tree, logs = MemoryTree(), dict[TopicPartition, Leader]()
        former, later = ProducingPeer(1, logs=logs), ProducingPeer(2, logs=logs)
        async with (
            session(tree) as brokers,
            session(tree) as client,
            serving([later], partitions=1),
            AsyncExitStack() as place_of_former,
        ):
            await place_of_former.enter_async_context(serving([former], partitions=1))
            await register(brokers, 1, former.address)
            async with (
                discovered(client) as discovery,
                Cluster(discovery.addresses, settings=CONNECTIONS, backoff=QUICK) as cluster,
                Producer(cluster, settings=SETTINGS, backoff=QUICK) as producer,
            ):
                discovery.follow(cluster)
                await (await producer.send("t", b"a"))
                await place_of_former.aclose()
                await register(brokers, 2, later.address)
                await brokers.delete("/brokers/ids/1")
                await until(lambda: list(cluster.metadata.nodes) == [2])
                await (await producer.send("t", b"b"))
        assert logs[TopicPartition("t", 0)].values == [b"a", b"b"]

    run(main)


def test_no_broker_in_zookeeper_is_an_error() -> None:
    async def main() -> None:
        async with session(MemoryTree()) as client:
            with pytest.raises(ConnectionFailedError, match="no broker with a listener for PLAINTEXT is reg"):
                await discovered(client).__aenter__()

    run(main)
