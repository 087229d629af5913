"""Java clients of Kafka 4 against our node: they refuse brokers that do not serve what they begin with."""

from __future__ import annotations

import json
import re

import pytest

from tests.interop.conftest import Tool

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_newest_producer_and_consumer_agree(
    newest_java_tool: Tool, bootstrap: str, topic: str, codec: str
) -> None:
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    lines = [f"value {index}" for index in range(500)]
    newest_java_tool(PRODUCER, *server, "--compression-codec", codec, stdin="\n".join(lines) + "\n")
    consumed = newest_java_tool(CONSUMER, *server, "--from-beginning", "--max-messages", "500")
    assert consumed.splitlines() == lines


def test_the_newest_clients_find_nothing_missing(newest_java_tool: Tool, bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    newest_java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in newest_java_tool(TOPICS, *server, "--describe", "--topic", topic)
    limits = ("--topic", topic, "--max-messages", "1000")
    produced = newest_java_tool("org.apache.kafka.tools.VerifiableProducer", *server, *limits)
    assert json.loads(produced.splitlines()[-1])["acked"] == 1000
    group = f"group-{topic}"
    consumed = newest_java_tool(
        "org.apache.kafka.tools.VerifiableConsumer", *server, *limits, "--group-id", group
    )
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 1000
    described = newest_java_tool(GROUPS, *server, "--describe", "--group", group)
    assert len(re.findall(rf"{topic}\s+[0-2]\s+\d+\s+\d+\s+0 ", described)) >= 1
    newest_java_tool(TOPICS, *server, "--delete", "--topic", topic)
    assert topic not in newest_java_tool(TOPICS, *server, "--list").split()


def test_the_newest_tool_describes_topics_page_by_page(
    newest_java_tool: Tool, bootstrap: str, topic: str
) -> None:
    server = ("--bootstrap-server", bootstrap)
    for name, partitions in {topic: 7, f"{topic}-next": 2}.items():
        newest_java_tool(TOPICS, *server, "--create", "--topic", name, "--partitions", str(partitions))
    described = newest_java_tool(
        TOPICS, *server, "--describe", "--topic", f"{topic}.*", "--partition-size-limit-per-response", "3"
    )
    found = re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    assert sorted(found) == sorted(
        [(topic, str(number)) for number in range(7)]
        + [(f"{topic}-next", str(number)) for number in range(2)]
    )


def test_the_newest_tool_describes_a_topic_by_its_id(
    newest_java_tool: Tool, bootstrap: str, topic: str
) -> None:
    server = ("--bootstrap-server", bootstrap)
    newest_java_tool(TOPICS, *server, "--create", "--topic", topic, "--partitions", "2")
    (topic_id,) = re.findall(
        r"TopicId: (\S+)", newest_java_tool(TOPICS, *server, "--describe", "--topic", topic)
    )
    described = newest_java_tool(TOPICS, *server, "--describe", "--topic-id", topic_id)
    assert f"Topic: {topic}\tTopicId: {topic_id}\tPartitionCount: 2" in described


def test_the_newest_tool_alters_and_describes_settings_of_groups(
    newest_java_tool: Tool, bootstrap: str, topic: str
) -> None:
    entity = ("--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", f"group-{topic}")
    configs = "kafka.admin.ConfigCommand"
    newest_java_tool(configs, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in newest_java_tool(configs, *entity, "--describe")
    newest_java_tool(configs, *entity, "--alter", "--delete-config", "consumer.session.timeout.ms")
