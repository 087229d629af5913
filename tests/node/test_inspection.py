"""The commands on files: dump-log, verify, and import into a real node."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from broker.records.batch import Codec
from tests.conftest import until
from tests.node.commands import TIMEOUT_SECONDS, broker, done
from tests.node.test_cli import bootstrap
from tests.storage.legacy_samples import kafka_message, kafka_set, metaq_message, write_files

__all__ = ["bootstrap"]

PAYLOADS = [b"message %d" % number for number in range(1000)]


@pytest.fixture
def data(node: EmbeddedCluster) -> Path:
    """The data directory of the running node."""
    (meta,) = Path(node.spec.directory).rglob("meta.properties")
    return meta.parent


def fill(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, "--key-separator", ":", bootstrap, stdin="k:one\ntwo\n")


def test_a_nodes_log_is_dumped(bootstrap: str, topic: str, data: Path) -> None:
    fill(bootstrap, topic)
    log = str(data / f"{topic}-0" / f"{0:020d}.log")
    lines = done("dump-log", log, "--deep", "--print-data").lines
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert lines[3].startswith("| offset: 0 position: 0 CreateTime: ")
    assert lines[3].endswith("headerKeys: [] key: k payload: one")
    kafkas_names = ("--files", log, "--deep-iteration", "--print-data-log")
    assert done("dump-log", *kafkas_names).lines == lines
    documents = [json.loads(line) for line in done("dump-log", log, "--deep", "--output", "json").lines]
    assert [document["kind"] for document in documents] == ["note", "batch", "record", "record"]
    assert "payload" not in documents[2]


def test_damage_is_shown_where_it_is_and_ends_with_code_1(bootstrap: str, topic: str, data: Path) -> None:
    fill(bootstrap, topic)
    copy = data.parent / f"{0:020d}.log"
    copy.write_bytes((data / f"{topic}-0" / copy.name).read_bytes() + b"garbage")
    outcome = broker("dump-log", str(copy), str(copy.with_name("absent.log")))
    assert outcome.code == 1
    assert any(line.startswith(f"DAMAGED {copy}: position ") for line in outcome.lines)
    assert outcome.errors == "broker: 2 damaged places\n"


def test_a_running_nodes_directory_is_verified_without_a_change(
    bootstrap: str, topic: str, data: Path
) -> None:
    fill(bootstrap, topic)
    assert done("verify", str(data)).lines[-1].endswith(": 0 damaged places")
    report = done("verify", str(data), "--output", "json").json
    assert report["in_use"]
    assert report["partitions"] >= 1
    assert all(problem["severity"] == "note" for problem in report["problems"])
    (data / "photographs").mkdir()
    try:
        outcome = broker("verify", str(data))
    finally:
        (data / "photographs").rmdir()
    assert outcome.code == 1
    assert any("DAMAGED" in line and "photographs" in line for line in outcome.lines)


def test_progress_is_shown_on_a_terminal_only(bootstrap: str, topic: str, data: Path) -> None:
    fill(bootstrap, topic)
    controller, terminal = pty.openpty()
    try:
        command = [sys.executable, "-m", "broker.cli", "verify", str(data)]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        finished = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=environment,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        assert b"checked" in os.read(controller, 1 << 16)
    finally:
        os.close(terminal)
        os.close(controller)
    assert b"\x1b" not in finished.stdout


def kafka_directory(path: Path) -> Path:
    """A topic of Kafka 0.7 with two partitions: several files and compressed messages in one."""
    plain = [kafka_message(payload) for payload in PAYLOADS]
    files = [b"".join(plain[:400]), kafka_set(PAYLOADS[400:500], Codec.GZIP) + b"".join(plain[500:])]
    write_files(path / "flights-0", files, "kafka")
    write_files(path / "flights-1", [kafka_message(b"only")], "kafka")
    return path


def values(bootstrap: str, topic: str, partition: int, count: int) -> list[dict[str, object]]:
    reading = ("--from-beginning", "--partition", str(partition), "--max-messages", str(count))
    return [
        json.loads(line) for line in done("consume", topic, *reading, bootstrap, "--output", "json").lines
    ]


def test_a_directory_of_kafka_0_7_is_loaded_in_order(bootstrap: str, topic: str, tmp_path: Path) -> None:
    directory = str(kafka_directory(tmp_path))
    loaded = done(
        "import", directory, "--topic", topic, bootstrap, "--compression", "zstd", "--output", "json"
    ).json
    assert [(row["partition"], row["messages"], row["loaded"]) for row in loaded] == [
        (0, 1000, 1000),
        (1, 1, 1),
    ]
    records = values(bootstrap, topic, 0, 1000)
    assert [record["value"] for record in records] == [payload.decode() for payload in PAYLOADS]
    assert records[1]["headers"] == [["import.position", str(len(kafka_message(PAYLOADS[0])))]]
    assert str(dict(records[401]["headers"])["import.position"]).endswith(".1")  # type: ignore[call-overload]
    modified = (tmp_path / "flights-0" / f"{0:020d}.kafka").stat().st_mtime_ns // 1_000_000
    assert records[0]["timestamp"] == modified
    assert [record["value"] for record in values(bootstrap, topic, 1, 1)] == ["only"]
    again = done("import", directory, "--topic", topic, bootstrap, "--output", "json").json
    assert [row["loaded"] for row in again] == [0, 0]


def test_an_import_that_was_cut_short_goes_on_where_it_ended(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    plain = [kafka_message(payload) for payload in PAYLOADS[:10]]
    (path,) = write_files(tmp_path / "flights-0", [b"".join(plain[:4])], "kafka")
    os.utime(path, (1, 1))
    arguments = ("import", str(tmp_path), "--topic", topic, bootstrap)
    done(*arguments)
    path.write_bytes(b"".join(plain))
    assert done(*arguments).lines == [
        f"Topic: {topic}\tPartition: 0\tSource: {tmp_path / 'flights-0'}\tMessages: 10\tLoaded: 6"
    ]
    assert [r["value"] for r in values(bootstrap, topic, 0, 10)] == [p.decode() for p in PAYLOADS[:10]]


@pytest.mark.long
def test_an_import_that_is_killed_loses_and_doubles_nothing(
    bootstrap: str, topic: str, data: Path, tmp_path: Path
) -> None:
    count = 60_000
    messages = [kafka_message(b"%06d" % number) for number in range(count)]
    write_files(tmp_path / "flights-0", [b"".join(messages)], "kafka")
    arguments = ("import", str(tmp_path), "--topic", topic, bootstrap)
    log = data / f"{topic}-0" / f"{0:020d}.log"
    first = subprocess.Popen([sys.executable, "-m", "broker.cli", *arguments])
    until(lambda: (log.exists() and log.stat().st_size > 100_000) or first.poll() is not None)
    first.kill()
    first.wait()
    (again,) = done(*arguments, "--output", "json").json
    assert (again["messages"], again["loaded"] < count) == (count, True)
    expected = [f"{number:06d}" for number in range(count)]
    dumped = done("dump-log", str(log), "--print-data", "--skip-record-metadata").lines
    assert [line.removeprefix("| payload: ") for line in dumped if line.startswith("| ")] == expected
    assert [record["value"] for record in values(bootstrap, topic, 0, count)] == expected


def test_a_directory_of_metaq_is_loaded_with_ids_and_attributes(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    write_files(tmp_path / "0-0", [metaq_message(b"a", message_id=5, attribute=b"type=x")], "meta")
    write_files(tmp_path / "1-0", [metaq_message(b"b", message_id=6)], "meta")
    done("import", str(tmp_path), "--topic", topic, bootstrap)
    (first,), (second,) = values(bootstrap, topic, 0, 1), values(bootstrap, topic, 1, 1)
    assert (first["value"], first["headers"]) == (
        "a",
        [
            ["import.position", "0"],
            ["import.metaq.id", "5"],
            ["import.metaq.flag", "1"],
            ["import.metaq.attribute", "type=x"],
        ],
    )
    assert second["value"] == "b"


def test_a_damaged_source_is_refused_and_nothing_is_loaded(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    directory = kafka_directory(tmp_path)
    path = directory / "flights-1" / f"{0:020d}.kafka"
    path.write_bytes(path.read_bytes() + b"\0\0")
    outcome = broker("import", str(directory), "--topic", topic, bootstrap)
    assert outcome.code == 1
    assert f"{path}: position 14: the last 2 bytes are no whole message" in outcome.errors
    assert topic not in done("topics", "list", bootstrap).lines
    done("import", str(directory), "--topic", topic, bootstrap, "--accept-torn-tail")
    assert [record["value"] for record in values(bootstrap, topic, 1, 1)] == ["only"]


def test_a_topic_that_somebody_else_wrote_to_is_refused(bootstrap: str, topic: str, tmp_path: Path) -> None:
    write_files(tmp_path / "flights-0", [b"".join(map(kafka_message, PAYLOADS[:5]))], "kafka")
    fill(bootstrap, topic)
    outcome = broker("import", str(tmp_path), "--topic", topic, bootstrap)
    assert outcome.code == 1
    assert "written by somebody else" in outcome.errors
    assert outcome.errors.count("\n") == 1


def test_a_source_that_is_not_what_was_loaded_is_refused(bootstrap: str, topic: str, tmp_path: Path) -> None:
    arguments = ("import", str(tmp_path), "--topic", topic, bootstrap)
    write_files(tmp_path / "flights-0", [b"".join(map(kafka_message, PAYLOADS[10:15]))], "kafka")
    done(*arguments)
    changed = [*PAYLOADS[10:12], b"massage 12", *PAYLOADS[13:20]]
    write_files(tmp_path / "flights-0", [b"".join(map(kafka_message, changed))], "kafka")
    outcome = broker(*arguments)
    assert outcome.code == 1
    assert "the record at offset 2 of" in outcome.errors


def test_a_message_that_is_too_large_for_the_topic_is_refused(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    write_files(tmp_path / "flights-0", [kafka_message(bytes(200_000))], "kafka")
    outcome = broker("import", str(tmp_path), "--topic", topic, bootstrap)
    assert outcome.code == 1
    assert "max.message.bytes" in outcome.errors
    done("import", str(tmp_path), "--topic", topic, bootstrap, "--compression", "gzip")


def test_a_topic_with_too_few_partitions_is_refused(bootstrap: str, topic: str, tmp_path: Path) -> None:
    done("topics", "create", topic, bootstrap)
    outcome = broker("import", str(kafka_directory(tmp_path)), "--topic", topic, bootstrap)
    assert outcome.code == 1
    assert "has 1 partitions, the source needs 2" in outcome.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump-log",),
        ("dump-log", "x.log", "--offsets", "--transactions"),
        ("dump-log", "x.log", "--max-bytes", "0"),
        ("verify",),
        ("import", "directory"),
    ],
)
def test_wrong_usage_of_the_file_commands_is_code_2(arguments: tuple[str, ...]) -> None:
    assert broker(*arguments).code == 2
