"""What `broker dump-log` prints against Kafka's own DumpLogSegments, on files that one of our nodes wrote."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from tests.conftest import until
from tests.interop.apache import JAVA
from tests.interop.conftest import PROCESS_TIMEOUT_SECONDS
from tests.node.raw_client import connected, create_topic
from tests.node.transactions import RawTransactions

_OF_THE_CONSUMER_PROTOCOL = re.compile(r' key: {"type":"[3-8]"')
"""Records of groups that other tests form by KIP-848: this version of Kafka knows fewer of their fields."""


@pytest.fixture(scope="module")
def directory(node: EmbeddedCluster) -> Path:
    """The data directory of a node that holds records, a group and its offsets."""
    bootstrap = str(node.bootstrap[0])
    lines = "".join(f"key-{number}:value {number}\n" for number in range(2000))
    _broker("topics", "create", "dumped", "--bootstrap-server", bootstrap)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producing = ("produce", "dumped", "--key-separator", ":", "--compression", codec)
        _broker(*producing, "--bootstrap-server", bootstrap, stdin=lines)
    consuming = ("consume", "dumped", "--from-beginning", "--group", "dumpers", "--max-messages", "10")
    _broker(*consuming, "--bootstrap-server", bootstrap)
    _transact(node)
    _compact(node)
    (meta,) = Path(node.spec.directory).rglob("meta.properties")
    return meta.parent


def _transact(node: EmbeddedCluster) -> None:
    """Committed, aborted and open transactions in several segments of a topic."""
    with connected(node.bootstrap[0]) as client:
        create_topic(client, "transacted", segment_bytes="1000", index_interval_bytes="0")
        first, second = RawTransactions(client, "transacted"), RawTransactions(client, "transacted")
        for number in range(20):
            assert first.write(b"first %d" % number) == second.write(b"second %d" % number) == 0
            assert second.end(commit=number % 3 == 0, coordinator_epoch=number) == 0
            assert first.end(commit=False) == 0
        assert first.write(b"undecided") == 0


def _compact(node: EmbeddedCluster) -> None:
    """A topic of which most records are gone, in every codec."""
    bootstrap = str(node.bootstrap[0])
    config = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=2000")
    eager = ("--config", "min.cleanable.dirty.ratio=0.01")
    _broker("topics", "create", "compacted", *config, *eager, "--bootstrap-server", bootstrap)
    lines = [f"key-{number % 7}:value {number}" for number in range(40)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd") * 3:
        producing = ("produce", "compacted", "--key-separator", ":", "--compression", codec)
        _broker(*producing, "--bootstrap-server", bootstrap, stdin="\n".join(lines))
    (root,) = (path.parent for path in Path(node.spec.directory).rglob("meta.properties"))
    active = max(int(path.stem) for path in root.glob("compacted-0/*.log"))
    until(lambda: f"compacted 0 {active}\n" in _text(root / "cleaner-offset-checkpoint"))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _broker(*arguments: str, stdin: str = "") -> list[str]:
    command = [sys.executable, "-m", "broker.cli", *arguments]
    finished = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_SECONDS, check=True
    )
    return finished.stdout.splitlines()


def _kafka(classpath: str, *arguments: str) -> list[str]:
    command = [*JAVA, "-cp", classpath, "kafka.tools.DumpLogSegments", *arguments]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_SECONDS, check=True
    )
    return [line.rstrip() for line in finished.stdout.splitlines()]


def _files(directory: Path, pattern: str) -> str:
    return ",".join(str(path) for path in sorted(directory.glob(pattern)) if path.stat().st_size)


@pytest.mark.parametrize(
    "pattern",
    [
        "*/*.log",
        "compacted-*/*.timeindex",
        "transacted-*/*.index",
        "transacted-*/*.snapshot",
        "transacted-*/*.txnindex",
    ],
)
def test_files_are_shown_as_kafka_shows_them(kafka_classpath: str, directory: Path, pattern: str) -> None:
    files = _files(directory, pattern)
    assert files
    assert _broker("dump-log", "--files", files) == _kafka(kafka_classpath, "--files", files)


def test_records_and_committed_offsets_are_shown_as_kafka_shows_them(
    kafka_classpath: str, directory: Path
) -> None:
    def data(lines: list[str]) -> list[str]:
        found = (match[0] for line in lines if (match := re.search(r"(?: key: | payload: ).*", line)))
        return [each for each in found if not _OF_THE_CONSUMER_PROTOCOL.match(each)]

    for pattern, flag in (
        ("dumped-*/*.log", "--print-data-log"),
        ("__consumer_offsets-*/*.log", "--offsets-decoder"),
    ):
        arguments = ("--files", _files(directory, pattern), flag)
        ours = data(_broker("dump-log", *arguments))
        assert ours
        assert ours == data(_kafka(kafka_classpath, *arguments))
