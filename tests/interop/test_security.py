"""Our client against Apache Kafka whose listeners are secured, in every way that the client knows."""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.connection import Connection, ConnectionSettings
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.group_settings import GroupSettings
from broker.client.producer import Producer
from broker.client.security.connection_security import ConnectionSecurity
from broker.embedded import EmbeddedZooKeeper
from broker.errors import AuthenticationError, BrokerError
from broker.loopback import free_ports
from broker.types import HostPort, TopicPartition
from broker.wire.messages.list_groups import ListGroupsRequest
from mirrormaker.spark.batch_reader import MirrorReader
from mirrormaker.spark.options import parse_options
from tests.certificates import Authority, Identity
from tests.client.running import run
from tests.daemon.conftest import MirrorProcess, wait_until
from tests.interop.apache import ApacheKafka, kafka_jars
from tests.interop.conftest import Tool

USERNAME, PASSWORD = "mirror", "pencil=,\"'"
TOKEN_KEY = "extension"
READ_ALL = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", "SHORT")
"""SHORT is SASL without TLS whose sessions end after two seconds."""
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """A broker of Apache Kafka with its listeners, and what its clients need."""

    kafka: ApacheKafka
    ports: Mapping[str, int]
    authority: Authority
    client: Identity
    tool: Tool

    def set_password(self, username: str, password: str) -> None:
        """Of SCRAM, for a new user or one that there is."""
        credentials = ",".join(f"SCRAM-SHA-{size}=[password={password}]" for size in (256, 512))
        self.tool(
            *("kafka.admin.ConfigCommand", "--bootstrap-server", str(self.kafka.address), "--alter"),
            *("--entity-type", "users", "--entity-name", username, "--add-config", credentials),
        )

    def bootstrap(self, listener: str) -> list[HostPort]:
        return [HostPort("127.0.0.1", self.ports[listener])]

    def options(
        self, listener: str, mechanism: str | None = None, password: str = PASSWORD
    ) -> dict[str, str]:
        """Options of Kafka's clients for a listener."""
        protocol = "SASL_PLAINTEXT" if listener == "SHORT" else listener
        options = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl.truststore.location"] = str(self.authority.certificate)
        if protocol == "SSL":
            options["ssl.keystore.location"] = str(self.client.both)
        if mechanism == "OAUTHBEARER":
            options["sasl.jaas.config"] = (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
                f' unsecuredLoginStringClaim_sub="{USERNAME}" unsecuredLoginLifetimeSeconds="30";'
            )
        elif mechanism is not None:
            options |= {"sasl.username": USERNAME, "sasl.password": password}
        if mechanism is not None:
            options["sasl.mechanism"] = mechanism
        return options

    def settings(
        self, listener: str, mechanism: str | None = None, password: str = PASSWORD
    ) -> ConnectionSettings:
        security = ConnectionSecurity.from_options(self.options(listener, mechanism, password))
        return ConnectionSettings(security=security)


def _jaas_of_listener(*, short: bool) -> dict[str, object]:
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    plain = (
        f'{_MODULES}.plain.PlainLoginModule required username="admin" password="admin"'
        f' user_admin="admin" user_{USERNAME}="{quoted}";'
    )
    settings: dict[str, object] = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "plain.sasl.jaas.config": plain,
        "scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
    }
    if short:
        settings |= {
            f"{mechanism}.connections.max.reauth.ms": 2000
            for mechanism in ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
        }
    return settings


@contextlib.contextmanager
def running_kafka(
    classpath: str, zookeeper: EmbeddedZooKeeper, directory: Path, tool: Tool
) -> Iterator[SecuredKafka]:
    authority = Authority(directory)
    node, client = authority.issue("node"), authority.issue("client")
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    inner = free_ports(1)[0]
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{inner},{listeners}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SHORT:SASL_PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": node.both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl", "short"):
        for name, value in _jaas_of_listener(short=listener == "short").items():
            settings[f"listener.name.{listener}.{name}"] = value
    kafka = ApacheKafka(
        classpath,
        zookeeper.connect_string(f"secured-{uuid.uuid4().hex[:8]}"),
        directory,
        settings=settings,
    )
    kafka.address = HostPort("127.0.0.1", inner)
    with kafka:
        running = SecuredKafka(kafka=kafka, ports=ports, authority=authority, client=client, tool=tool)
        running.set_password(USERNAME, PASSWORD)
        yield running


