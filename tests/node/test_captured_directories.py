"""A node in the place of a broker of Apache Kafka: on its data directory, below its nodes in ZooKeeper."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.captured import GROUP, Captured, State, unpack
from tests.conftest import cluster_spec, forked

DEADLINE_SECONDS = 30


@pytest.mark.parametrize(
    ("version", "state"), [("3.9.1", State.CLEAN), ("2.8.2", State.CRASHED), ("0.8.2.2", State.CLEAN)]
)
def test_a_node_serves_what_kafka_left(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, version: str, state: State
) -> None:
    captured = unpack(version, state, tmp_path / "captured")
    with node_on(captured, zookeeper, tmp_path) as node:
        check_records(str(node.bootstrap[0]), captured)
        check_group(str(node.bootstrap[0]), captured)


@contextmanager
def node_on(captured: Captured, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A node that takes the captured broker's place."""
    spec = cluster_spec(zookeeper, tmp_path, "taken-over", settings={"log.cleaner.enable": False})
    shutil.copytree(captured.root, tmp_path / "taken-over" / "node-1")
    restore(spec, captured.served["znodes"])
    with EmbeddedCluster(spec, forked) as node:
        yield node


def restore(spec: ClusterSpec, znodes: Mapping[str, str]) -> None:
    """Put nodes of ZooKeeper below the chroot of a cluster that is to start."""
    address, _, chroot = spec.zookeeper_connect.partition("/")
    client = KazooClient(hosts=address)
    client.start()
    try:
        for path, data in znodes.items():
            client.create(f"/{chroot}{path.rstrip('/')}", data.encode(), makepath=True)
    finally:
        client.stop()
        client.close()


def check_records(bootstrap: str, captured: Captured) -> None:
    """kcat gets from the node what the captured broker served."""
    for name, expected in captured.served["records"].items():
        assert list(map(_as_captured, _consume(bootstrap, captured, name, "read_uncommitted"))) == expected, (
            name
        )
    for name, offsets in captured.served["committed"].items():
        committed = _consume(bootstrap, captured, name, "read_committed")
        assert [record["offset"] for record in committed] == offsets, name


def _consume(bootstrap: str, captured: Captured, name: str, isolation: str) -> Iterator[dict[str, Any]]:
    topic, _, partition = name.rpartition("-")
    start = str(captured.served["start_offsets"][name])
    command = ["kcat", "-b", bootstrap, "-X", f"isolation.level={isolation}"]
    reading = ["-C", "-J", "-e", "-q", "-t", topic, "-p", partition, "-o", start]
    read = subprocess.run(
        [*command, *reading], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
    )
    return map(json.loads, read.stdout.splitlines())


def _as_captured(record: Mapping[str, Any]) -> dict[str, Any]:
    headers = record.get("headers", [])
    return {
        "offset": record["offset"],
        "timestamp": record.get("ts"),
        "append_time": record.get("tstype") == "logappend",
        "key": record["key"],
        "value": record["payload"],
        "headers": [[name, value] for name, value in zip(headers[::2], headers[1::2], strict=True)],
    }


def check_group(bootstrap: str, captured: Captured) -> None:
    """The group has the offsets that it committed to the captured broker."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    asked = [TopicPartition(name.rpartition("-")[0], 0) for name in captured.served["group"]]
    found = consumer.committed(asked, DEADLINE_SECONDS)
    consumer.close()
    offsets = {f"{place.topic}-0": [place.offset, place.metadata or ""] for place in found}
    assert offsets == captured.served["group"]
