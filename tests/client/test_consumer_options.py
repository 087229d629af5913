"""Consumers by the options that people know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.assignors import CooperativeStickyAssignor, RangeAssignor
from broker.client.cluster import Cluster
from broker.client.connector_options import CONNECTOR_OPTIONS, ConnectorOptions, open_connector
from broker.client.consumer import Consumer
from broker.client.consumer_connector import GroupKind
from broker.client.consumer_options import CONSUMER_OPTIONS, ConsumerOptions, open_consumer
from broker.client.consumer_settings import ConsumerSettings, Isolation, OffsetReset
from broker.client.group_settings import ConsumerGroupSettings
from broker.client.producer_options import open_producer
from broker.client.producer_settings import ProducerSettings
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.errors import ConfigurationError
from broker.types import HostPort
from tests.conftest import ClusterFactory


def test_names_of_the_first_consumers_mean_what_they_meant() -> None:
    options = ConsumerOptions.read(
        {
            "zk.connect": "127.0.0.1:2181/jfk",
            "groupid": "g",
            "autooffset.reset": "smallest",
            "autocommit.enable": "true",
            "autocommit.interval.ms": 10_000,
            "fetch.size": 307_200,
            "socket.buffersize": 65_536,
            "socket.timeout.ms": 30_000,
        }
    )
    assert options.cluster.zookeeper == "127.0.0.1:2181/jfk"
    assert options.cluster.connection.receive_buffer_bytes == 65_536
    assert options.cluster.connection.request_timeout_ms == 30_000
    assert options.settings == ConsumerSettings(
        offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=10_000, partition_max_bytes=307_200
    )
    assert options.group is not None
    assert options.group.group_id == "g"


def test_present_names_mean_what_javas_clients_mean() -> None:
    options = ConsumerOptions.read(
        {
            "bootstrap.servers": ["a:1", "b:2"],
            "group.id": "g",
            "group.instance.id": "one",
            "client.rack": "east",
            "enable.auto.commit": False,
            "auto.commit.interval.ms": 7,
            "auto.offset.reset": "by_duration:P1DT2H3M4.5S",
            "isolation.level": "read_committed",
            "max.poll.records": 10,
            "max.poll.interval.ms": 60_000,
            "partition.assignment.strategy": [
                "cooperative-sticky",
                "org.apache.kafka.clients.consumer.RangeAssignor",
            ],
            "record.filter": 'key = "a"',
            "security.protocol": "SSL",
        }
    )
    assert options.cluster.bootstrap == (HostPort("a", 1), HostPort("b", 2))
    assert options.cluster.connection.security.tls is not None
    settings, group = options.settings, options.group
    assert (settings.auto_commit_interval_ms, settings.records_max, settings.rack) == (0, 10, "east")
    assert settings.offset_reset is OffsetReset.BY_DURATION
    assert settings.offset_reset_duration_ms == 93_784_500
    assert settings.isolation is Isolation.READ_COMMITTED
    assert settings.record_filter is not None
    assert group is not None
    assert (group.instance_id, group.rack_id, group.rebalance_timeout_ms) == ("one", "east", 60_000)
    assert [type(assignor) for assignor in options.assignors] == [CooperativeStickyAssignor, RangeAssignor]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerOptions.read(
            {"auto.offset.rest": "x", "auto.offset.reset": "by_duration:P", "record.filter": "key ="}
        )
    unknown, reset, wanted = raised.value.problems
    assert unknown == "auto.offset.rest: unknown option (did you mean auto.offset.reset?)"
    assert "by_duration:PnDTnHnMnS" in reset
    assert "column 6" in wanted
    with pytest.raises(ConfigurationError) as raised:
        ConsumerOptions.read(
            {"group.instance.id": "x", "partition.assignment.strategy": "none", "ssl.key.password": "x"}
        )
    assert len(raised.value.problems) == 5


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (lambda: ProducerSettings(linger_ms=-1), "linger_ms is -1, not at least 0"),
        (lambda: ProducerSettings(max_in_flight=0), "max_in_flight is 0, not at least 1"),
        (lambda: ConsumerSettings(records_max=0), "records_max is 0, not at least 1"),
    ],
)
def test_numbers_below_what_they_can_be_are_refused(settings: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings()
    assert list(raised.value.problems) == [problem]


def test_a_member_of_the_consumer_protocol_leaves_assigning_to_the_coordinator() -> None:
    options = ConsumerOptions.read(
        {
            "bootstrap.servers": "a:1",
            "group.id": "g",
            "group.protocol": "CONSUMER",
            "group.remote.assignor": "range",
            "group.instance.id": "desk",
            "client.rack": "east",
            "max.poll.interval.ms": 60_000,
        }
    )
    assert options.assignors is None
    assert options.group == ConsumerGroupSettings(
        group_id="g", remote_assignor="range", instance_id="desk", rack_id="east", rebalance_timeout_ms=60_000
    )


@pytest.mark.parametrize(
    ("protocol", "misplaced"),
    [
        ("consumer", "session.timeout.ms"),
        ("consumer", "heartbeat.interval.ms"),
        ("classic", "group.remote.assignor"),
    ],
)
def test_options_of_the_other_protocol_are_refused(protocol: str, misplaced: str) -> None:
    given = {"bootstrap.servers": "a:1", "group.id": "g", "group.protocol": protocol, misplaced: "1000"}
    with pytest.raises(ConfigurationError) as raised:
        ConsumerOptions.read(given)
    assert raised.value.problems == [f"{misplaced}: cannot be set when group.protocol={protocol}"]


def test_assignors_are_refused_where_the_coordinator_assigns() -> None:
    given = {"bootstrap.servers": "a:1", "group.id": "g", "group.protocol": "consumer"}
    with pytest.raises(ConfigurationError, match=r"assignment\.strategy: cannot be set when"):
        ConsumerOptions.read({**given, "partition.assignment.strategy": "range"})
    cluster = Cluster([HostPort("a", 1)])
    with pytest.raises(ValueError, match="the coordinator that assigns"):
        Consumer(cluster, group=ConsumerGroupSettings(group_id="g"), assignors=[RangeAssignor()])


def test_stores_of_java_are_refused_with_how_to_convert_them() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerOptions.read(
            {
                "bootstrap.servers": "a:1",
                "security.protocol": "SSL",
                "ssl.truststore.location": "/etc/trusted.jks",
                "ssl.truststore.password": "secret",
            }
        )
    password, store = sorted(raised.value.problems)[::-1]
    assert password.startswith("ssl.truststore.password: certificates in PEM have no password")
    assert store.startswith("ssl.truststore.location: /etc/trusted.jks seems to be a store of Java")
    assert all("keytool -list -rfc -keystore STORE > ca.pem" in each for each in (password, store))
    assert "secret" not in str(raised.value)


def test_a_consumer_by_name_reads_what_a_producer_by_name_wrote(cluster: ClusterFactory) -> None:
    async def main() -> list[bytes | None]:
        async with open_producer({"zk.connect": node.spec.zookeeper_connect}) as producer:
            for value in (b"a", b"b", b"c"):
                await producer.send("t", value, b"k")
        given = {
            "bootstrap.servers": node.bootstrap,
            "groupid": "g",
            "autooffset.reset": "smallest",
            "record.filter": 'value != "b"',
        }
        async with asyncio.timeout(30), open_consumer(given) as consumer:
            consumer.subscribe(["t"])
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.take()]
            return found

    node = cluster()
    assert asyncio.run(main()) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"zk.connect": "z:1"}, GroupKind.ZOOKEEPER),
        ({"zookeeper.connect": "z:1", "offsets.storage": "zookeeper"}, GroupKind.ZOOKEEPER),
        ({"zookeeper.connect": "z:1", "offsets.storage": "kafka"}, GroupKind.DUAL),
        (
            {"zookeeper.connect": "z:1", "offsets.storage": "kafka", "dual.commit.enabled": "false"},
            GroupKind.COORDINATOR,
        ),
        ({"bootstrap.servers": "b:1"}, GroupKind.COORDINATOR),
    ],
)
def test_options_of_connectors_say_where_a_group_meets(given: dict[str, object], kind: GroupKind) -> None:
    options = ConnectorOptions.read(
        {"groupid": "g", "rebalance.retries.max": 9, "rebalance.backoff.ms": 7, "consumerid": "me", **given}
    )
    assert options.kind is kind
    assert options.zookeeper == ZooKeeperGroupSettings(
        rebalance_retries_max=9, rebalance_backoff_ms=7, consumer_id="me"
    )


def test_options_of_connectors_say_how_streams_are_fetched_for() -> None:
    given = {"zk.connect": "z:1", "groupid": "g"}
    settings = ConnectorOptions.read(
        {**given, "num.consumer.fetchers": 3, "queuedchunks.max": 10}
    ).consumer.settings
    assert (settings.fetches_per_node, settings.stream_answers_max) == (3, 10)
    assert ConnectorOptions.read(given).consumer.settings == ConsumerSettings()


def test_a_connector_needs_a_group_and_for_one_in_zookeeper_a_zookeeper() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConnectorOptions.read({"bootstrap.servers": "b:1", "offsets.storage": "zookeeper"})
    assert raised.value.problems == [
        "group.id: a connector is a member of a group",
        "offsets.storage: zookeeper needs zookeeper.connect",
    ]


def test_a_connector_by_name_reads_what_a_producer_by_name_wrote(cluster: ClusterFactory) -> None:
    async def main() -> list[bytes | None]:
        zookeeper = {"zk.connect": node.spec.zookeeper_connect}
        async with open_producer(zookeeper) as producer:
            for value in (b"a", b"b"):
                await producer.send("t", value, partition=0)
        given = {**zookeeper, "groupid": "g", "autooffset.reset": "smallest", "rebalance.backoff.ms": 50}
        async with asyncio.timeout(30), open_connector(given) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            return [(await anext(stream)).value for _ in range(2)]

    node = cluster()
    assert asyncio.run(main()) == [b"a", b"b"]


def test_the_page_on_clients_names_every_option_of_consumers() -> None:
    page = (Path(__file__).parents[2] / "ops/docs/clients.md").read_text()
    named = [
        name for option in (*CONSUMER_OPTIONS, *CONNECTOR_OPTIONS) for name in (option.name, *option.aliases)
    ]
    assert [name for name in named if f"`{name}" not in page] == []
