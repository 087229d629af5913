"""Transactions of Java clients, old and new, and Kafka's tools for them, against our nodes."""

from __future__ import annotations

import json

import pytest

from tests.conftest import ClusterFactory
from tests.interop.conftest import Tool
from tests.node.raw_client import connected
from tests.node.transactions import UNVERIFIED, RawTransactions

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
COUNT = 600


@pytest.mark.parametrize("generation", ["java_tool", "newest_java_tool"])
def test_a_copier_that_aborts_at_random_copies_everything_once(
    generation: str, request: pytest.FixtureRequest, newest_java_tool: Tool, cluster: ClusterFactory
) -> None:
    """Those of Kafka 4 begin transactions by writing, and take a new epoch from every end."""
    java: Tool = request.getfixturevalue(generation)
    nodes = cluster(brokers=3)
    bootstrap = ",".join(map(str, nodes.bootstrap))
    server = ("--bootstrap-server", bootstrap)
    for topic in ("source", "target"):
        placing = ("--partitions", "1", "--replication-factor", "3")
        newest_java_tool(TOPICS, *server, "--create", "--topic", topic, *placing)
    newest_java_tool(VERIFIABLE_PRODUCER, *server, "--topic", "source", "--max-messages", str(COUNT))
    reading = ("--input-topic", "source", "--input-partition", "0", "--consumer-group", "copiers")
    writing = ("--output-topic", "target", "--transactional-id", "desk", "--transaction-size", "20")
    printed = java(
        *(COPIER, "--broker-list", bootstrap, *reading, *writing),
        *("--max-messages", str(COUNT), "--enable-random-aborts"),
    )
    told = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert told[-1]["stage"] == "ShutdownComplete"
    consumed = newest_java_tool(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--topic", "target"),
        *("--from-beginning", "--isolation-level", "read_committed", "--max-messages", str(COUNT)),
    )
    assert sorted(map(int, consumed.split())) == list(range(COUNT))
    described = newest_java_tool(TRANSACTIONS, *server, "describe", "--transactional-id", "desk")
    _, line = described.strip().splitlines()
    epoch = int(line.split()[3])
    assert "CompleteCommit" in line
    assert (epoch > COUNT // 20) is (generation == "newest_java_tool")


def test_kafkas_tools_tell_features_and_end_what_hangs(
    newest_java_tool: Tool, cluster: ClusterFactory
) -> None:
    nodes = cluster(settings=UNVERIFIED)
    server = ("--bootstrap-server", str(nodes.bootstrap[0]))
    features = newest_java_tool(FEATURES, *server, "describe")
    (told,) = (line for line in features.splitlines() if "transaction.version" in line)
    assert "SupportedMaxVersion: 2\tFinalizedVersionLevel: 2" in told
    newest_java_tool(FEATURES, *server, "downgrade", "--feature", "transaction.version=0")
    newest_java_tool(TOPICS, *server, "--create", "--topic", "hung", "--partitions", "1")
    with connected(nodes.bootstrap[0]) as client:
        assert RawTransactions(client, "hung").write(b"for ever") == 0
    place = ("--topic", "hung", "--partition", "0")
    before = newest_java_tool(TRANSACTIONS, *server, "describe-producers", *place)
    newest_java_tool(TRANSACTIONS, *server, "abort", *place, "--start-offset", "0")
    after = newest_java_tool(TRANSACTIONS, *server, "describe-producers", *place)
    assert before.split()[-1] == "0"
    assert after.split()[-1] == "None"
