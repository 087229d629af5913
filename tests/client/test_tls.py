from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Connection, ConnectionSettings
from broker.client.security.connection_security import ConnectionSecurity
from broker.client.security.tls_context import client_context
from broker.client.stream import SocketStream
from broker.client.tls_stream import TlsStream
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ConnectionFailedError
from broker.types import HostPort
from broker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.certificates import Authority, Identity
from tests.client.peers import Peer, PeerCluster
from tests.client.running import QUICK, run, until

ANSWER = ListGroupsResponse(groups=[ListedGroup(group_id="g")])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Identity:
    return authority.issue("node")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def tls(options: Mapping[str, object]) -> ConnectionSettings:
    texts = {name: str(value) for name, value in options.items()}
    security = ConnectionSecurity.from_options({"security.protocol": "SSL", **texts})
    return ConnectionSettings(security=security, connect_timeout_ms=5_000)


def trusting(authority: Authority, **options: object) -> ConnectionSettings:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return tls({"ssl.truststore.location": authority.certificate, **named})


@contextlib.asynccontextmanager
async def secured_peer(context: ssl.SSLContext) -> AsyncIterator[Peer]:
    async with Peer(tls=context) as peer:
        peer.on(ListGroupsRequest, lambda _: ANSWER)
        yield peer


def asked(context: ssl.SSLContext, settings: ConnectionSettings, host: str = "127.0.0.1") -> None:
    """One request to a peer with that context."""

    async def main() -> None:
        async with secured_peer(context) as peer:
            address = HostPort(host, peer.address.port)
            async with await Connection.open(address, settings) as connection:
                assert await connection.request(ListGroupsRequest()) == ANSWER

    run(main)


def refused(context: ssl.SSLContext, settings: ConnectionSettings, host: str = "127.0.0.1") -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        asked(context, settings, host)
    return caught.value


