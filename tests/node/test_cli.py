"""The `broker` command against a real node."""

from __future__ import annotations

import json

import pytest

from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from tests.node.commands import broker, done


@pytest.fixture
def bootstrap(node: EmbeddedCluster) -> str:
    return f"--bootstrap-server={node.bootstrap[0]}"


def test_topics_are_created_described_altered_and_deleted(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=5000", bootstrap)
    assert topic in done("topics", "list", bootstrap).lines
    assert done("topics", "describe", topic, bootstrap).lines == [
        f"Topic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        f"Topic: {topic}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1",
    ]
    done("topics", "alter", topic, "--partitions", "3", "--config", "segment.ms=7000", bootstrap)
    assert len(done("topics", "describe", topic, bootstrap, "--output", "json").json) == 3
    assert done(
        "configs", "describe", "--entity-type", "topics", "--entity-name", topic, bootstrap
    ).lines == [
        "max.message.bytes=100000\tbroker_static",
        "retention.ms=5000\ttopic",
        "segment.ms=7000\ttopic",
    ]
    done("topics", "alter", topic, "--delete-config", "retention.ms", bootstrap)
    assert (
        "retention.ms=5000\ttopic"
        not in done("configs", "describe", "--entity-type", "topics", "--entity-name", topic, bootstrap).lines
    )
    done("topics", "delete", topic, bootstrap)
    assert topic not in done("topics", "list", bootstrap).lines


def test_lines_are_produced_and_consumed(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, "--compression", "zstd", bootstrap, stdin="one\ntwo\nthree\n")
    done("produce", topic, "--key-separator", ":", bootstrap, stdin="k:four\nfive\n")
    reading = ("consume", topic, "--from-beginning", "--max-messages", "5", bootstrap)
    assert done(*reading).lines == ["one", "two", "three", "four", "five"]
    assert done(*reading, "--key-separator", "=").lines[3:] == ["k=four", "=five"]
    wanted = ("--filter", 'value starts with "t" and not key exists', "--timeout-ms", "1000")
    assert done("consume", topic, "--from-beginning", *wanted, bootstrap).lines == ["two", "three"]
    last = [json.loads(line) for line in done(*reading, "--output", "json").lines][-2:]
    assert [(record["offset"], record["key"], record["value"]) for record in last] == [
        (3, "k", "four"),
        (4, None, "five"),
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_stopped_and_is_described(bootstrap: str, topic: str, protocol: str) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, bootstrap, stdin="one\ntwo\nthree\n")
    member = ("--group", f"group-of-{topic}", "--group-protocol", protocol)
    reading = ("consume", topic, *member, "--from-beginning", bootstrap)
    assert done(*reading, "--max-messages", "2").lines == ["one", "two"]
    assert done(*reading, "--max-messages", "1").lines == ["three"]
    (group,) = done("groups", "describe", f"group-of-{topic}", bootstrap, "--output", "json").json
    assert group["offsets"] == [{"topic": topic, "partition": 0, "offset": 3, "end": 3, "lag": 0}]
    assert f"group-of-{topic}\tEmpty\t{protocol}" in done("groups", "list", bootstrap).lines
    done("groups", "delete", f"group-of-{topic}", bootstrap)
    assert not any(topic in line for line in done("groups", "list", bootstrap).lines)


def test_a_group_in_zookeeper_goes_on_where_it_stopped(
    bootstrap: str, topic: str, node: EmbeddedCluster
) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, bootstrap, stdin="one\ntwo\nthree\n")
    meeting = ("--group", f"group-of-{topic}", "--zookeeper", node.spec.zookeeper_connect)
    reading = ("consume", topic, *meeting, "--from-beginning", bootstrap)
    assert done(*reading, "--max-messages", "2").lines == ["one", "two"]
    assert done(*reading, "--timeout-ms", "500").lines == ["three"]
    assert f"group-of-{topic}" not in "".join(done("groups", "list", bootstrap).lines)
    outcome = broker("consume", topic, *meeting[2:], bootstrap)
    assert (outcome.code, outcome.lines) == (1, [])
    assert "--group says which one" in outcome.errors
    outcome = broker("consume", topic, *meeting, "--group-protocol", "consumer", bootstrap)
    assert "--zookeeper and --group-protocol consumer exclude each other" in outcome.errors
    outcome = broker("consume", topic, "--group-protocol", "classic", bootstrap)
    assert "--group says which one" in outcome.errors