@pytest.fixture(scope="module")
def secured(
    kafka_classpath: str,
    zookeeper: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
    java_tool: Tool,
) -> Iterator[SecuredKafka]:
    with running_kafka(kafka_classpath, zookeeper, tmp_path_factory.mktemp("secured"), java_tool) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def home(
    kafka_classpath: str,
    zookeeper: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
    java_tool: Tool,
) -> Iterator[SecuredKafka]:
    """Where mirrors bring records to."""
    with running_kafka(kafka_classpath, zookeeper, tmp_path_factory.mktemp("home"), java_tool) as kafka:
        yield kafka


WAYS = [
    ("SSL", None),
    *[
        (listener, mechanism)
        for listener in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ],
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_topics_are_made_written_and_read_by_a_group(
    secured: SecuredKafka, listener: str, mechanism: str | None, topic: str
) -> None:
    async def main() -> None:
        settings = secured.settings(listener, mechanism)
        async with Cluster(secured.bootstrap(listener), settings=settings) as client:
            admin = Admin(client)
            await admin.create_topic(NewTopic(name=topic, partitions=2, replication_factor=1))
            sent = [b"%d" % number * 1000 for number in range(300)]
            async with Producer(client) as producer:
                for value in sent:
                    await producer.send(topic, value)
            group = GroupSettings(group_id=f"readers-{topic}", session_timeout_ms=30_000)
            async with Consumer(client, settings=READ_ALL, group=group) as consumer:
                consumer.subscribe([topic])
                read: list[bytes | None] = []
                while len(read) < len(sent):
                    read += [record.value for record in await consumer.take()]
                await consumer.commit()
            assert sorted(value or b"" for value in read) == sorted(sent)
            committed = await admin.group_offsets(group.group_id)
            assert sum(position.offset for position in committed.values()) == len(sent)
            await admin.delete_topics([topic])

    run(main)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_with_what_kafka_says(secured: SecuredKafka, mechanism: str) -> None:
    async def main() -> None:
        settings = secured.settings("SASL_SSL", mechanism, "wrong")
        await Connection.open(secured.bootstrap("SASL_SSL")[0], settings)

    with pytest.raises(AuthenticationError, match=f"{mechanism} is refused: Authentication failed") as caught:
        run(main)
    assert "wrong" not in str(caught.value)


def test_an_expired_token_is_refused(secured: SecuredKafka) -> None:
    claims = {"sub": USERNAME, "iat": 1000, "exp": 2000}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "none"}, claims)
    ]
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": f"{'.'.join(parts)}.",
    }
    settings = ConnectionSettings(security=ConnectionSecurity.from_options(options))
    with pytest.raises(AuthenticationError, match="OAUTHBEARER is refused"):
        run(lambda: Connection.open(secured.bootstrap("SASL_PLAINTEXT")[0], settings))


def test_a_mechanism_that_is_not_offered_and_a_listener_without_sasl_are_told(secured: SecuredKafka) -> None:
    options = {**secured.options("SASL_PLAINTEXT", "PLAIN"), "sasl.username": "nobody"}
    settings = ConnectionSettings(security=ConnectionSecurity.from_options(options))
    with pytest.raises(AuthenticationError, match="PLAIN is refused"):
        run(lambda: Connection.open(secured.bootstrap("SASL_PLAINTEXT")[0], settings))
    with pytest.raises(AuthenticationError, match=r"is security\.protocol that of the listener"):
        run(lambda: Connection.open(secured.kafka.address, settings))


