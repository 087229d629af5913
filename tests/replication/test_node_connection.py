"""The connection of a fetcher, to real nodes that come and go at other addresses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.client.connection import ConnectionSettings
from broker.cluster.image import BrokerInfo
from broker.coordination.memory import MemoryTree
from broker.coordination.znodes import Endpoint
from broker.errors import ConnectionFailedError
from broker.replication.node_connection import NodeConnection
from broker.server.security import Listener
from broker.types import BrokerId
from broker.wire.messages.metadata import MetadataRequest
from tests.server.running_node import running_node


def at(listener: Listener) -> BrokerInfo:
    address = listener.address
    endpoint = Endpoint(
        listener="PLAINTEXT", host=address.host, port=address.port, security_protocol="PLAINTEXT"
    )
    return BrokerInfo(id=BrokerId(1), epoch=1, endpoints={"PLAINTEXT": endpoint})


def test_a_node_that_comes_back_at_another_address_is_followed_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        connection, tree = NodeConnection("PLAINTEXT", ConnectionSettings(keeps_frames=True)), MemoryTree()
        for _ in range(2):
            async with running_node(tmp_path, tree=tree) as (listener, *_others):
                for _ in range(2):
                    told = await connection.send(at(listener), MetadataRequest(topics=[]))
                    assert told.brokers[0].port == listener.address.port
            with pytest.raises(ConnectionFailedError):
                await connection.send(at(listener), MetadataRequest(topics=[]))
        await connection.close()

    asyncio.run(scenario())


def test_a_node_without_the_listener_of_nodes_cannot_be_reached() -> None:
    async def scenario() -> None:
        connection = NodeConnection("INTERNAL", ConnectionSettings())
        with pytest.raises(ConnectionFailedError, match="broker 1 has no listener INTERNAL"):
            await connection.send(BrokerInfo(id=BrokerId(1), epoch=1, endpoints={}), MetadataRequest())
        await connection.close()

    asyncio.run(scenario())
