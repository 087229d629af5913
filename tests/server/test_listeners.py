"""Several listeners: everybody is told the addresses of the one that they came in on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.coordination.memory import MemoryTree
from broker.coordination.znodes import BrokerZnode
from broker.errors import ErrorCode, StorageError
from broker.server.acceptor import ListenError
from broker.server.security import Listener, SecurityProtocol
from broker.types import HostPort
from broker.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.scene import until
from tests.server.running_node import running_node

PROTOCOLS = ("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT")
SOME_PORT = 29_092


async def told(connection: Connection) -> set[HostPort]:
    """The addresses of node 1 that the node tells, in all the answers that have any."""
    metadata = await connection.request(MetadataRequest(topics=[]))
    cluster = await connection.request(DescribeClusterRequest())
    found = await connection.request(FindCoordinatorRequest(coordinator_keys=["group"]), 4)
    (coordinator,) = found.coordinators
    assert coordinator.error_code == 0, coordinator.error_message
    places = [*metadata.brokers, *cluster.brokers, coordinator]
    return {HostPort(place.host, place.port) for place in places}


async def told_on(address: HostPort) -> set[HostPort]:
    async with await Connection.open(address) as connection:
        return await told(connection)


def registered(tree: MemoryTree) -> dict[str, HostPort]:
    znode = tree.get("/brokers/ids/1")
    assert znode is not None
    broker = BrokerZnode.decode(znode.data, "/brokers/ids/1")
    return {endpoint.listener: endpoint.address for endpoint in broker.endpoints}


def test_clients_of_each_listener_are_told_its_own_addresses(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        settings: dict[str, Any] = {
            "listeners": ("INSIDE://127.0.0.1:0", "OUTSIDE://[::1]:0"),
            "listener_security_protocol_map": PROTOCOLS,
        }
        async with running_node(tmp_path, tree=tree, **settings) as (inside, outside):
            assert inside.address.port
            assert outside.address == HostPort("::1", outside.address.port)
            assert registered(tree) == {"INSIDE": inside.address, "OUTSIDE": outside.address}
            for listener in (inside, outside):
                assert await told_on(listener.address) == {listener.address}

    asyncio.run(scenario())


def test_what_is_advertised_is_told_whatever_is_bound(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        public = HostPort("broker.example.org", SOME_PORT)
        settings: dict[str, Any] = {
            "listeners": ("INSIDE://127.0.0.1:0", "OUTSIDE://0.0.0.0:0"),
            "advertised_listeners": ("INSIDE://127.0.0.1:0", f"OUTSIDE://{public}"),
            "listener_security_protocol_map": PROTOCOLS,
            "inter_broker_listener_name": "INSIDE",
        }
        async with running_node(tmp_path, tree=tree, **settings) as (inside, outside):
            assert registered(tree) == {"INSIDE": inside.address, "OUTSIDE": public}
            assert await told_on(HostPort("127.0.0.1", outside.address.port)) == {public}
            assert await told_on(inside.address) == {inside.address}

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["", "[::]"])
def test_a_wildcard_is_reached_over_both_families(tmp_path: Path, host: str) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {
            "listeners": (f"PLAINTEXT://{host}:0",),
            "advertised_listeners": ("PLAINTEXT://127.0.0.1:0",),
            "max_connections_per_ip_overrides": ("127.0.0.1:1",),
        }
        async with running_node(tmp_path, **settings) as (listener,):
            port = listener.address.port
            assert await told_on(HostPort("::1", port)) == {HostPort("127.0.0.1", port)}
            assert await told_on(HostPort("127.0.0.1", port)) == {HostPort("127.0.0.1", port)}

    asyncio.run(scenario())


def test_limits_for_an_address_hold_on_sockets_of_both_families(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {
            "listeners": ("PLAINTEXT://:0",),
            "advertised_listeners": ("PLAINTEXT://127.0.0.1:0",),
            "max_connections_per_ip_overrides": ("127.0.0.1:0",),
        }
        async with running_node(tmp_path, **settings) as (listener,):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
            assert await reader.read() == b""
            writer.close()
            assert await told_on(HostPort("::1", listener.address.port))

    asyncio.run(scenario())


def test_nodes_reach_each_other_on_the_listener_for_nodes(tmp_path: Path) -> None:
    """What is advertised outside leads nowhere from here."""

    async def scenario() -> None:
        tree = MemoryTree()
        settings: dict[str, Any] = {
            "listeners": ("OUTSIDE://127.0.0.1:0", "INSIDE://127.0.0.1:0"),
            "advertised_listeners": (f"OUTSIDE://192.0.2.1:{SOME_PORT}", "INSIDE://127.0.0.1:0"),
            "listener_security_protocol_map": PROTOCOLS,
            "inter_broker_listener_name": "INSIDE",
        }
        async with (
            running_node(tmp_path, tree=tree, **settings),
            running_node(tmp_path, tree=tree, broker_id=2, **settings) as (_, second),
            await Connection.open(second.address) as connection,
        ):
            metadata = await connection.request(MetadataRequest(topics=[]))
            while len(metadata.brokers) < 2:  # told by the controller, over the listener for nodes
                metadata = await connection.request(MetadataRequest(topics=[]))
            assert {broker.host for broker in metadata.brokers} == {"127.0.0.1"}

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_came_in_on_a_listener_that_the_leader_lacks_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        one: dict[str, Any] = {
            "listeners": ("INSIDE://127.0.0.1:0",),
            "listener_security_protocol_map": PROTOCOLS,
        }
        both: dict[str, Any] = {
            **one,
            "listeners": ("INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"),
            "inter_broker_listener_name": "INSIDE",
        }
        async with (
            running_node(tmp_path, tree=tree, **one) as (first,),
            await Connection.open(first.address) as inside,
            running_node(tmp_path, tree=tree, broker_id=2, **both) as (_, second),
            await Connection.open(second.address) as outside,
        ):
            assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
            new = CreatableTopic(
                name="t", num_partitions=-1, replication_factor=-1, assignments=assignment, configs=[]
            )
            (created,) = (await inside.request(CreateTopicsRequest(topics=[new]))).topics
            assert created.error_code == 0
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
            for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):

                async def told(version: int = version) -> tuple[int, int]:
                    (topic,) = (await outside.request(asked, version)).topics
                    return next(((part.error_code, part.leader_id) for part in topic.partitions), (-1, -1))

                await until(told, lambda found, code=code: found == (code, -1))
            (topic,) = (await inside.request(asked)).topics
            assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (0, 1)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async def scenario(port: int) -> None:
        async with running_node(tmp_path, listeners=(f"PLAINTEXT://127.0.0.1:{port}",)) as _:
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"PLAINTEXT://127.0.0.1:{port}: Address already in use"):
            asyncio.run(scenario(port))


def test_a_host_that_is_not_here_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"listeners": ("PLAINTEXT://192.0.2.1:0",)}
        async with running_node(tmp_path, **settings):
            pass

    with pytest.raises(StorageError, match=r"192.0.2.1:0: Cannot assign requested address"):
        asyncio.run(scenario())


def test_a_listener_is_written_as_in_its_setting() -> None:
    listener = Listener(name="A", protocol=SecurityProtocol.PLAINTEXT, address=HostPort("::1", 1))
    assert str(listener) == "A://[::1]:1"
