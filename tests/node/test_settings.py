"""Settings of topics and nodes, described and altered over the wire while the node runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.message_set import build_message_set
from broker.records.reader import read_all
from broker.records.record import Record, TimestampType
from broker.settings import ConfigSource, ResourceType, SettingType
from broker.types import HostPort
from broker.wire.messages.alter_configs import AlterableConfig as Replacement
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conftest import ClusterFactory, cluster_spec, forked, until
from tests.node.raw_client import (
    NOW_MS,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch,
    produce,
    produce_request,
    values_of,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    settings = {"log.retention.hours": 24, "log.segment.bytes": 1 << 20}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("node"), "settings", settings=settings)
    with EmbeddedCluster(spec, forked) as running:
        yield running


@pytest.fixture
def client(node: EmbeddedCluster) -> Iterator[RawClient]:
    """Leaves no node setting altered."""
    with connected(node.bootstrap[0]) as raw:
        yield raw
        for name in ("1", ""):
            request = AlterConfigsRequest(
                resources=[ReplacedResource(resource_type=BROKER, resource_name=name)]
            )
            assert raw.request(request).responses[0].error_code == 0


def alter(
    client: RawClient, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[int, str]:
    """Code and message of an incremental alteration."""
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = client.request(request).responses
    return answer.error_code, answer.error_message or ""


def describe(
    client: RawClient, kind: int, name: str, *settings: str, version: int | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(settings) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource],
        include_synonyms=version is None or version > 0,
        include_documentation=version is None or version > 2,
    )
    (result,) = client.request(request, version).results
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


def sources(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, ConfigSource]]:
    return [(each.name, each.value, ConfigSource(each.source)) for each in entry.synonyms]


# Topics


def test_every_setting_of_a_topic_tells_all_its_sources(client: RawClient, topic: str) -> None:
    create_topic(client, topic, retention_ms="5000")
    described = describe(client, TOPIC, topic, "retention.ms", "segment.ms", "segment.bytes")
    assert sources(described["retention.ms"]) == [
        ("retention.ms", "5000", ConfigSource.TOPIC),
        ("log.retention.hours", "24", ConfigSource.BROKER_STATIC),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert described["segment.ms"].value == str(168 * 3_600_000)
    assert sources(described["segment.ms"]) == [("log.roll.hours", "168", ConfigSource.DEFAULT)]
    assert described["segment.bytes"].config_source == ConfigSource.BROKER_STATIC
    assert described["segment.bytes"].config_type == SettingType.INT
    assert described["segment.bytes"].documentation


@pytest.mark.parametrize("version", range(DescribeConfigsRequest.max_version + 1))
def test_every_version_describes(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic, retention_ms="5000")
    (entry,) = describe(client, TOPIC, topic, "retention.ms", version=version).values()
    assert (entry.value, entry.read_only, entry.is_sensitive, entry.is_default) == (
        "5000",
        False,
        False,
        False,
    )


def test_items_of_lists_are_added_and_taken_away(client: RawClient, topic: str) -> None:
    create_topic(client, topic)

    def policy() -> str | None:
        return describe(client, TOPIC, topic, "cleanup.policy")["cleanup.policy"].value

    assert alter(client, TOPIC, topic, ("cleanup.policy", APPEND, "compact,delete"))[0] == 0
    assert policy() == "delete,compact"
    assert alter(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))[0] == 0
    assert policy() == "compact"
    assert alter(client, TOPIC, topic, ("cleanup.policy", DELETE, None))[0] == 0
    assert policy() == "delete"


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG, "retention.mss"),
        (("cleanup.policy", SUBTRACT, "delete"), ErrorCode.INVALID_CONFIG, "cleanup.policy"),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "retention.ms"),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "operation 9"),
    ],
)
def test_a_wrong_change_names_its_setting_and_changes_nothing(
    client: RawClient, topic: str, change: Change, code: ErrorCode, named: str
) -> None:
    create_topic(client, topic)
    answered, message = alter(client, TOPIC, topic, ("segment.ms", SET, "1000"), change)
    assert (answered, named in message) == (code, True)
    assert describe(client, TOPIC, topic, "segment.ms")["segment.ms"].value != "1000"


def test_a_setting_changed_twice_in_one_request_is_refused(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    code, _ = alter(client, TOPIC, topic, ("segment.ms", SET, "1"), ("segment.ms", DELETE, None))
    assert code == ErrorCode.INVALID_REQUEST


def test_a_replacement_drops_what_it_does_not_name(client: RawClient, topic: str) -> None:
    create_topic(client, topic, retention_ms="5000")
    resource = ReplacedResource(
        resource_type=TOPIC, resource_name=topic, configs=[Replacement(name="segment.ms", value="777")]
    )
    for version in range(AlterConfigsRequest.max_version + 1):
        (answer,) = client.request(AlterConfigsRequest(resources=[resource]), version).responses
        assert answer.error_code == 0
    described = describe(client, TOPIC, topic, "retention.ms", "segment.ms")
    assert described["retention.ms"].config_source == ConfigSource.BROKER_STATIC
    assert described["segment.ms"].value == "777"


def test_records_that_break_a_bound_of_time_are_named_in_the_answer(client: RawClient, topic: str) -> None:
    create_topic(client, topic, message_timestamp_before_max_ms="1000", compression_type="lz4")
    answer = produce(client, topic, batch_of(b"long ago", b"as well", codec=Codec.ZSTD))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [problem.batch_index for problem in answer.record_errors] == [0, 1]
    assert alter(client, TOPIC, topic, ("message.timestamp.before.max.ms", DELETE, None))[0] == 0
    assert produce(client, topic, batch_of(b"long ago", codec=Codec.ZSTD)).error_code == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_sets_of_old_producers_keep_times_or_get_those_of_the_append(
    client: RawClient, topic: str, version: int, codec: Codec
) -> None:
    magic = 1 if version == 2 else 0
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    sent = [Record(at, NOW_MS + at, kind, b"k", b"v%d" % at, ()) for at in range(3)]
    message_set = build_message_set(sent, magic, codec)
    for name, settings in ((topic, {}), (f"{topic}-stamped", {"message_timestamp_type": "LogAppendTime"})):
        create_topic(client, name, **settings)
        for base in (0, 3):
            answer = produce(client, name, message_set, version=version)
            assert (answer.error_code, answer.base_offset) == (0, base)
        records = list(read_all(fetch(client, name, 0).records or b"", size_max=1 << 20))
        assert [(record.offset, record.value) for record in records] == [
            (offset, b"v%d" % (offset % 3)) for offset in range(6)
        ]
        times = [record.timestamp for record in records[:3]]
        if settings:
            assert min(times) > NOW_MS + 3
        else:
            assert times == ([NOW_MS, NOW_MS + 1, NOW_MS + 2] if magic else [-1, -1, -1])


def test_large_batches_are_opened_aside_and_appended_in_their_order(client: RawClient, topic: str) -> None:
    create_topic(client, topic, compression_type="gzip")
    values = [b"%d" % number * 100_000 for number in range(6)]
    batches = (
        batch_of(value, codec=Codec.ZSTD, producer_id=7, epoch=0, sequence=at)
        for at, value in enumerate(values)
    )
    sent = [client.send(produce_request(topic, batch)) for batch in batches]
    request = produce_request(topic, b"")
    answers = [client.receive(request, each).responses[0].partition_responses[0] for each in sent]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, at) for at in range(6)]
    assert values_of(fetch(client, topic, 0).records) == values


def test_old_clients_are_refused_conversion_where_their_topic_says_so(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    assert produce(client, topic, batch_of(b"v")).error_code == 0
    assert fetch(client, topic, 0, version=1).error_code == 0
    assert alter(client, TOPIC, topic, ("message.downconversion.enable", SET, "false"))[0] == 0
    assert fetch(client, topic, 0, version=1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert fetch(client, topic, 0).error_code == 0


# Nodes


def test_an_altered_node_setting_holds_at_once_for_topics_that_say_nothing(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    assert produce(client, topic, batch_of(b"x" * 5000)).error_code == 0
    for layer in ("", "1"):
        assert alter(client, BROKER, layer, ("message.max.bytes", SET, "1000"))[0] == 0
        assert produce(client, topic, batch_of(b"x" * 5000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(client, BROKER, layer, ("message.max.bytes", DELETE, None))[0] == 0
        assert produce(client, topic, batch_of(b"x" * 5000)).error_code == 0


def test_what_is_set_for_one_node_stands_before_what_is_set_for_all(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    assert alter(client, BROKER, "", ("log.segment.bytes", SET, "2000"))[0] == 0
    assert alter(client, BROKER, "1", ("log.segment.bytes", SET, "3000"))[0] == 0
    expected = [
        ("log.segment.bytes", "3000", ConfigSource.BROKER_DYNAMIC),
        ("log.segment.bytes", "2000", ConfigSource.CLUSTER_DYNAMIC),
        ("log.segment.bytes", str(1 << 20), ConfigSource.BROKER_STATIC),
        ("log.segment.bytes", str(1 << 30), ConfigSource.DEFAULT),
    ]
    entry = describe(client, BROKER, "1", "log.segment.bytes")["log.segment.bytes"]
    assert (entry.value, entry.read_only, sources(entry)) == ("3000", False, expected)
    inherited = describe(client, TOPIC, topic, "segment.bytes")["segment.bytes"]
    assert (inherited.value, sources(inherited)) == ("3000", expected)
    for_all = describe(client, BROKER, "")
    assert {name: entry.value for name, entry in for_all.items()} == {"log.segment.bytes": "2000"}


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ([("log.dirs", SET, "/elsewhere")], ErrorCode.INVALID_REQUEST, "log.dirs"),
        ([("log.roll.ms", SET, "0")], ErrorCode.INVALID_CONFIG, "log.roll.ms"),
        ([("no.such.setting", SET, "0")], ErrorCode.INVALID_CONFIG, "no.such.setting"),
        ([("max.connections.per.ip.overrides", SET, "here")], ErrorCode.INVALID_CONFIG, "ADDRESS:COUNT"),
        ([("log.roll.ms", SET, "5"), ("broker.id", SET, "2")], ErrorCode.INVALID_REQUEST, "broker.id"),
    ],
)
def test_a_wrong_change_of_a_node_names_its_setting_and_changes_nothing(
    client: RawClient, changes: list[Change], code: ErrorCode, named: str
) -> None:
    answered, message = alter(client, BROKER, "1", *changes)
    assert (answered, named in message) == (code, True)
    entry = describe(client, BROKER, "1", "log.roll.ms")["log.roll.ms"]
    assert (entry.value, entry.config_source) == (None, ConfigSource.DEFAULT)


def test_a_node_knows_nothing_of_other_nodes(client: RawClient) -> None:
    assert alter(client, BROKER, "2", ("log.roll.ms", SET, "5"))[0] == ErrorCode.INVALID_REQUEST


def test_what_is_only_validated_changes_nothing(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    for kind, name, setting in ((TOPIC, topic, "segment.ms"), (BROKER, "1", "log.roll.ms")):
        before = describe(client, kind, name, setting)[setting].value
        assert alter(client, kind, name, (setting, SET, "7"), validate_only=True)[0] == 0
        assert describe(client, kind, name, setting)[setting].value == before
        assert (
            alter(client, kind, name, (setting, SET, "x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
        )


def test_cleaner_threads_follow_their_settings(client: RawClient, topic: str) -> None:
    create_topic(
        client, topic, cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01"
    )
    changes: list[Change] = [("log.cleaner.threads", SET, "2"), ("log.cleaner.backoff.ms", SET, "1")]
    assert alter(client, BROKER, "", *changes)[0] == 0
    batches = 0

    def is_compacted() -> bool:
        nonlocal batches
        batches += 1
        assert produce(client, topic, batch_of(b"x" * 500)).error_code == 0
        return len(values_of(fetch(client, topic, 0).records)) < batches / 2

    until(is_compacted)


def test_connections_are_limited_by_the_altered_setting(client: RawClient, node: EmbeddedCluster) -> None:
    assert alter(client, BROKER, "1", ("max.connections.per.ip", SET, "1"))[0] == 0
    with socket.create_connection(node.bootstrap[0], timeout=10) as refused:
        assert RawClient(refused).is_closed_by_peer()
    assert alter(client, BROKER, "1", ("max.connections.per.ip", DELETE, None))[0] == 0
    with connected(node.bootstrap[0]) as accepted:
        assert describe(accepted, BROKER, "1")


def test_settings_for_all_nodes_reach_all_and_outlive_a_restart(cluster: ClusterFactory) -> None:
    running = cluster(brokers=2)
    first, second = running.bootstrap

    def altered(address: HostPort, node_id: str) -> Callable[[], bool]:
        def value() -> bool:
            with connected(address) as client:
                return (
                    describe(client, BROKER, node_id, "compression.type")["compression.type"].value == "lz4"
                )

        return value

    with connected(first) as client:
        assert alter(client, BROKER, "", ("compression.type", SET, "lz4"))[0] == 0
        assert altered(first, "1")()
    until(altered(second, "2"))
    running.kill_node(1)
    running.start_node(1)
    assert altered(first, "1")()
