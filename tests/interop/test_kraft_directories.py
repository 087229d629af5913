"""Data directories of a Kafka that keeps its metadata itself, under the tools that read directories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedZooKeeper
from tests.interop.conftest import PROCESS_TIMEOUT_SECONDS
from tests.interop.kraft import KraftKafka

TIMEOUT_SECONDS = 60


def _written(bootstrap: str) -> None:
    """Topics with compressed records of several keys, and transactions of which the last stays open."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    compacted = NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    for made in admin.create_topics([NewTopic("flights", 2, 1), compacted]).values():
        made.result(TIMEOUT_SECONDS)
    plain = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "log_level": 0})
    for number in range(1000):
        plain.produce("flights", b"value %d" % number, b"key %d" % number)
        plain.produce("compacted", b"x" * 200, b"key %d" % (number % 10))
    assert plain.flush(TIMEOUT_SECONDS) == 0
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0}
    transactional = Producer(settings)
    transactional.init_transactions(TIMEOUT_SECONDS)
    for end in (transactional.commit_transaction, transactional.abort_transaction, None):
        transactional.begin_transaction()
        transactional.produce("flights", b"in a transaction")
        assert transactional.flush(TIMEOUT_SECONDS) == 0
        if end is not None:
            end(TIMEOUT_SECONDS)


def _broker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROCESS_TIMEOUT_SECONDS
    )


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_is_found_sound_and_no_node_starts_with_it(
    newest_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path, end: str
) -> None:
    kafka = KraftKafka(newest_classpath, tmp_path)
    with kafka:
        _written(str(kafka.address))
        getattr(kafka, end)()
    data = tmp_path / "data"
    verified = _broker("verify", str(data))
    assert verified.returncode == 0, verified.stdout
    assert "KRaft" in verified.stdout
    for log in data.glob("flights-*/*.log"):
        dumped = _broker("dump-log", str(log), "--deep", "--print-data")
        assert dumped.returncode == 0, dumped.stdout
    properties = tmp_path / "node.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={data}\n"
        f"zookeeper.connect={zookeeper.connect_string('kraft')}\n"
    )
    started = _broker("start", str(properties))
    assert started.returncode == 1
    assert "KRaft" in started.stderr
