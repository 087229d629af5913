"""Compaction on real nodes, seen by clients that know nothing of it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory, until

DEADLINE_SECONDS = 60
SETTINGS: Mapping[str, object] = {
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 300,
    "offsets.topic.segment.bytes": 4_000,
}
COMPACT: Mapping[str, str] = {"cleanup.policy": "compact", "segment.bytes": "4000"}

Table = dict[str, bytes | None]


def bootstrap_of(running: EmbeddedCluster) -> str:
    return str(running.bootstrap[0])


def create(running: EmbeddedCluster, topic: str, config: Mapping[str, str] = COMPACT) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(running)})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))]).values():
        future.result(DEADLINE_SECONDS)


def overwrite(running: EmbeddedCluster, topic: str, written: Table, *, rounds: int, seed: int = 0) -> int:
    """Write some keys again and again, idempotently, one in eight times a tombstone; how many records."""
    random = Random(seed)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_of(running),
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 10,
            "compression.type": random.choice(["none", "lz4", "zstd"]),
        }
    )
    failures: list[object] = []
    count = 0
    for number in range(rounds):
        for key in random.sample(range(40), 10):
            value = None if random.random() < 0.125 else b"%d/%d" % (seed, number) + b"." * 50
            producer.produce(
                topic, value, f"key-{key}", on_delivery=lambda e, _: failures.append(e) if e else None
            )
            written[f"key-{key}"] = value
            count += 1
        producer.poll(0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert not failures
    return count


def read_all(running: EmbeddedCluster, topic: str) -> list[Message]:
    """Every record that is there, read to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_of(running),
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        assert time.monotonic() < deadline, f"no end after {len(found)} records"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            break
        found.append(message)
    consumer.close()
    return found