def test_how_large_a_line_may_be_is_for_the_topic_to_say(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, "--config", "max.message.bytes=1600000", bootstrap)
    line = "x" * 1_500_000
    done("produce", topic, bootstrap, stdin=line)
    assert done("consume", topic, "--from-beginning", "--max-messages", "1", bootstrap).lines == [line]
    outcome = broker("produce", topic, bootstrap, stdin="x" * 1_700_000)
    assert outcome.code == 1
    assert "broker: MESSAGE_TOO_LARGE" in outcome.errors


def test_reading_a_partition_that_is_not_there_is_refused(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    outcome = broker("consume", topic, "--partition", "9", bootstrap)
    assert (outcome.code, outcome.lines) == (1, [])
    assert f"{topic} has 1 partitions and no partition 9" in outcome.errors


def test_reading_ends_when_nothing_comes(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    assert done("consume", topic, "--from-beginning", "--timeout-ms", "100", bootstrap).lines == []


def test_settings_of_the_node_are_shown_with_their_sources(bootstrap: str) -> None:
    describing = ("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", bootstrap)
    assert "broker.id=1\tbroker_static" in done(*describing).lines
    assert "num.partitions=1\tdefault" in done(*describing, "--all").lines


def test_settings_are_altered_for_one_node_for_all_and_for_a_topic(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    one = ("--entity-type", "brokers", "--entity-name", "1", bootstrap)
    everyone = ("--entity-type", "brokers", "--entity-default", bootstrap)
    own = ("--entity-type", "topics", "--entity-name", topic, bootstrap)
    done("configs", "alter", *everyone, "--add", "log.retention.ms=1000,log.cleanup.policy=[compact,delete]")
    done("configs", "alter", *one, "--add", "log.retention.ms=2000")
    done("configs", "alter", *own, "--add", "segment.ms=77")
    assert done("configs", "describe", *everyone).lines == [
        "log.cleanup.policy=compact,delete\tcluster_dynamic",
        "log.retention.ms=1000\tcluster_dynamic",
    ]
    described = {row["name"]: row for row in done("configs", "describe", *own, "--output", "json").json}
    assert described["retention.ms"]["value"] == "2000"
    assert [each["source"] for each in described["retention.ms"]["synonyms"]] == [
        "broker_dynamic",
        "cluster_dynamic",
        "default",
    ]
    assert described["segment.ms"]["source"] == "topic"
    done("configs", "alter", *everyone, "--delete", "log.retention.ms,log.cleanup.policy")
    done("configs", "alter", *one, "--delete", "log.retention.ms")
    assert done("configs", "describe", *everyone).lines == []


@pytest.mark.parametrize(
    "command",
    [
        ("configs", "alter", "--entity-type", "topics", "--entity-name", "x"),
        ("quotas", "alter", "--client-id", "x"),
    ],
)
def test_altering_nothing_or_one_name_twice_is_refused(bootstrap: str, command: tuple[str, ...]) -> None:
    for changes, word in (
        ((), "nothing to change"),
        (("--delete", ","), "nothing to change"),
        (("--add", "rate=1", "--add", "rate=2"), "rate is to be changed more than once"),
        (("--add", "rate=1", "--delete", "rate"), "rate is to be changed more than once"),
    ):
        outcome = broker(*command, *changes, bootstrap)
        assert (outcome.code, word in outcome.errors) == (1, True), outcome.errors


def test_quotas_are_set_described_and_removed(bootstrap: str, topic: str) -> None:
    client = ("--user-default", "--client-id", topic)
    rates = "producer_byte_rate=1048576,request_percentage=12.5"
    done("quotas", "alter", *client, "--add", rates, bootstrap)
    line = f"user=<default> client-id={topic}\t{rates}"
    assert done("quotas", "describe", *client, bootstrap).lines == [line]
    assert line in done("quotas", "describe", bootstrap).lines
    done("quotas", "alter", *client, "--delete", "producer_byte_rate", bootstrap)
    assert done("quotas", "describe", *client, "--output", "json", bootstrap).json == [
        {"entity": {"user": None, "client-id": topic}, "quotas": {"request_percentage": 12.5}}
    ]
    done("quotas", "alter", *client, "--delete", "request_percentage", bootstrap)
    assert done("quotas", "describe", "--client-id", topic, bootstrap).lines == []


def test_a_cluster_is_measured(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, "--partitions", "2", bootstrap)
    json = ("--output", "json", bootstrap)
    sent = done("perf", "produce", topic, "--count", "2000", "--size", "100", "--rate", "20000", *json).json
    assert (sent["records"], sent["bytes"]) == (2000, 200_000)
    times = sent["latency_ms"]
    assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99.9"] <= times["max"]
    read = done("perf", "consume", topic, *json).json
    assert (read["records"], read["bytes"]) == (2000, 200_000)
    assert done("perf", "consume", topic, "--count", "10", *json).json["records"] >= 10
    there_and_back = done("perf", "end-to-end", topic, "--count", "20", "--acks", "1", bootstrap).lines
    assert there_and_back[0].startswith("20 records, 0.00 MB in ")
    assert there_and_back[1].startswith("latency in ms: mean ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("topics", "describe", "absent"), "topic absent"),
        (("topics", "delete", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "create", "bad/name"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "t", "--replication-factor", "9"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "create", "t", "--config", "no.such=1"), "INVALID_CONFIG"),
        (("quotas", "alter", "--add", "producer_byte_rate=1"), "INVALID_REQUEST"),
        (
            ("quotas", "alter", "--ip", "127.0.0.1", "--add", "producer_byte_rate=1"),
            "no quota of this entity",
        ),
        (
            ("configs", "describe", "--entity-type", "topics", "--entity-name", "t"),
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            ("configs", "alter", "--entity-type", "brokers", "--entity-name", "1", "--add", "log.dirs=/x"),
            "INVALID_REQUEST: settings of 1: cannot be altered while a node runs, but in its file: log.dirs",
        ),
    ],
)
def test_a_refusal_is_one_line_and_code_1(bootstrap: str, arguments: tuple[str, ...], expected: str) -> None:
    outcome = broker(*arguments, bootstrap)
    assert outcome.code == 1
    assert outcome.errors.startswith("broker: ")
    assert outcome.errors.count("\n") == 1
    assert expected in outcome.errors


def test_an_address_where_nobody_listens_is_told() -> None:
    (port,) = free_ports(1)
    outcome = broker("topics", "list", "--bootstrap-server", f"127.0.0.1:{port}")
    assert outcome.code == 1
    assert f"127.0.0.1:{port}" in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("topics", "create"),
        ("topics", "list", "--bootstrap-server", "nonsense"),
        ("topics", "create", "t", "--partitions", "0"),
        ("topics", "create", "t", "--config", "nonsense"),
        ("start",),
        ("topics", "reassign", "t", "--brokers", "1,1"),
        ("perf", "produce", "t", "--count", "0"),
        ("quotas", "alter", "--user", "u", "--user-default"),
        ("quotas", "alter", "--user", "u", "--add", "producer_byte_rate=much"),
    ],
)
def test_wrong_usage_is_code_2(arguments: tuple[str, ...]) -> None:
    assert broker(*arguments).code == 2


def test_the_version_is_told() -> None:
    assert done("--version").lines[0].startswith("broker ")


@pytest.mark.parametrize(
    "command",
    [("start",), ("zookeeper",), ("topics", "create"), ("produce",), ("consume",), ("groups", "describe")],
)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    assert "usage: broker" in done(*command, "--help").lines[0]