def test_a_client_without_a_certificate_is_told_that_one_is_asked_for(secured: SecuredKafka) -> None:
    options = secured.options("SSL")
    del options["ssl.keystore.location"]
    settings = ConnectionSettings(security=ConnectionSecurity.from_options(options))
    with pytest.raises(AuthenticationError, match="it asks for a client certificate, and there is none"):
        run(lambda: Connection.open(secured.bootstrap("SSL")[0], settings))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_session_that_would_end_is_renewed_in_time(secured: SecuredKafka, mechanism: str) -> None:
    """Kafka closes connections whose session has ended as soon as anything is asked over them."""

    async def main() -> None:
        settings = secured.settings("SHORT", mechanism)
        async with await Connection.open(secured.bootstrap("SHORT")[0], settings) as connection:
            deadline = time.monotonic() + 6
            while time.monotonic() < deadline:
                answers = [connection.send(ListGroupsRequest()) for _ in range(10)]
                for answer in answers:
                    assert (await answer).error_code == 0

    run(main)


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_take_the_client_file_that_kafkas_own_tools_take(
    secured: SecuredKafka, java_tool: Tool, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "client.properties"
    jaas = (
        f'{_MODULES}.scram.ScramLoginModule required username="{USERNAME}"'
        f' password="{PASSWORD.replace(chr(34), chr(92) * 2 + chr(34))}";'
    )
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.authority.certificate}\nsasl.jaas.config={jaas}\n"
    )
    where = ("--bootstrap-server", str(secured.bootstrap("SASL_SSL")[0]), "--command-config", str(file))
    command("topics", "create", topic, "--partitions", "3", "--replication-factor", "1", *where)
    listed = java_tool("org.apache.kafka.tools.TopicCommand", "--list", *where)
    assert topic in listed.split()
    assert topic in command("topics", "list", *where).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredRoute:
    """A route between listeners of two brokers."""

    away: SecuredKafka
    home: SecuredKafka
    file: Path
    topic: str
    mirrored: str

    def write(self, values: list[bytes]) -> None:
        async def fill() -> None:
            async with (
                Cluster(self.away.bootstrap("SSL"), settings=self.away.settings("SSL")) as client,
                Producer(client) as producer,
            ):
                for value in values:
                    await producer.send(self.topic, value)

        run(fill)

    def read(self, count: int) -> list[bytes | None]:
        async def read() -> list[bytes | None]:
            async with (
                Cluster(self.home.bootstrap("SSL"), settings=self.home.settings("SSL")) as client,
                Consumer(client, settings=READ_ALL) as consumer,
            ):
                await client.ensure([self.mirrored])
                consumer.assign([TopicPartition(self.mirrored, 0)])
                taken: list[bytes | None] = []
                while len(taken) < count:
                    taken += [record.value for record in await consumer.take()]
                return taken

        return run(read)


def route(
    away: SecuredKafka, home: SecuredKafka, folder: Path, listener: str, source: Mapping[str, str]
) -> SecuredRoute:
    """From a listener, reached as `source` says, to the one that asks for certificates."""
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    clusters = {
        "away": {"bootstrap": [str(away.bootstrap(listener)[0])], "security": dict(source)},
        "home": {"bootstrap": [str(home.bootstrap("SSL")[0])], "security": home.options("SSL")},
    }
    selection = {"include": [topic], "name": "away.{topic}"}
    pace = {"refresh_interval_ms": 300, "commit_interval_ms": 100}
    topology = {
        "clusters": clusters,
        "routes": [{"name": topic, "from": "away", "to": "home", "topics": selection, **pace}],
    }
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(topology))
    return SecuredRoute(away=away, home=home, file=file, topic=topic, mirrored=f"away.{topic}")


