"""Apache Kafka's own Java clients and tools against our node."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
)
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerRecord, ConsumerSettings, OffsetReset
from broker.client.group_settings import GroupSettings
from broker.client.producer import Producer
from broker.types import HostPort, TopicPartition
from tests.interop.conftest import JavaProcess, Tool
from tests.node.raw_client import connected, create_topic
from tests.node.transactions import RawTransactions

READ_ALL = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def server(bootstrap: str) -> tuple[str, str]:
    """The arguments that name our node."""
    return ("--bootstrap-server", bootstrap)


# Producers and consumers


@pytest.mark.parametrize("codec", CODECS)
def test_the_console_producer_and_consumer_agree(
    java_tool: Tool, server: tuple[str, str], topic: str, codec: str
) -> None:
    lines = [f"value {index}" for index in range(500)]
    arguments = ("--topic", topic, "--compression-codec", codec)
    java_tool(CONSOLE_PRODUCER, *server, *arguments, stdin="\n".join(lines) + "\n")
    consumed = java_tool(
        CONSOLE_CONSUMER, *server, "--topic", topic, "--from-beginning", "--max-messages", "500"
    )
    assert consumed.splitlines() == lines


def test_keys_headers_and_timestamps_reach_the_consumer(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    parsing = ("--property", "parse.key=true", "--property", "parse.headers=true")
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, *parsing, stdin="colour:blue\tthe key\thello\n")
    shown = ("key", "headers", "timestamp", "offset", "partition")
    printing = [part for name in shown for part in ("--property", f"print.{name}=true")]
    (line,) = java_tool(
        CONSOLE_CONSUMER, *server, "--topic", topic, "--from-beginning", "--max-messages", "1", *printing
    ).splitlines()
    assert re.fullmatch(r"CreateTime:\d{13}\tPartition:0\tOffset:0\tcolour:blue\tthe key\thello", line), line


def test_committed_reads_see_what_is_not_transactional(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, stdin="a\nb\n")
    isolation = ("--isolation-level", "read_committed")
    consumed = java_tool(
        CONSOLE_CONSUMER, *server, "--topic", topic, "--from-beginning", "--max-messages", "2", *isolation
    )
    assert consumed.split() == ["a", "b"]


def test_committed_reads_pass_over_aborted_transactions(
    java_tool: Tool, server: tuple[str, str], bootstrap: str, topic: str
) -> None:
    host, port = bootstrap.rsplit(":", 1)
    with connected(HostPort(host, int(port))) as client:
        create_topic(client, topic, segment_bytes="1000")
        committed, aborted = RawTransactions(client, topic), RawTransactions(client, topic)
        for number in range(20):
            assert committed.write(b"yes%d" % number) == aborted.write(b"no%d" % number) == 0
            assert aborted.end(commit=False) == committed.end(commit=True) == 0
    reading = (CONSOLE_CONSUMER, *server, "--topic", topic, "--from-beginning", "--max-messages")
    consumed = java_tool(*reading, "20", "--isolation-level", "read_committed")
    assert consumed.split() == [f"yes{number}" for number in range(20)]
    assert len(java_tool(*reading, "40").split()) == 40


def test_the_verifiable_producer_and_consumer_find_nothing_missing(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3")
    produced = _events(java_tool(VERIFIABLE_PRODUCER, *server, "--topic", topic, "--max-messages", "3000"))
    (totals,) = (event for event in produced if event["name"] == "tool_data")
    assert (totals["sent"], totals["acked"]) == (3000, 3000)
    group = ("--group-id", f"group-{topic}")
    consumed = _events(
        java_tool(VERIFIABLE_CONSUMER, *server, "--topic", topic, *group, "--max-messages", "3000")
    )
    names = [event["name"] for event in consumed]
    assert "partitions_assigned" in names
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == 3000
    commits = [event for event in consumed if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in commits)
    last = {offset["partition"]: offset["offset"] for event in commits for offset in event["offsets"]}
    assert sum(last.values()) == 3000


def _events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("codec", CODECS)
def test_the_performance_tools_move_every_record(
    java_tool: Tool, server: tuple[str, str], bootstrap: str, topic: str, codec: str
) -> None:
    count = "50000"
    report = java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", count, "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", f"compression.type={codec}", "acks=all"),
    )
    assert f"{count} records sent" in report
    report = java_tool(
        "org.apache.kafka.tools.ConsumerPerformance", *server, "--topic", topic, "--messages", count
    )
    assert int(report.splitlines()[-1].split(", ")[4]) == int(count)


# Topics and their settings


def test_topics_are_created_described_grown_and_deleted(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    setting = ("--config", "retention.ms=99999999")
    java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3", *setting)
    described = java_tool(TOPICS, *server, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=99999999" in described
    assert re.search(r"Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    java_tool(TOPICS, *server, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in java_tool(TOPICS, *server, "--describe", "--topic", topic)
    java_tool(TOPICS, *server, "--delete", "--topic", topic)
    assert topic not in java_tool(TOPICS, *server, "--list").split()


def test_settings_of_a_topic_are_altered_and_described(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = "segment.bytes=1048576,cleanup.policy=[compact,delete]"
    java_tool(CONFIGS, *server, *entity, "--alter", "--add-config", added)
    described = java_tool(CONFIGS, *server, *entity, "--describe")
    assert "DYNAMIC_TOPIC_CONFIG:segment.bytes=1048576" in described
    assert "cleanup.policy=compact,delete" in described
    java_tool(CONFIGS, *server, *entity, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in java_tool(CONFIGS, *server, *entity, "--describe")


def test_settings_of_the_node_are_described(java_tool: Tool, server: tuple[str, str]) -> None:
    described = java_tool(
        CONFIGS, *server, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
    )
    assert "STATIC_BROKER_CONFIG:broker.id=1" in described
    assert "log.segment.bytes=1073741824" in described


def test_settings_of_nodes_are_altered_for_one_and_for_all(java_tool: Tool, server: tuple[str, str]) -> None:
    one = (CONFIGS, *server, "--entity-type", "brokers", "--entity-name", "1")
    every = (CONFIGS, *server, "--entity-type", "brokers", "--entity-default")
    java_tool(*every, "--alter", "--add-config", "log.retention.ms=7000,log.cleanup.policy=[compact,delete]")
    java_tool(*one, "--alter", "--add-config", "log.retention.ms=8000")
    for_all = java_tool(*every, "--describe")
    assert "log.retention.ms=7000" in for_all
    assert "log.cleanup.policy=compact,delete" in for_all
    described = java_tool(*one, "--describe")
    sources = (
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=8000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000"
    )
    assert f"log.retention.ms=8000 sensitive=false synonyms={{{sources}}}" in described
    java_tool(*one, "--alter", "--delete-config", "log.retention.ms")
    java_tool(*every, "--alter", "--delete-config", "log.retention.ms,log.cleanup.policy")
    assert "log." not in java_tool(*every, "--describe").replace("default config", "")


# Offsets and groups


def test_quotas_of_users_are_altered_and_described(
    java_tool: Tool, server: tuple[str, str], topic: str
) -> None:
    entity = (CONFIGS, *server, "--entity-type", "users", "--entity-name", topic)
    java_tool(*entity, "--alter", "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576.0" in java_tool(*entity, "--describe")
    java_tool(*entity, "--alter", "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in java_tool(*entity, "--describe")


def test_offsets_are_found_and_records_deleted(
    java_tool: Tool, server: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, stdin="a\nb\nc\nd\n")
    offsets = (GET_OFFSETS, *server, "--topic", topic)
    assert java_tool(*offsets).strip() == f"{topic}:0:4"
    assert java_tool(*offsets, "--time", "earliest").strip() == f"{topic}:0:0"
    assert re.fullmatch(rf"{topic}:0:[0-3]", java_tool(*offsets, "--time", "max-timestamp").strip())
    assert java_tool(*offsets, "--time", "1").strip() == f"{topic}:0:0"
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    deleted = java_tool(DELETE_RECORDS, *server, "--offset-json-file", str(file))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 3", deleted)
    assert java_tool(*offsets, "--time", "earliest").strip() == f"{topic}:0:3"


def test_a_group_is_described_reset_and_deleted(java_tool: Tool, server: tuple[str, str], topic: str) -> None:
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, stdin="a\nb\nc\n")
    name = f"group-{topic}"
    consuming = (CONSOLE_CONSUMER, *server, "--topic", topic, "--group", name, "--from-beginning")
    assert java_tool(*consuming, "--max-messages", "3").split() == ["a", "b", "c"]
    group = (GROUPS, *server, "--group", name)
    assert re.search(rf"{topic}\s+0\s+3\s+3\s+0", java_tool(*group, "--describe"))
    assert re.search(rf"{name}\s+.*Empty\s+0", java_tool(*group, "--describe", "--state"))
    java_tool(*group, "--reset-offsets", "--to-offset", "1", "--topic", topic, "--execute")
    assert re.search(rf"{topic}\s+0\s+1\s+3\s+2", java_tool(*group, "--describe"))
    assert java_tool(*consuming, "--max-messages", "2").split() == ["b", "c"]
    assert "Successful" in java_tool(*group, "--delete-offsets", "--topic", topic)
    assert "was successful" in java_tool(*group, "--delete")
    assert name not in java_tool(GROUPS, *server, "--list").split()


# The cluster


def test_the_cluster_tools_are_answered(java_tool: Tool, server: tuple[str, str], topic: str) -> None:
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, stdin="a\n")
    assert "Cluster ID: " in java_tool(CLUSTER, "cluster-id", *server)
    versions = java_tool(API_VERSIONS, *server)
    assert "Produce(0): 0 to 12 [usable: 11]" in versions
    described = java_tool(LOG_DIRS, *server, "--describe", "--topic-list", topic)
    (partition,) = json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"][0]["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] > 60
    java_tool(ELECTION, *server, "--election-type", "preferred", "--all-topic-partitions")


# Files


@pytest.fixture
def written(bootstrap: str, java_tool: Tool, server: tuple[str, str], topic: str, data_root: Path) -> Path:
    """The directory of a log of several segments, with 2000 records in 40 batches."""
    java_tool(TOPICS, *server, "--create", "--topic", topic, "--config", "segment.bytes=50000")
    values = "\n".join(f"value {index} {'x' * 100}" for index in range(2000)) + "\n"
    options = ("-X", "batch.num.messages=50", "-X", "enable.idempotence=true")
    subprocess.run(
        ["kcat", "-b", bootstrap, "-P", "-t", topic, *options],
        input=values,
        text=True,
        check=True,
        timeout=60,
    )
    directory = data_root / f"{topic}-0"
    assert len(list(directory.glob("*.log"))) > 3
    return directory


def _dump(java_tool: Tool, files: Iterator[Path], *options: str) -> str:
    names = ",".join(map(str, sorted(files)))
    dumped = java_tool("kafka.tools.DumpLogSegments", "--files", names, *options)
    for complaint in ("Mismatches", "mismatch", "not found", "out of order", "invalid"):
        assert complaint not in dumped, dumped
    return dumped


def test_the_dump_tool_reads_our_segments(java_tool: Tool, written: Path) -> None:
    dumped = _dump(java_tool, written.glob("*.log"), "--deep-iteration")
    assert dumped.count("isvalid: true") == 40
    assert "lastOffset: 1999" in dumped
    assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == 2000


def test_the_dump_tool_finds_our_indexes_sound(java_tool: Tool, written: Path) -> None:
    dumped = _dump(java_tool, written.glob("*.index"))
    offsets = [int(offset) for offset in re.findall(r"^offset: (\d+) position: \d+", dumped, re.MULTILINE)]
    assert len(offsets) > 20
    assert offsets == sorted(set(offsets))
    _dump(java_tool, written.glob("*.index"), "--index-sanity-check")


def test_the_dump_tool_finds_our_time_indexes_sound(java_tool: Tool, written: Path) -> None:
    dumped = _dump(java_tool, written.glob("*.timeindex"))
    entries = re.findall(r"^timestamp: (\d+) offset: (\d+)", dumped, re.MULTILINE)
    assert len(entries) > 3
    _dump(java_tool, written.glob("*.timeindex"), "--index-sanity-check")


def test_the_dump_tool_reads_our_producer_snapshots(java_tool: Tool, written: Path) -> None:
    dumped = _dump(java_tool, written.glob("*.snapshot"))
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastOffset: \d+", dumped), dumped


def test_the_dump_tool_reads_what_groups_leave_behind(
    java_tool: Tool, server: tuple[str, str], topic: str, data_root: Path
) -> None:
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, stdin="a\n")
    name = f"group-{topic}"
    consuming = (CONSOLE_CONSUMER, *server, "--topic", topic, "--group", name, "--from-beginning")
    java_tool(*consuming, "--max-messages", "1")
    dumped = _dump(java_tool, data_root.glob("__consumer_offsets-*/*.log"), "--offsets-decoder")
    (committed,) = re.findall(rf'{{"group":"{name}","topic":"{topic}".*', dumped)
    assert '"offset":1' in committed
    assert re.search(rf'"group":"{name}".*"protocolType":"consumer"', dumped)


# Together with our client


def test_our_partitioner_places_keys_where_java_does(
    java_tool: Tool, server: tuple[str, str], bootstrap: str, topic: str
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "7")
    keys = [f"key {index} {'é' * (index % 5)}" for index in range(200)]
    lines = "".join(f"{key}\tjava\n" for key in keys)
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic, "--property", "parse.key=true", stdin=lines)

    async def produce_and_consume() -> dict[str, set[int]]:
        places: dict[str, set[int]] = {key: set() for key in keys}
        async with Cluster([HostPort.parse(bootstrap)]) as client:
            async with Producer(client) as producer:
                for key in keys:
                    await producer.send(topic, b"ours", key.encode())
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([TopicPartition(topic, partition) for partition in range(7)])
                for record in await _take(consumer, 2 * len(keys)):
                    assert record.key is not None
                    places[record.key.decode()].add(record.partition)
        return places

    assert all(len(partitions) == 1 for partitions in asyncio.run(produce_and_consume()).values())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RangeAssignor(), "RangeAssignor"),
        (RoundRobinAssignor(), "RoundRobinAssignor"),
        (CooperativeStickyAssignor(), "CooperativeStickyAssignor"),
    ],
    ids=["range", "roundrobin", "cooperative-sticky"],
)
def test_java_and_our_consumer_share_a_group(
    java_process: JavaProcess,
    java_tool: Tool,
    server: tuple[str, str],
    bootstrap: str,
    topic: str,
    ours: Assignor,
    theirs: str,
) -> None:
    java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "4")
    group = GroupSettings(group_id=f"group-{topic}", session_timeout_ms=30_000, heartbeat_interval_ms=100)

    async def share() -> None:
        async with (
            Cluster([HostPort.parse(bootstrap)]) as client,
            Consumer(client, settings=READ_ALL, group=group, assignors=[ours]) as consumer,
        ):
            consumer.subscribe([topic])
            await _until(lambda: len(consumer.assignment) == 4)
            arguments = ("--topic", topic, "--group-id", group.group_id, "--verbose")
            strategy = ("--assignment-strategy", f"org.apache.kafka.clients.consumer.{theirs}")
            with java_process(VERIFIABLE_CONSUMER, *server, *arguments, *strategy) as java:
                await _until(lambda: len(consumer.assignment) == 2)
                async with Producer(client) as producer:
                    for index in range(400):
                        await producer.send(topic, b"%d" % index, partition=index % 4)
                here = [int(record.value or b"") for record in await _take(consumer, 200)]
                await _until(lambda: len(_values(java.output())) >= 200)
                there = _values(java.output())
            assert sorted(here + there) == list(range(400))
            await _until(lambda: len(consumer.assignment) == 4)

    async def limited() -> None:
        async with asyncio.timeout(60):
            await share()

    asyncio.run(limited())


def _values(output: str) -> list[int]:
    return [int(event["value"]) for event in _events(output) if event["name"] == "record_data"]


async def _take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    taken: list[ConsumerRecord] = []
    while len(taken) < count:
        taken += await consumer.take(max_records=count - len(taken))
    return taken


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)