def alerted(context: ssl.SSLContext, settings: ConnectionSettings) -> BrokerError:
    """What a client hears of a server that says why it refuses, which asyncio's do not."""

    def serve(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        with connected, contextlib.suppress(OSError):
            context.wrap_socket(connected, server_side=True).close()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.get_running_loop().run_in_executor(None, serve, listener)
            try:
                await Connection.open(HostPort("127.0.0.1", listener.getsockname()[1]), settings)
            finally:
                await serving

    with pytest.raises(BrokerError) as caught:
        run(main)
    return caught.value


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_pass_through_tls(authority: Authority, node: Identity, version: ssl.TLSVersion) -> None:
    context = node.server_context()
    context.minimum_version = context.maximum_version = version
    asked(context, trusting(authority))
    asked(context, trusting(authority), "localhost")


def test_large_requests_and_answers_pass_through_tls_whole(authority: Authority, node: Identity) -> None:
    async def main() -> None:
        async with secured_peer(node.server_context()) as peer:
            sent = [bytes(range(256)) * (size // 256) for size in (5_000_000, 256, 1_000_000)]
            answers = iter(sent)

            def answer(_: FetchRequest) -> FetchResponse:
                partition = PartitionData(partition_index=0, records=next(answers))
                return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

            peer.on(FetchRequest, answer)
            peer.on(ProduceRequest, lambda _: None)
            async with await Connection.open(peer.address, trusting(authority)) as connection:
                for records in sent:
                    data = [PartitionProduceData(index=0, records=memoryview(records))]
                    connection.send_and_forget(
                        ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
                    )
                await connection.drained()
                await until(lambda: len(peer.seen(ProduceRequest)) == 3)
                produced = [
                    request.topic_data[0].partition_data[0].records for request in peer.seen(ProduceRequest)
                ]
                assert [bytes(records) for records in produced] == sent
                fetched = [await connection.request(FetchRequest(), 12) for _ in sent]
                assert [bytes(answer.responses[0].partitions[0].records) for answer in fetched] == sent

    run(main)


def test_a_peer_that_goes_away_fails_what_is_in_flight(authority: Authority, node: Identity) -> None:
    async def main() -> None:
        async with secured_peer(node.server_context()) as peer:
            peer.on(ListGroupsRequest, lambda _: None)
            connection = await Connection.open(peer.address, trusting(authority))
            answer = connection.send(ListGroupsRequest())
            await until(lambda: bool(peer.seen(ListGroupsRequest)))
            peer.disconnect()
            with pytest.raises(ConnectionFailedError, match="closed by the peer"):
                await answer
            assert connection.closed

    run(main)


@pytest.mark.parametrize("option", ["ssl.truststore.location", "ssl.ca.location"])
def test_a_certificate_of_an_authority_that_is_not_trusted_is_refused(
    node: Identity, tmp_path: Path, option: str
) -> None:
    other = Authority(tmp_path, "other")
    error = refused(node.server_context(), tls({option: other.certificate}))
    assert isinstance(error, AuthenticationError)
    assert "127.0.0.1" in str(error)
    assert "certificate is refused: unable to get local issuer certificate (check 20)" in str(error)


def test_whoever_stands_among_the_trusted_is_trusted_without_an_authority(node: Identity) -> None:
    asked(node.server_context(), tls({"ssl.truststore.location": node.certificate}))


def test_certificates_may_stand_in_the_options(authority: Authority, node: Identity) -> None:
    asked(node.server_context(), tls({"ssl.truststore.certificates": authority.certificate.read_text()}))


def test_a_certificate_for_another_host_is_refused_unless_hosts_are_not_checked(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", hosts="DNS:elsewhere.example").server_context()
    error = refused(elsewhere, trusting(authority))
    assert isinstance(error, AuthenticationError)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1' (check 64)" in str(error)
    assert "certificate is not valid for 'localhost'" in str(
        refused(elsewhere, trusting(authority), "localhost")
    )
    asked(
        elsewhere,
        tls(
            {
                "ssl.truststore.location": authority.certificate,
                "ssl.endpoint.identification.algorithm": "",
            }
        ),
    )


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    expired = authority.issue("expired", expired=True)
    error = refused(expired.server_context(), trusting(authority))
    assert "certificate has expired (check 10)" in str(error)


def test_a_server_that_asks_for_a_certificate_gets_the_clients(
    authority: Authority, node: Identity, client: Identity
) -> None:
    context = node.server_context(clients=authority.certificate)
    asked(context, trusting(authority, ssl_keystore_location=client.both))
    asked(
        context,
        trusting(authority, ssl_certificate_location=client.certificate, ssl_key_location=client.key),
    )
    asked(
        context,
        tls(
            {
                "ssl.truststore.location": authority.certificate,
                "ssl.keystore.certificate.chain": client.certificate.read_text(),
                "ssl.keystore.key": client.key.read_text(),
            }
        ),
    )


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (ssl.TLSVersion.TLSv1_2, "no version, cipher or certificate that both sides accept"),
        (ssl.TLSVersion.TLSv1_3, "asks for a client certificate, and there is none (ssl.keystore.location)"),
    ],
)
def test_a_client_without_the_certificate_that_is_asked_for_is_told_so(
    authority: Authority, node: Identity, version: ssl.TLSVersion, problem: str
) -> None:
    context = node.server_context(clients=authority.certificate)
    context.minimum_version = context.maximum_version = version
    error = alerted(context, trusting(authority))
    assert isinstance(error, AuthenticationError), error
    assert problem in str(error)


def test_a_client_certificate_of_an_authority_that_the_server_does_not_trust_is_refused(
    authority: Authority, node: Identity, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("client")
    error = alerted(
        node.server_context(clients=authority.certificate),
        trusting(authority, ssl_keystore_location=stranger.both),
    )
    assert isinstance(error, AuthenticationError)
    assert "does not trust who issued the client certificate" in str(error)


class Loopback:
    """In the place of the socket: a server that answers at once, and then is gone."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.stream: TlsStream | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def write(self, parts: list[bytes]) -> None:
        assert self.stream is not None
        self._incoming.write(b"".join(parts))
        gone = False
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            gone = True
        answer = self._outgoing.read()
        if answer:
            self.stream.space()[: len(answer)] = answer
            self.stream.received(len(answer))
        if gone:
            self.stream.lost(ConnectionResetError("reset"))

    def close(self) -> None:
        pass


class Ending:
    """A receiver that notes how its stream ends."""

    def __init__(self) -> None:
        self.failures: list[Exception | None] = []

    def space(self) -> memoryview:
        return memoryview(bytearray(100))

    def received(self, count: int) -> None:
        raise AssertionError("nothing was sent")

    def lost(self, error: Exception | None) -> None:
        self.failures.append(error)


def test_a_refusal_that_arrives_while_the_handshakes_last_bytes_are_sent_is_told(
    authority: Authority, node: Identity
) -> None:
    async def main() -> None:
        settings = trusting(authority).security.tls
        assert settings is not None
        below, receiver = Loopback(node.server_context(clients=authority.certificate)), Ending()
        stream = TlsStream(HostPort("127.0.0.1", 1), receiver, client_context(settings))
        below.stream, stream._below = stream, cast(SocketStream, below)
        stream._shake_hands()
        await stream.agreed
        (failure,) = receiver.failures
        assert isinstance(failure, AuthenticationError)
        assert "asks for a client certificate" in str(failure)

    run(main)


def test_an_encrypted_key_is_opened_by_its_password(
    authority: Authority, node: Identity, client: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = node.server_context(clients=authority.certificate)
    options = {
        "ssl.truststore.location": authority.certificate,
        "ssl.certificate.location": client.certificate,
        "ssl.key.location": authority.encrypted(client.key, "open sesame"),
    }
    asked(context, tls({**options, "ssl.key.password": "open sesame"}))
    monkeypatch.setenv("KEY_PASSWORD", "open sesame")
    asked(context, tls({**options, "ssl.key.password": "env:KEY_PASSWORD"}))
    for wrong in ({"ssl.key.password": "sesame"}, {}):
        error = refused(context, tls({**options, **wrong}))
        assert isinstance(error, ConfigurationError)
        assert "the private key is not opened by the password (ssl.key.password)" in str(error)
        assert "sesame" not in str(error)


def test_files_that_are_not_what_they_should_be_are_named(
    authority: Authority, node: Identity, client: Identity, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    nothing = tmp_path / "nothing"
    nothing.write_text("nothing")
    missing = tmp_path / "missing"
    for options, problem in [
        ({"ssl.truststore.location": missing}, f"ssl.truststore.location: {missing} cannot be read: No such"),
        ({"ssl.truststore.location": store}, f"ssl.truststore.location: {store} is not text in UTF-8"),
        ({"ssl.truststore.location": nothing}, f"{nothing}: holds no certificate in PEM"),
        ({"ssl.keystore.location": nothing}, f"{nothing}: holds no certificate in PEM"),
        ({"ssl.keystore.location": client.certificate}, "holds no private key in PEM"),
        (
            {"ssl.certificate.location": client.certificate, "ssl.key.location": node.key},
            "the private key is not that of the certificate",
        ),
    ]:
        error = refused(node.server_context(), tls(options))
        assert isinstance(error, ConfigurationError)
        assert problem in str(error)


def test_versions_of_tls_that_the_sides_do_not_share_are_told(authority: Authority, node: Identity) -> None:
    context = node.server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    error = alerted(context, trusting(authority, ssl_enabled_protocols="TLSv1.3"))
    assert isinstance(error, AuthenticationError)
    assert "it speaks other versions of TLS (ssl.enabled.protocols)" in str(error)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"\0\0\0\x04plain text", "it does not answer in TLS"),
        (b"", "closed by the peer during the TLS handshake: does it speak TLS there?"),
    ],
)
def test_a_peer_that_does_not_speak_tls_is_told_of(authority: Authority, said: bytes, problem: str) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(said)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1")
        async with server:
            address = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(BrokerError, match=problem):
                await Connection.open(address, trusting(authority))

    run(main)


def test_a_client_without_tls_that_meets_it_is_told_to_look_at_its_protocol(node: Identity) -> None:
    error = alerted(node.server_context(), ConnectionSettings())
    assert isinstance(error, ConnectionFailedError)
    assert "; is security.protocol that of the listener?" in str(error)


def test_a_peer_that_never_answers_the_handshake_is_given_up(authority: Authority) -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.bare_frames.append(lambda _: b"")
            settings = ConnectionSettings(connect_timeout_ms=50, security=trusting(authority).security)
            with pytest.raises(ConnectionFailedError, match="no answer to the TLS handshake within 50 ms"):
                await Connection.open(peer.address, settings)

    run(main)


def test_a_cluster_whose_certificate_is_refused_is_not_tried_again(authority: Authority) -> None:
    async def main() -> None:
        context = authority.issue("other-host", hosts="DNS:elsewhere.example").server_context()
        async with secured_peer(context) as peer:
            cluster = Cluster(PeerCluster(peer).bootstrap, settings=trusting(authority), backoff=QUICK)
            with pytest.raises(AuthenticationError, match="IP address mismatch"):
                await cluster.start()
            await cluster.close()

    run(main)
