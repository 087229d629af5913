from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from broker.client.cluster import Cluster
from broker.client.connection import Connection, ConnectionSettings
from broker.client.consumer import Consumer
from broker.client.producer import Producer, ProducerSettings
from broker.client.security.connection_security import ConnectionSecurity
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ConnectionFailedError,
    ErrorCode,
)
from broker.types import TopicPartition
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.produce import ProduceRequest
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.client.peers import Peer, PeerCluster
from tests.client.running import QUICK, run, until
from tests.client.sasl_peer import Guard

NAMED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def login(mechanism: str, password: str = "pencil", **options: str) -> ConnectionSettings:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        given["sasl.oauthbearer.token"] = password
    else:
        given |= {"sasl.username": "mirror", "sasl.password": password}
    security = ConnectionSecurity.from_options(given | options)
    return ConnectionSettings(security=security, connect_timeout_ms=5_000)


def groups(name: str) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=name)])


@contextlib.asynccontextmanager
async def guarded(*, in_bare_frames: bool = False, lifetime_ms: int = 0) -> AsyncIterator[Guard]:
    async with Peer() as peer:
        peer.on(ListGroupsRequest, lambda _: groups(str(len(peer.seen(ListGroupsRequest)))))
        yield Guard(peer, in_bare_frames=in_bare_frames, lifetime_ms=lifetime_ms)


def refusal(settings: ConnectionSettings, *, in_bare_frames: bool = False) -> BrokerError:
    async def main() -> None:
        async with guarded(in_bare_frames=in_bare_frames) as guard:
            await Connection.open(guard.peer.address, settings)

    with pytest.raises(BrokerError) as caught:
        run(main)
    return caught.value


@pytest.mark.parametrize("in_bare_frames", [False, True], ids=["requests", "bare frames"])
@pytest.mark.parametrize("mechanism", [*NAMED, "OAUTHBEARER"])
def test_who_the_client_is_is_said_before_anything_else(mechanism: str, in_bare_frames: bool) -> None:
    async def main() -> None:
        async with guarded(in_bare_frames=in_bare_frames) as guard:
            async with await Connection.open(guard.peer.address, login(mechanism)) as connection:
                assert await connection.request(ListGroupsRequest()) == groups("1")
            assert guard.logins == ["bearer" if mechanism == "OAUTHBEARER" else "mirror"]
            kinds = [type(request) for request in guard.peer.requests]
            assert kinds[:2] == [ApiVersionsRequest, SaslHandshakeRequest]
            assert kinds[-1] is ListGroupsRequest

    run(main)


@pytest.mark.parametrize("mechanism", [*NAMED, "OAUTHBEARER"])
def test_a_wrong_password_is_an_error_that_names_peer_and_mechanism_and_not_the_password(
    mechanism: str,
) -> None:
    error = refusal(login(mechanism, "pen"))
    assert isinstance(error, AuthenticationError)
    assert f": {mechanism} is refused: Invalid credentials" in str(error)
    assert "127.0.0.1:" in str(error)
    assert "pen" not in str(error).replace("pencil", "")


@pytest.mark.parametrize("mechanism", NAMED)
def test_an_old_peer_refuses_by_closing_the_connection(mechanism: str) -> None:
    error = refusal(login(mechanism, "pen"), in_bare_frames=True)
    assert isinstance(error, ConnectionFailedError)
    assert f"during {mechanism}: a broker this old closes the connection when it refuses" in str(error)


def test_a_mechanism_that_the_peer_does_not_offer_is_told_with_those_that_it_does() -> None:
    async def main() -> None:
        async with guarded() as guard:
            guard.mechanisms = ("GSSAPI", "PLAIN")
            await Connection.open(guard.peer.address, login("SCRAM-SHA-256"))

    with pytest.raises(
        AuthenticationError, match=r"SCRAM-SHA-256 is not among the SASL .* it offers: GSSAPI, PLAIN"
    ):
        run(main)


def test_a_listener_without_sasl_is_told_of() -> None:
    async def main() -> None:
        async with guarded() as guard:
            answer = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            guard.peer.on(SaslHandshakeRequest, lambda _: answer)
            await Connection.open(guard.peer.address, login("PLAIN"))

    with pytest.raises(AuthenticationError, match=r"is security\.protocol that of the listener"):
        run(main)


