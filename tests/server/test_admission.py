"""Who may connect, on real sockets: who is over a limit is closed, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection, ConnectionSettings
from broker.embedded import EmbeddedCluster
from broker.errors import ConnectionFailedError
from broker.server.acceptor import Processor
from broker.server.security import Listener
from broker.settings import ResourceType
from broker.types import HostPort
from broker.wire.messages import alter_client_quotas as alter
from broker.wire.messages import incremental_alter_configs as alter_configs
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.metadata import MetadataRequest
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import connected
from tests.server.running_node import running_node

TWO_LISTENERS: dict[str, Any] = {
    "listeners": ("INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"),
    "listener_security_protocol_map": ("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
    "inter_broker_listener_name": "INSIDE",
}
QUIET = ConnectionSettings(request_timeout_ms=30_000)


async def is_served(connection: Connection) -> bool:
    """Whether the node answers, rather than closing the connection."""
    try:
        return bool((await connection.request(MetadataRequest(topics=[]))).brokers)
    except ConnectionFailedError:
        return False


@contextlib.asynccontextmanager
async def attempts(listener: Listener, count: int) -> AsyncIterator[list[bool]]:
    """So many connections, one after the other and kept; which of them were served."""
    async with contextlib.AsyncExitStack() as stack:
        served = []
        for _ in range(count):
            try:
                connection = await stack.enter_async_context(await Connection.open(listener.address, QUIET))
            except ConnectionFailedError:
                served.append(False)
                continue
            served.append(await is_served(connection))
        yield served


def test_a_listener_has_its_own_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {**TWO_LISTENERS, "of_listeners": {("OUTSIDE", "max.connections"): 1}}
        async with (
            running_node(tmp_path, **settings) as (inside, outside),
            attempts(outside, 2) as served_outside,
            attempts(inside, 2) as served_inside,
        ):
            assert served_outside == [True, False]
            assert served_inside == [True, True]

    asyncio.run(scenario())


def test_the_limit_of_a_listener_is_altered_while_the_node_runs(tmp_path: Path) -> None:
    name = "listener.name.outside.max.connections"

    async def alter(listener: Listener, operation: int, value: str | None) -> None:
        change = alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
        node = alter_configs.AlterConfigsResource(
            resource_type=ResourceType.BROKER, resource_name="1", configs=[change]
        )
        request = alter_configs.IncrementalAlterConfigsRequest(resources=[node])
        async with await Connection.open(listener.address, QUIET) as administrator:
            (answer,) = (await administrator.request(request)).responses
            assert answer.error_code == 0, answer.error_message

    async def scenario() -> None:
        async with running_node(tmp_path, **TWO_LISTENERS) as (inside, outside):
            await alter(inside, 0, "1")
            async with attempts(outside, 2) as served:
                assert served == [True, False]
            await alter(inside, 1, None)
            async with attempts(outside, 2) as served:
                assert served == [True, True]

    asyncio.run(scenario())


def test_nodes_get_in_where_others_are_over_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_node(tmp_path, **TWO_LISTENERS, max_connections=2) as (inside, outside),
            await Connection.open(outside.address, QUIET) as quietest,
            await Connection.open(outside.address, QUIET) as busy,
        ):
            assert await is_served(quietest)
            assert await is_served(busy)
            async with attempts(outside, 1) as served:
                assert served == [False]
            async with attempts(inside, 1) as served:
                assert served == [True]
                assert await is_served(busy)
                assert not await is_served(quietest)

    asyncio.run(scenario())


@pytest.mark.parametrize("limit", ["node", "listener"])
def test_a_storm_of_connections_waits_its_turn_and_all_are_served(tmp_path: Path, limit: str) -> None:
    async def scenario() -> None:
        rate = "max.connection.creation.rate"
        settings: dict[str, Any] = {"quota_window_num": 1}
        if limit == "node":
            settings["max_connection_creation_rate"] = 10
        else:
            settings["of_listeners"] = {("PLAINTEXT", rate): 10}
        async with running_node(tmp_path, **settings) as (listener, *_):
            started = time.monotonic()
            async with attempts(listener, 25) as served:
                assert served == [True] * 25
            assert time.monotonic() - started > 1

    asyncio.run(scenario())


def test_an_address_that_connects_too_often_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, quota_window_num=2) as (listener, *_):
            entry = alter.EntryData(
                entity=[alter.EntityData(entity_type="ip", entity_name="127.0.0.1")],
                ops=[alter.OpData(key="connection_creation_rate", value=3.0)],
            )
            async with await Connection.open(listener.address, QUIET) as admin:
                (answer,) = (await admin.request(AlterClientQuotasRequest(entries=[entry]))).entries
                assert answer.error_code == 0
                async with attempts(listener, 6) as served:
                    assert served[:3] == [True] * 3
                    assert False in served
                    assert await is_served(admin)

    asyncio.run(scenario())


# Descriptors


@pytest.fixture
def node(cluster: ClusterFactory) -> EmbeddedCluster:
    return cluster()


@contextlib.contextmanager
def descriptors_limited(pid: int, spare: int) -> Iterator[None]:
    """The process may open only so many descriptors more."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + spare, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_node_out_of_descriptors_serves_whom_it_has_and_does_not_spin(node: EmbeddedCluster) -> None:
    pid, log = node.pids[1], node.spec.directory / "node-1.log"

    def refusals() -> int:
        return log.read_text().count('"accept_failed"')

    with connected(node.bootstrap[0]) as first, contextlib.ExitStack() as stack:
        assert first.request(MetadataRequest(topics=[])).brokers
        with descriptors_limited(pid, spare=2):
            waiting = [stack.enter_context(connected(node.bootstrap[0])) for _ in range(20)]
            until(lambda: refusals() >= 3)
            busy_before, before = cpu_seconds(pid), refusals()
            until(lambda: refusals() >= before + 5)
            assert cpu_seconds(pid) - busy_before < 0.5
            assert first.request(MetadataRequest(topics=[])).brokers
        for client in waiting:
            assert client.request(MetadataRequest(topics=[])).brokers


# Sockets


def test_an_unfinished_connection_is_closed_when_it_is_silent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, connections_max_idle_ms=100) as (listener, *_):
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.write(b"\0\0\1")
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_buffers_of_sockets_are_as_large_as_was_asked_for(node_socket_sizes: tuple[int, int]) -> None:
    """The kernel doubles what it is asked for."""
    assert node_socket_sizes == (2 * 32_768, 2 * 16_384)


@pytest.fixture
def node_socket_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Receive and send buffer of an accepted socket."""
    seen: list[tuple[int, int]] = []
    adopt = Processor.adopt

    def watch(self: Processor, sock: socket.socket, peer: HostPort, listener: Listener) -> None:
        sizes = [sock.getsockopt(socket.SOL_SOCKET, kind) for kind in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
        seen.append((sizes[0], sizes[1]))
        adopt(self, sock, peer, listener)

    monkeypatch.setattr(Processor, "adopt", watch)

    async def scenario() -> None:
        settings = {"socket_receive_buffer_bytes": 32_768, "socket_send_buffer_bytes": 16_384}
        async with running_node(tmp_path, **settings) as (listener, *_), attempts(listener, 1):
            pass

    asyncio.run(scenario())
    return seen[0]