def test_a_mirror_reads_from_and_writes_to_secured_clusters(
    secured: SecuredKafka, home: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("MIRROR_NAME", USERNAME)
    source = {
        **secured.options("SASL_SSL", "SCRAM-SHA-256"),
        "sasl.username": "env:MIRROR_NAME",
        "sasl.password": "file:secrets/password",
    }
    flights = route(secured, home, tmp_path, "SASL_SSL", source)
    values = [b"%d" % number for number in range(2000)]
    flights.write(values)
    mirror = MirrorProcess(flights.file, tmp_path / "mirror.log")
    with contextlib.ExitStack() as stack:
        mirror.start()
        stack.callback(mirror.kill)
        told = mirror.wait_copied()
        assert flights.read(len(values)) == values
        assert mirror.stop() == 0
    assert PASSWORD not in mirror.log.read_text() + json.dumps(told)


def test_a_mirror_whose_password_is_changed_says_so_and_goes_on_once_its_secret_is_the_new_one(
    secured: SecuredKafka, home: SecuredKafka, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("first")
    secured.set_password("changing", "first")
    source = {
        **secured.options("SHORT", "SCRAM-SHA-512"),
        "sasl.username": "changing",
        "sasl.password": "file:password",
    }
    flights = route(secured, home, tmp_path, "SHORT", source)
    flights.write([b"before"])
    mirror = MirrorProcess(flights.file, tmp_path / "mirror.log")
    with contextlib.ExitStack() as stack:
        mirror.start()
        stack.callback(mirror.kill)
        assert flights.read(1) == [b"before"]
        secured.set_password("changing", "second")
        refused = "SCRAM-SHA-512 is refused: Authentication failed"
        wait_until(
            lambda: f"cluster 'away': {secured.bootstrap('SHORT')[0]}: {refused}" in mirror.log.read_text(),
            refused,
        )
        secret.write_text("second")
        flights.write([b"after"])
        assert flights.read(2) == [b"before", b"after"]
        mirror.wait_copied()
        assert mirror.stop() == 0


def test_spark_reads_from_a_secured_cluster(secured: SecuredKafka, topic: str) -> None:
    """As Spark does it: the source is planned here, and copied to where it is read."""

    async def fill() -> None:
        async with (
            Cluster(secured.bootstrap("SSL"), settings=secured.settings("SSL")) as client,
            Producer(client) as producer,
        ):
            for number in range(100):
                await producer.send(topic, b"%d" % number)

    run(fill)
    options = {f"kafka.{name}": value for name, value in secured.options("SASL_SSL", "OAUTHBEARER").items()}
    servers = {"kafka.bootstrap.servers": str(secured.bootstrap("SASL_SSL")[0]), "subscribe": topic}
    reader = MirrorReader(parse_options({**servers, **options}))
    (partition,) = reader.partitions()
    batches = list(pickle.loads(pickle.dumps(reader)).read(partition))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [
        b"%d" % number for number in range(100)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("listener", ["SASL_SSL", "SSL"])
def test_a_job_of_spark_moves_to_the_mirror_source_with_its_security_options(
    secured: SecuredKafka, topic: str, spark: SparkSession, listener: str
) -> None:
    given = {"ssl.truststore.type": "PEM", **secured.options(listener)}
    if listener == "SSL":
        given["ssl.keystore.type"] = "PEM"
    else:
        quoted = PASSWORD.replace('"', '\\"')
        login = f'{_MODULES}.scram.ScramLoginModule required username="{USERNAME}" password="{quoted}";'
        given |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login}
    options = {f"kafka.{name}": value for name, value in given.items()}
    options["kafka.bootstrap.servers"] = str(secured.bootstrap(listener)[0])
    numbers = spark.range(100).selectExpr("cast(id as string) as value")
    for source in ("kafka", "mirror"):
        numbers.write.format(source).options(**options, topic=topic).mode("append").save()
    for source in ("kafka", "mirror"):
        rows = spark.read.format(source).options(**options, subscribe=topic).load().collect()
        assert sorted(int(row.value) for row in rows) == sorted([*range(100), *range(100)])


OLD_LISTENER = """\
KafkaServer {{
  org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="admin" user_admin="admin" user_{username}="pencil";
}};
"""


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1"])
def test_brokers_of_old_are_logged_in_to_as_they_expect(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, topic: str
) -> None:
    """Before 1.0 the exchange is in bare frames, and a refusal is the end of the connection."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(OLD_LISTENER.format(username=USERNAME))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
    inner, port = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{inner},SASL_PLAINTEXT://127.0.0.1:{port}",
        "port": inner,
        "sasl.enabled.mechanisms": "PLAIN",
    }
    classpath = kafka_jars(version, tmp_path / "jars")
    connect = zookeeper.connect_string(f"old-{uuid.uuid4().hex[:8]}")
    kafka = ApacheKafka(classpath, connect, tmp_path, settings=settings)
    kafka.address = HostPort("127.0.0.1", inner)

    def login(password: str) -> ConnectionSettings:
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        who = {"sasl.username": USERNAME, "sasl.password": password}
        return ConnectionSettings(security=ConnectionSecurity.from_options({**options, **who}))

    async def main() -> None:
        address = HostPort("127.0.0.1", port)
        async with Cluster([address], settings=login("pencil")) as client:
            await Admin(client).create_topic(NewTopic(name=topic, partitions=1, replication_factor=1))
            assert topic in await Admin(client).list_topics()
        with pytest.raises(BrokerError, match=r"refuses credentials|PLAIN is refused"):
            await Connection.open(address, login("wrong"))

    with kafka:
        run(main)