def table_of(messages: list[Message]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    offsets = [message.offset() for message in messages]
    assert offsets == sorted(set(offsets))
    for message in messages:
        key, value = message.key().decode(), message.value()
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def live(written: Table) -> dict[str, bytes]:
    return {key: value for key, value in written.items() if value is not None}


def directory_of(running: EmbeddedCluster, topic: str) -> Path:
    (found,) = running.spec.directory.rglob(f"{topic}-0")
    return found


def events(running: EmbeddedCluster, name: str) -> Iterator[dict[str, object]]:
    """What the nodes logged of one kind."""
    for path in running.spec.directory.glob("*.log"):
        for line in path.read_text().splitlines():
            if f'"{name}"' in line:
                yield json.loads(line)


def cleaned(running: EmbeddedCluster, topic: str) -> list[dict[str, object]]:
    return [event for event in events(running, "log_cleaned") if event["partition"] == f"{topic}-0"]


def size_of(running: EmbeddedCluster, topic: str) -> int:
    sizes = 0
    for path in directory_of(running, topic).glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # it was compacted in between
            sizes += path.stat().st_size
    return sizes


def test_overwritten_and_deleted_keys_go_and_every_client_reads_what_is_left(
    cluster: ClusterFactory,
) -> None:
    running = cluster(settings=SETTINGS)
    create(running, "state")
    written: Table = {}
    count = overwrite(running, "state", written, rounds=60)
    until(lambda: any(event["bytes_after"] < event["bytes_before"] for event in cleaned(running, "state")))
    for seed in range(1, 30):  # later rolls let what the first passes left be compacted
        count += overwrite(running, "state", written, rounds=5, seed=seed)
        if size_of(running, "state") < 16_000:
            break
    until(lambda: size_of(running, "state") < 16_000)
    messages = read_all(running, "state")
    assert table_of(messages) == live(written)
    assert len(messages) < count / 2
    assert _kcat_table(running, "state") == live(written)
    checkpoint = directory_of(running, "state").parent / "cleaner-offset-checkpoint"
    version, _, *lines = checkpoint.read_text().splitlines()
    assert version == "0"
    assert re.search(r"^state 0 [1-9]\d*$", "\n".join(lines), re.MULTILINE)
    running.stop_node(1)
    data = directory_of(running, "state").parent
    verified = subprocess.run(
        [sys.executable, "-m", "broker.cli", "verify", str(data)], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def _kcat_table(running: EmbeddedCluster, topic: str) -> dict[str, bytes]:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")
    command = [program, "-b", bootstrap_of(running), "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    printed = subprocess.run([*command, "-Z", "-f", "%k %s\n"], capture_output=True, timeout=60, check=True)
    values: dict[str, bytes] = {}
    for line in printed.stdout.splitlines():
        key, value = line.split(b" ", 1)
        values[key.decode()] = value
    return {key: value for key, value in values.items() if value != b"NULL"}


@pytest.mark.long
def test_a_node_killed_again_and_again_while_it_compacts_loses_nothing(cluster: ClusterFactory) -> None:
    running = cluster(settings={**SETTINGS, "log.cleaner.io.max.bytes.per.second": 150_000})
    create(running, "state")
    written: Table = {}
    under_way = 0
    for seed in range(6):
        overwrite(running, "state", written, rounds=30, seed=seed)
        directory = directory_of(running, "state")
        under_way += _until_seen(lambda at=directory: any(at.glob("*.cleaned")))
        running.kill_node(1)
        running.start_node(1)
        assert table_of(read_all(running, "state")) == live(written)
        assert overwrite(running, "state", written, rounds=1, seed=100 + seed) == 10
    assert under_way >= 4, "the node was not killed while it compacted"
    assert table_of(read_all(running, "state")) == live(written)


def _until_seen(condition: Callable[[], bool]) -> bool:
    """Whether the condition came to hold within a while; looked at often."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
    return False


def test_a_policy_that_changes_is_followed_at_once_and_costs_nothing(cluster: ClusterFactory) -> None:
    running = cluster(settings=SETTINGS)
    create(running, "state", {"segment.bytes": "4000"})
    written: Table = {}
    overwrite(running, "state", written, rounds=40)
    assert not cleaned(running, "state")
    _alter(running, "state", "cleanup.policy", "compact")
    until(lambda: bool(cleaned(running, "state")))
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_of(running)})
    producer.produce("state", b"no key", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert [error.name() for error in failures] == ["INVALID_RECORD"]
    _alter(running, "state", "cleanup.policy", "delete")
    left = [(message.offset(), message.value()) for message in read_all(running, "state")]
    running.kill_node(1)
    for checkpoint in running.spec.directory.rglob("recovery-point-offset-checkpoint"):
        checkpoint.unlink()  # so that everything is checked
    running.start_node(1)
    assert [(message.offset(), message.value()) for message in read_all(running, "state")] == left
    assert table_of(read_all(running, "state")) == live(written)


def _alter(running: EmbeddedCluster, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(running)})
    resource = ConfigResource("topic", topic)
    resource.add_incremental_config(
        ConfigEntry(name, value, incremental_operation=_set_operation())  # type: ignore[no-untyped-call]
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_SECONDS)


def _set_operation() -> object:
    from confluent_kafka.admin import AlterConfigOpType

    return AlterConfigOpType.SET


def test_committed_offsets_are_read_back_from_a_compacted_log(cluster: ClusterFactory) -> None:
    running = cluster(settings={**SETTINGS, "offsets.topic.num.partitions": 1})
    create(running, "flights", {})
    consumers = {
        group: Consumer({"bootstrap.servers": bootstrap_of(running), "group.id": group})
        for group in ("one", "two")
    }
    for number in range(1, 150):
        for group, consumer in consumers.items():
            offset = number if group == "one" else 1000 + number
            consumer.commit(offsets=[TopicPartition("flights", 0, offset)], asynchronous=False)
    for consumer in consumers.values():
        consumer.close()
    until(lambda: bool(cleaned(running, "__consumer_offsets")))
    until(lambda: size_of(running, "__consumer_offsets") < 12_000)
    running.kill_node(1)
    running.start_node(1)
    for group, offset in (("one", 149), ("two", 1149)):
        consumer = Consumer({"bootstrap.servers": bootstrap_of(running), "group.id": group})
        (committed,) = consumer.committed([TopicPartition("flights", 0)], timeout=DEADLINE_SECONDS)
        consumer.close()
        assert committed.offset == offset
