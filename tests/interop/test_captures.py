"""Data directories pass between Apache Kafka and our nodes, both ways."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ErrorCode
from broker.types import HostPort
from tests.captured import Captured, State
from tests.conftest import cluster_spec, until
from tests.interop.apache import ApacheKafka, kafka_jars
from tests.interop.capture import SETTINGS, VERSIONS, capture, dump_log_segments
from tests.interop.workload import Workload, features_of
from tests.node.raw_client import connected
from tests.node.test_captured_directories import check_group, check_records, node_on
from tests.node.transactions import UNVERIFIED, RawTransactions

OWN_SETTINGS = {
    "log.index.interval.bytes": 200,
    "log.segment.bytes": 3000,
    "log.retention.hours": 1_000_000,
    "offsets.topic.num.partitions": 2,
    **UNVERIFIED,
}
CLEANER_SETTINGS = {"log.cleaner.backoff.ms": 20, "log.cleaner.min.cleanable.ratio": 0.01}
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_takes_the_place_of_a_broker_of_kafka(
    version: str, kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """What tests/golden holds copies of, made anew."""
    classpath = kafka_jars(version, tmp_path / "jars")
    for state, place in capture(version, classpath, kafka_classpath, zookeeper, tmp_path).items():
        captured = Captured.open(tmp_path, state)
        assert captured.root == place
        _verify(place)
        directory = tmp_path / f"node-{state.value}"
        with node_on(captured, zookeeper, directory) as node:
            check_records(str(node.bootstrap[0]), captured)
            check_group(str(node.bootstrap[0]), captured)
        _verify(directory / "taken-over" / "node-1")


@pytest.mark.parametrize("state", State)
def test_kafka_takes_the_place_of_a_node_and_gives_it_back(
    state: State, kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    spec = cluster_spec(zookeeper, tmp_path, "ours", settings=OWN_SETTINGS)
    data = tmp_path / "ours" / "node-1"
    features = features_of("3.9.1")
    with EmbeddedCluster(spec) as node:
        ours = Workload(str(node.bootstrap[0]), features)
        ours.create_topics()
        ours.produce(0)
        ours.commit(0)
        if state is State.CLEAN:  # where a log starts is checkpointed now and then
            ours.trim()
        served = _comparable(ours)
        if state is State.CRASHED:
            node.kill_node(1)
    (tmp_path / "kafka").mkdir()
    assert "Mismatch" not in dump_log_segments(kafka_classpath, data, state)
    settings = {**SETTINGS, "log.dirs": data, "log.cleaner.enable": "false"}
    kafka = ApacheKafka(kafka_classpath, spec.zookeeper_connect, tmp_path / "kafka", settings=settings)
    with kafka:
        theirs = Workload(str(kafka.address), features)
        assert _comparable(theirs) == served
        theirs.produce(100)
        theirs.commit(10)
        served = _comparable(theirs)
    with EmbeddedCluster(spec) as node:
        assert _comparable(Workload(str(node.bootstrap[0]), features)) == served
    _verify(data)


def test_kafka_serves_what_our_cleaner_left_and_compacts_it_further(
    kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    spec = cluster_spec(zookeeper, tmp_path, "ours", settings={**OWN_SETTINGS, **CLEANER_SETTINGS})
    data = tmp_path / "ours" / "node-1"
    features = features_of("3.9.1")
    features = replace(
        features, topics=dict.fromkeys(("compacted", "marked-compacted"), features.topics["compacted"])
    )
    with EmbeddedCluster(spec) as node:
        ours = Workload(str(node.bootstrap[0]), features)
        ours.create_topics()
        _write_transactions(node.bootstrap[0], "marked-compacted")
        ours.produce(0)
        until(lambda: _is_compacted(data, features.topics), seconds=60)
        served = ours.served()
    _require_gaps_and_tombstones(served)
    assert "Mismatch" not in dump_log_segments(kafka_classpath, data, State.CLEAN)
    (tmp_path / "kafka").mkdir()
    for cleans in (False, True):
        settings = {**SETTINGS, "log.dirs": data, "log.cleaner.enable": str(cleans).lower()}
        with ApacheKafka(
            kafka_classpath, spec.zookeeper_connect, tmp_path / "kafka", settings=settings
        ) as kafka:
            theirs = Workload(str(kafka.address), features)
            if cleans:
                theirs.produce(100)
                until(lambda: _is_compacted(data, features.topics), seconds=60)
                served = theirs.served()
            else:
                assert theirs.served() == served
    _require_gaps_and_tombstones(served)
    assert "Mismatch" not in dump_log_segments(kafka_classpath, data, State.CLEAN)
    _verify(data)
    with EmbeddedCluster(replace(spec, settings={**spec.settings, "log.cleaner.enable": False})) as node:
        assert Workload(str(node.bootstrap[0]), features).served() == served


def _write_transactions(address: HostPort, topic: str) -> None:
    """Committed and aborted ones, of several producers."""
    with connected(address) as client:
        producers = [RawTransactions(client, topic) for _ in range(3)]
        for turn in range(6):
            for number, producer in enumerate(producers):
                assert producer.write(b"%d %d" % (turn, number) + b"." * 100) == ErrorCode.NONE
            for number, producer in enumerate(producers):
                assert producer.end(commit=(turn + number) % 2 == 0) == ErrorCode.NONE


def _is_compacted(data: Path, topics: Iterable[str]) -> bool:
    """Whether the cleaner has come to the active segment of each topic."""
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    ends = {line.split()[0]: int(line.split()[2]) for line in lines}
    active = {topic: max(int(path.stem) for path in data.glob(f"{topic}-0/*.log")) for topic in topics}
    return all(ends.get(topic) == base > 0 for topic, base in active.items())


def _require_gaps_and_tombstones(served: dict[str, Any]) -> None:
    for name, records in served["records"].items():
        assert len(records) < served["end_offsets"][name], name
        assert any(record["value"] is None for record in records), name
        assert {record["key"] for record in records} >= {f"key {number}" for number in range(14)}, name


def _comparable(workload: Workload) -> dict[str, Any]:
    """What is served; of a compacted topic only the latest record of each key, as either may compact it."""
    served = workload.served()
    records = served["records"]["compacted-0"]
    served["records"]["compacted-0"] = {record["key"]: record for record in records}
    return served


def _verify(directory: Path) -> None:
    command = [sys.executable, "-m", "broker.cli", "verify", str(directory)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert finished.returncode == 0, finished.stdout
