import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from broker.coordination.connect_string import ConnectString
from broker.coordination.multi_read import MultiRead
from broker.coordination.protocol import SessionKey, SessionLostError, SessionState
from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ConfigurationError, CoordinationError
from broker.loopback import free_ports
from broker.types import HostPort
from tests.coordination.ensembles import Proxy, Told


def test_a_connect_string_is_servers_and_a_chroot() -> None:
    connect = ConnectString.parse("a:2181, b,[::1]:2182/jfk/x/")
    assert connect.servers == (HostPort("a", 2181), HostPort("b", 2181), HostPort("::1", 2182))
    assert connect.chroot == "/jfk/x"
    assert ConnectString.parse(str(connect)) == connect


@pytest.mark.parametrize("text", ["", "/jfk", "a:x", "a:2181,,b", "a:2181//x", "a:99999"])
def test_a_malformed_connect_string_is_refused_and_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"zookeeper\.connect"):
        ZooKeeper(text, session_timeout_ms=4_000)


def test_an_absent_server_is_named_after_the_timeout() -> None:
    [port] = free_ports(1)

    async def scenario() -> None:
        session = ZooKeeper(f"127.0.0.1:{port}", session_timeout_ms=4_000)
        with pytest.raises(CoordinationError, match=f"127.0.0.1:{port} within 300 ms.*refused"):
            await session.start(timeout_ms=300)
        with pytest.raises(SessionLostError):
            await session.get("/")

    asyncio.run(scenario())


def test_ending_a_session_is_given_up_when_no_server_is_there() -> None:
    [port] = free_ports(1)
    session = ZooKeeper(f"127.0.0.1:{port}", session_timeout_ms=4_000)
    key = SessionKey(session_id=1, password=b"x" * 16)
    assert not asyncio.run(session.end_session(key, timeout_ms=300))


def test_clusters_share_a_server_by_chroot(zookeeper: EmbeddedZooKeeper) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(20):
            one = ZooKeeper(zookeeper.connect_string("share/jfk"), session_timeout_ms=4_000)
            two = ZooKeeper(zookeeper.connect_string("share/lga"), session_timeout_ms=4_000)
            await one.start(timeout_ms=10_000)
            await two.start(timeout_ms=10_000)
            try:
                await one.create("/brokers/ids/1", b"")
                assert await two.children("/brokers/ids") == []
                assert await one.children("/") == ["brokers"]
            finally:
                await one.close()
                await two.close()

    asyncio.run(scenario())


def test_a_server_that_cannot_read_many_at_once_is_asked_singly(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiRead, "type", 99)  # what 22 is to a server before 3.6: it cuts the connection

    async def body(session: ZooKeeper) -> None:
        await session.create("/one", b"1", ephemeral=True)
        one, two = await session.get_all(["/one", "/two"])
        assert one is not None
        assert (one.data, one.ephemeral_owner) == (b"1", session.session_id)
        assert two is None
        assert session.state is SessionState.CONNECTED

    _with_session(zookeeper, body)


def test_one_znode_that_may_not_be_read_refuses_a_read_of_many(zookeeper: EmbeddedZooKeeper) -> None:
    async def body(session: ZooKeeper) -> None:
        await session.create("/open", b"")
        client = KazooClient(zookeeper.connect_string("single"))
        await asyncio.to_thread(client.start)
        try:
            nobody = [make_acl("ip", "192.0.2.1", all=True)]
            await asyncio.to_thread(client.create, "/closed", b"", nobody)
        finally:
            await asyncio.to_thread(client.stop)
            await asyncio.to_thread(client.close)
        with pytest.raises(CoordinationError, match="get /closed: NoAuthError"):
            await session.get_all(["/open", "/closed"])

    _with_session(zookeeper, body)


def _with_session(
    server: EmbeddedZooKeeper, body: Callable[[ZooKeeper], Awaitable[None]], timeout_ms: int = 20_000
) -> None:
    async def scenario() -> None:
        session = ZooKeeper(server.connect_string("single"), session_timeout_ms=timeout_ms)
        await session.start(timeout_ms=10_000)
        try:
            await body(session)
        finally:
            await session.close()

    asyncio.run(scenario())


def test_a_hung_event_loop_gives_its_session_up(zookeeper: EmbeddedZooKeeper) -> None:
    async def body(session: ZooKeeper) -> None:
        states = Told()
        session.on_state(states)
        await session.create("/alive", b"", ephemeral=True)
        before = session.session_id
        time.sleep(2)  # noqa: ASYNC251 - what a blocked loop looks like from outside
        await states.until(lambda: states.values[-1:] == [SessionState.CONNECTED])
        assert SessionState.LOST in states.values
        assert session.session_id != before
        assert await session.get("/alive") is None

    _with_session(zookeeper, body, timeout_ms=1_000)


def test_many_operations_are_in_flight_at_once(zookeeper: EmbeddedZooKeeper) -> None:
    async def body(session: ZooKeeper) -> None:
        await asyncio.gather(*(session.create(f"/many/{number}", b"x" * 100) for number in range(500)))
        znodes = await asyncio.gather(*(session.get(f"/many/{number}") for number in range(500)))
        assert all(znode is not None and znode.data == b"x" * 100 for znode in znodes)
        await session.delete("/many", recursive=True)

    _with_session(zookeeper, body)


def test_a_restarted_server_is_found_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def scenario() -> None:
        server = EmbeddedZooKeeper(tmp_path_factory.mktemp("restarted"))
        server.start()
        session = ZooKeeper(server.connect_string("c"), session_timeout_ms=6_000)
        try:
            await session.start(timeout_ms=10_000)
            states = Told()
            session.on_state(states)
            await session.create("/kept", b"data")
            await asyncio.to_thread(server.stop)
            await states.until(lambda: SessionState.SUSPENDED in states.values)
            await asyncio.to_thread(server.start)
            await states.until(lambda: states.values[-1:] == [SessionState.CONNECTED])
            znode = await session.get("/kept")
            assert znode is not None
            assert znode.data == b"data"
        finally:
            await session.close()
            server.stop()

    asyncio.run(scenario())


def test_connects_that_a_starting_server_never_answers_are_made_again(zookeeper: EmbeddedZooKeeper) -> None:
    """Long before the session's time is over."""

    async def scenario() -> None:
        proxy = Proxy(zookeeper.port)
        proxy.silent_connections = 2
        await proxy.open()
        session = ZooKeeper(f"127.0.0.1:{proxy.port}/silent", session_timeout_ms=60_000)
        try:
            await session.start(timeout_ms=30_000)
            states = Told()
            session.on_state(states)
            proxy.silent_connections = 1
            await proxy.close()
            await states.until(lambda: SessionState.SUSPENDED in states.values)
            await proxy.open()
            await states.until(lambda: states.values[-1:] == [SessionState.CONNECTED])
        finally:
            await session.close()
            await proxy.close()

    asyncio.run(scenario())
