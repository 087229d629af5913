"""Java clients of long ago against our node: they know only messages of magic 0 and 1, and the oldest among
their consumers find nodes, and keep their offsets, in ZooKeeper.
"""

from __future__ import annotations

import pytest

from broker.embedded import EmbeddedCluster
from tests.interop.apache import kafka_jars
from tests.interop.conftest import Tool, java_tool_of

PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "kafka.tools.ConsoleConsumer"
OFFSETS = "kafka.tools.GetOffsetShell"
CODECS = ("none", "gzip", "snappy")
WITH_CONSUMER_GROUPS = "0.10.2.2"


@pytest.fixture(scope="module", params=["0.8.2.2", WITH_CONSUMER_GROUPS])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def old_tool(version: str, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Run a main class of an old Kafka; returns what it printed."""
    return java_tool_of(kafka_jars(version, tmp_path_factory.mktemp("old-jars")))


def test_old_producers_and_consumers_agree(
    old_tool: Tool, version: str, node: EmbeddedCluster, bootstrap: str, topic: str
) -> None:
    lines = []
    for codec in CODECS:
        values = [f"{codec} {index}" for index in range(50)]
        sent = "".join(f"{value}\n" for value in values)
        old_tool(
            PRODUCER, "--broker-list", bootstrap, "--topic", topic, "--compression-codec", codec, stdin=sent
        )
        lines += values
    assert f"{topic}:0:{len(lines)}" in old_tool(
        OFFSETS, "--broker-list", bootstrap, "--topic", topic, "--time", "-1"
    )
    sources = [("--zookeeper", node.spec.zookeeper_connect)]
    if version == WITH_CONSUMER_GROUPS:
        sources.append(("--bootstrap-server", bootstrap))
    for source in sources:
        arguments = ("--topic", topic, "--from-beginning", "--max-messages", str(len(lines)))
        assert old_tool(CONSUMER, *source, *arguments).splitlines() == lines