def test_a_node_that_knows_no_sasl_is_told_of() -> None:
    async def main() -> None:
        async with guarded() as guard:
            del guard.peer.versions[SaslHandshakeRequest.api_key]
            await Connection.open(guard.peer.address, login("PLAIN"))

    with pytest.raises(AuthenticationError, match=r"127\.0\.0\.1:\d+: it offers no SASL"):
        run(main)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    async def main() -> None:
        async with guarded() as guard:
            genuine = guard._authenticate

            def forged(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
                answer = genuine(request)
                if bytes(answer.auth_bytes).startswith(b"v="):
                    return SaslAuthenticateResponse(auth_bytes=b"v=Zm9yZ2Vk")
                return answer

            guard.peer.on(SaslAuthenticateRequest, forged)
            await Connection.open(guard.peer.address, login("SCRAM-SHA-512"))

    with pytest.raises(AuthenticationError, match=r"127\.0\.0\.1:\d+: SCRAM-SHA-512: the server's signature"):
        run(main)


def test_a_refused_password_is_not_tried_again() -> None:
    async def main() -> None:
        async with guarded() as guard:
            cluster = Cluster(
                PeerCluster(guard.peer).bootstrap, settings=login("PLAIN", "pen"), backoff=QUICK
            )
            with pytest.raises(AuthenticationError, match="Invalid credentials"):
                await cluster.start()
            await cluster.close()
            assert guard.peer.connections == 1

    run(main)


def test_a_producer_and_a_consumer_that_are_refused_later_say_so_at_once() -> None:
    async def main() -> None:
        async with guarded() as guard:
            scripted = PeerCluster(guard.peer)
            scripted.leaders = {"t": [1]}
            settings = login("PLAIN")
            async with Cluster(scripted.bootstrap, settings=settings, backoff=QUICK) as cluster:
                await cluster.ensure(["t"])
                guard.password = "changed"
                producing = ProducerSettings(idempotent=False)
                async with Producer(cluster, settings=producing) as producer:
                    delivery = await producer.send("t", b"value")
                    with pytest.raises(AuthenticationError, match="Invalid credentials"):
                        await delivery
                async with Consumer(cluster) as consumer:
                    consumer.assign({TopicPartition("t", 0): 0})
                    with pytest.raises(BrokerError, match="Invalid credentials"):
                        await consumer.take()

    run(main)


def test_a_password_in_a_file_is_read_for_every_connection(tmp_path: Path) -> None:
    async def main() -> None:
        secret = tmp_path / "password"
        settings = login("PLAIN", f"file:{secret}")
        async with guarded() as guard:
            with pytest.raises(ConfigurationError, match=f"sasl.password: {secret} cannot be read: No such"):
                await Connection.open(guard.peer.address, settings)
            for password in ("pencil", "crayon"):
                secret.write_text(f"{password}\n")
                guard.password = password
                await (await Connection.open(guard.peer.address, settings)).close()
            assert guard.logins == ["mirror", "mirror"]

    run(main)


def test_the_session_is_renewed_before_it_ends_and_no_request_comes_between() -> None:
    async def main() -> None:
        async with guarded(lifetime_ms=30) as guard:
            settings = login("SCRAM-SHA-256")
            async with await Connection.open(guard.peer.address, settings) as connection:
                asked = 0
                while len(guard.logins) < 4:
                    answers = [connection.send(ListGroupsRequest()) for _ in range(5)]
                    for answer in answers:
                        asked += 1
                        assert await answer == groups(str(asked))
            kinds = [type(request) for request in guard.peer.requests]
            logins = [place for place, kind in enumerate(kinds) if kind is SaslHandshakeRequest]
            for place in logins[:4]:
                assert kinds[place + 1 : place + 3] == [SaslAuthenticateRequest] * 2

    run(main)


def test_what_is_sent_while_the_session_is_renewed_waits_and_keeps_its_order() -> None:
    async def main() -> None:
        async with guarded(lifetime_ms=20) as guard:
            gate = asyncio.Event()
            genuine = guard._handshake

            async def gated(request: SaslHandshakeRequest) -> SaslHandshakeResponse:
                if guard.logins:
                    await gate.wait()
                return genuine(request)

            guard.peer.on(SaslHandshakeRequest, gated)
            guard.peer.on(ProduceRequest, lambda _: None)
            async with await Connection.open(guard.peer.address, login("PLAIN")) as connection:
                await until(lambda: len(guard.peer.seen(SaslHandshakeRequest)) == 2)
                guard.lifetime_ms = 0
                answers = [connection.send(ListGroupsRequest()) for _ in range(3)]
                connection.send_and_forget(ProduceRequest())
                drained = asyncio.create_task(connection.drained())
                assert connection.in_flight == 4, "the renewal's own request among them"
                await asyncio.sleep(0)
                assert not drained.done()
                gate.set()
                assert [await answer for answer in answers] == [groups(name) for name in "123"]
                await drained
                await until(lambda: bool(guard.peer.seen(ProduceRequest)))
            kinds = [type(request) for request in guard.peer.requests]
            assert kinds[-5:] == [SaslAuthenticateRequest, *[ListGroupsRequest] * 3, ProduceRequest]

    run(main)


def test_a_renewal_that_is_refused_closes_the_connection_and_fails_what_waits() -> None:
    async def main() -> None:
        async with guarded(lifetime_ms=20) as guard:
            gate = asyncio.Event()

            async def refused(_: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
                await gate.wait()
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return SaslAuthenticateResponse(error_code=code, error_message="Expired")

            connection = await Connection.open(guard.peer.address, login("PLAIN"))
            guard.peer.on(SaslAuthenticateRequest, refused)
            await until(lambda: len(guard.peer.seen(SaslAuthenticateRequest)) == 2)
            answer = connection.send(ListGroupsRequest())
            drained = asyncio.create_task(connection.drained())
            await asyncio.sleep(0)
            gate.set()
            for failing in (answer, drained):
                with pytest.raises(ConnectionFailedError, match=r"session could not be renewed.*Expired"):
                    await failing
            assert connection.closed

    run(main)


def test_closing_a_connection_ends_its_renewals() -> None:
    async def main() -> None:
        async with guarded(lifetime_ms=10) as guard:
            connection = await Connection.open(guard.peer.address, login("PLAIN"))
            await connection.close()
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(main)


def test_settings_and_logs_show_no_secret() -> None:
    settings = login("PLAIN", "pen")
    assert "pen'" not in repr(settings)
    assert "(hidden)" in repr(settings)
    with structlog.testing.capture_logs() as logs:
        error = refusal(settings)
    assert "pen'" not in repr((logs, error, error.__cause__))
