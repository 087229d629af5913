"""Data directories that real brokers of Apache Kafka wrote, made into captures.

A capture holds one broker's directory twice: as a `kill -9` left it, and after the start, the further
records and the clean stop that followed; what the broker itself served and DumpLogSegments printed each time;
and what it kept in ZooKeeper. `python -m tests.interop.capture [VERSION ...]` makes those under tests/golden
anew.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from broker.embedded import EmbeddedZooKeeper
from tests.captured import GOLDEN, GROUP, State
from tests.conftest import until
from tests.interop.apache import JAVA, ApacheKafka, kafka_jars

FIRST_TIMESTAMP = 1_700_000_000_000
DEADLINE_SECONDS = 60
VERSIONS = ("0.8.2.2", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1")
"""The last with ZooKeeper, the last that stores magic 0 or 1 where a topic asks for it, and older ones: the
first stores magic 0, the second 1, and the third is the first that stores 2.
"""
SETTINGS: Mapping[str, object] = {
    "log.index.interval.bytes": 200,
    "log.index.size.max.bytes": 4000,
    "log.segment.bytes": 3000,
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 10**10,
    "log.cleaner.dedupe.buffer.size": 2_000_000,
    "log.retention.hours": 1_000_000,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 20_000,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": 20_000,
    "zookeeper.session.timeout.ms": 6000,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "num.recovery.threads.per.data.dir": 1,
}
"""Small segments and dense indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a version of Kafka can do that these captures are about."""

    topics: Mapping[str, Mapping[str, str]]
    """The configuration of each topic by its name."""
    codecs: tuple[str, ...]
    knows_versions: bool = True
    """Whether the broker answers ApiVersions."""
    has_timestamps: bool = True
    has_batches: bool = True
    """Whether it stores magic 2, and with it headers, idempotent producers and transactions."""
    client: Mapping[str, object] = field(default_factory=dict)


_COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000"}


def features_of(version: str) -> Features:
    """What that version can do."""
    number = tuple(int(part) for part in version.split("."))
    topics: dict[str, Mapping[str, str]] = {"plain": {}, "compressed": {}, "compacted": _COMPACT}
    if number >= (0, 10):
        topics["stamped"] = {"message.timestamp.type": "LogAppendTime"}
    if (0, 10) <= number < (3,):
        topics["old"] = {"message.format.version": "0.9.0"}
        topics["old-compacted"] = {"message.format.version": "0.9.0", **_COMPACT}
    if (0, 11) <= number < (3,):
        topics["middle"] = {"message.format.version": "0.10.0"}
        topics["middle-compacted"] = {"message.format.version": "0.10.0", **_COMPACT}
    if number >= (0, 11):
        topics |= {"idempotent": {}, "transactional": {}, "trimmed": {}}
    old_client = {"log_level": 0, "api.version.request": False, "broker.version.fallback": "0.8.2"}
    knows_versions = number >= (0, 10)
    return Features(
        topics=topics,
        codecs=("gzip", "snappy", "lz4", "zstd") if number >= (2, 1) else ("gzip", "snappy", "lz4"),
        knows_versions=knows_versions,
        has_timestamps=number >= (0, 10),
        has_batches=number >= (0, 11),
        client={} if knows_versions else old_client,
    )


class Recording:
    """One broker at work, and what is written down of it."""

    def __init__(self, version: str, classpath: str, zookeeper: EmbeddedZooKeeper, directory: Path) -> None:
        self.features = features_of(version)
        directory.mkdir()
        self._data = directory / "data"
        connect = zookeeper.connect_string(f"kafka-{version}")
        with warnings.catch_warnings(action="ignore"):  # that the chroot is not there yet
            self._tree = KazooClient(hosts=connect)
            self._tree.start()
            self._tree.ensure_path("/")
        self.kafka = ApacheKafka(
            classpath,
            connect,
            directory,
            settings=SETTINGS,
            knows_versions=self.features.knows_versions,
        )
        self._client = {"bootstrap.servers": str(self.kafka.address), **self.features.client}

    def start(self) -> None:
        """Start the broker, once ZooKeeper has forgotten that it died."""
        until(lambda: not self._tree.exists("/brokers/ids/1"), seconds=DEADLINE_SECONDS)
        self.kafka.start()

    def create_topics(self) -> None:
        """Make the topics as the oldest tools did: in ZooKeeper."""
        for topic, config in self.features.topics.items():
            document = json.dumps({"version": 1, "config": config}).encode()
            self._tree.create(f"/config/topics/{topic}", document, makepath=True)
            partitions = {"version": 1, "partitions": {"0": [1], **({"1": [1]} if topic == "plain" else {})}}
            self._tree.create(f"/brokers/topics/{topic}", json.dumps(partitions).encode())
        expected = len(self.features.topics) + 1
        until(lambda: len(list(self._data.glob("*-[0-9]"))) >= expected, seconds=DEADLINE_SECONDS)

    # Records

    def produce(self, first: int) -> None:
        """Fill the topics; the numbers in the records begin with `first`."""
        for topic in self.features.topics:
            kind = topic.rpartition("-")[2]
            if kind == "compacted":
                self._overwrite(topic, first)
            elif kind == "transactional":
                self._transactions(topic, first)
            elif kind == "idempotent":
                for _ in range(2):
                    self._send(topic, range(first, first + 20), **{"enable.idempotence": True})
            elif kind == "plain":
                for partition in (0, 1):
                    self._send(topic, range(first, first + 60), partition)
            else:
                for number, codec in enumerate(self._codecs(topic)):
                    start = first + number * 20
                    self._send(topic, range(start, start + 20), **{"compression.type": codec})

    def _codecs(self, topic: str) -> tuple[str, ...]:
        """No compression, and every codec that the topic's format has."""
        known = self.features.codecs if self._stores_batches(topic) else ("gzip", "snappy", "lz4")
        return ("none", *known)

    def _stores_batches(self, topic: str) -> bool:
        return self.features.has_batches and "message.format.version" not in self.features.topics[topic]

    def _producer(self, **settings: object) -> Producer:
        return Producer({**self._client, "linger.ms": 50, "batch.num.messages": 7, **settings})

    def _send(self, topic: str, numbers: range, partition: int = 0, **settings: object) -> None:
        producer = self._producer(**settings)
        for number in numbers:
            self._put(producer, topic, partition, number)
        _flush(producer)

    def _put(self, producer: Producer, topic: str, partition: int, number: int) -> None:
        record: dict[str, Any] = {"value": f"value {number} " + "v" * (number % 40)}
        if number % 3:
            record["key"] = f"key {number}"
        if self.features.has_timestamps:
            record["timestamp"] = FIRST_TIMESTAMP + number * 1000 - (number % 5) * 3000
        if self._stores_batches(topic) and number % 4 == 0:
            record["headers"] = [("number", b"%d" % number), ("number", None), ("empty", b"")]
        producer.produce(topic, partition=partition, on_delivery=_no_failure, **record)

    def _overwrite(self, topic: str, first: int) -> None:
        """Keys that come again, some of them to be deleted, in several segments, compressed and not."""
        for turn, codec in enumerate((*self._codecs(topic), "none")):
            producer = self._producer(**{"compression.type": codec})
            for number in range(14):
                value = None if (number + turn) % 7 == 0 else f"value {first} {turn} " + "v" * 50
                producer.produce(topic, value, f"key {number}", partition=0, on_delivery=_no_failure)
            _flush(producer)

    def _transactions(self, topic: str, first: int) -> None:
        """Committed and aborted ones, two at a time, and one that stays open."""
        one, other = (self._transactional(f"{name}-{first}") for name in ("one", "other"))
        for turn in range(6):
            start = first + turn * 10
            for producer, numbers in (
                (one, range(start, start + 5)),
                (other, range(start + 5, start + 10)),
            ):
                producer.begin_transaction()
                for number in numbers:
                    self._put(producer, topic, 0, number)
                _flush(producer)
            (one.commit_transaction if turn % 2 else one.abort_transaction)()
            (other.abort_transaction if turn % 3 else other.commit_transaction)()
        if first == 0:
            forgotten = self._transactional("forgotten")
            forgotten.begin_transaction()
            self._put(forgotten, topic, 0, 1000)
            _flush(forgotten)

    def _transactional(self, name: str) -> Producer:
        producer = self._producer(**{"transactional.id": name, "transaction.timeout.ms": 600_000})
        producer.init_transactions(DEADLINE_SECONDS)
        return producer

    def trim(self) -> None:
        """Delete the first records of a topic."""
        if "trimmed" in self.features.topics:
            admin = AdminClient(self._client)
            for future in admin.delete_records([TopicPartition("trimmed", 0, 33)]).values():
                future.result(DEADLINE_SECONDS)

    def commit(self, first: int) -> None:
        """Commit offsets for a group."""
        consumer = self._consumer()
        for topic in self.features.topics:
            position = TopicPartition(topic, 0, first + len(topic), metadata=f"about {topic}")
            consumer.commit(offsets=[position], asynchronous=False)
        consumer.close()

    # What is written down

    def wait_for_the_cleaner(self) -> None:
        """Return once compaction has done what it can: nothing changes any more."""
        seen: object = None
        since = time.monotonic()
        deadline = since + DEADLINE_SECONDS
        while time.monotonic() < since + 3:
            time.sleep(0.2)  # nothing tells that the cleaner is idle
            assert time.monotonic() < deadline, "compaction does not come to an end"
            now = sorted((str(path), path.stat().st_size) for path in self._data.glob("*compacted-0/*"))
            if now != seen:
                seen, since = now, time.monotonic()

    def served(self) -> dict[str, Any]:
        """What the broker serves of every topic, and the offsets that it keeps for the group."""
        partitions = sorted(
            (path.name.rpartition("-")[0], int(path.name.rpartition("-")[2]))
            for path in self._data.glob("*-[0-9]")
            if not path.name.startswith("__")
        )
        return {
            "records": {f"{topic}-{number}": list(self._read(topic, number)) for topic, number in partitions},
            "committed": {
                f"{topic}-{number}": [record["offset"] for record in self._read(topic, number, "committed")]
                for topic, number in partitions
                if topic == "transactional"
            },
            "start_offsets": {
                f"{topic}-{number}": self._watermarks(topic, number)[0] for topic, number in partitions
            },
            "end_offsets": {
                f"{topic}-{number}": self._watermarks(topic, number)[1] for topic, number in partitions
            },
            "group": self._group_offsets(),
        }

    def _consumer(self, **settings: object) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_SECONDS)
        consumer.close()
        assert watermarks is not None
        return watermarks

    def _read(self, topic: str, partition: int, isolation: str = "uncommitted") -> Iterator[dict[str, Any]]:
        consumer = self._consumer(**{"isolation.level": f"read_{isolation}"})
        start, _ = self._watermarks(topic, partition)
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, f"{topic}-{partition} does not end"
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                break
            kind, timestamp = message.timestamp()
            yield {
                "offset": message.offset(),
                "timestamp": timestamp if kind else None,
                "append_time": kind == 2,
                "key": _text(message.key()),
                "value": _text(message.value()),
                "headers": [[name, _text(value)] for name, value in message.headers() or []],
            }
        consumer.close()

    def _group_offsets(self) -> dict[str, list[Any]]:
        consumer = self._consumer()
        asked = [TopicPartition(topic, 0) for topic in self.features.topics]
        found = consumer.committed(asked, DEADLINE_SECONDS)
        consumer.close()
        return {
            f"{place.topic}-0": [place.offset, place.metadata or ""]
            for place in found
            if place.offset != OFFSET_INVALID
        }

    def znodes(self) -> dict[str, str]:
        """What lasts in ZooKeeper, by path."""
        return dict(self._walk("/"))

    def _walk(self, path: str) -> Iterator[tuple[str, str]]:
        data, stat = self._tree.get(path)
        if stat.ephemeralOwner == 0:
            yield path, (data or b"").decode()
            for child in sorted(self._tree.get_children(path)):
                yield from self._walk(f"{path.rstrip('/')}/{child}")

    def copy(self, place: Path) -> None:
        """Copy the data directory as it is."""
        shutil.copytree(self._data, place)
        (place / ".lock").unlink(missing_ok=True)

    def close(self) -> None:
        """End everything."""
        self.kafka.kill()
        self._tree.stop()
        self._tree.close()


def _no_failure(error: object, _: object) -> None:
    assert error is None, error


def _flush(producer: Producer) -> None:
    assert producer.flush(DEADLINE_SECONDS) == 0


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def capture(
    version: str, classpath: str, tools: str, zookeeper: EmbeddedZooKeeper, directory: Path
) -> dict[State, Path]:
    """Run a broker of `version` and write down what it leaves; the directory of each state, below
    `directory`. `tools` is the classpath of the Kafka whose DumpLogSegments prints the files.
    """
    places = {state: directory / state.value for state in State}
    recording = Recording(version, classpath, zookeeper, directory / "broker")
    served: dict[State, dict[str, Any]] = {}
    try:
        recording.start()
        recording.create_topics()
        recording.produce(0)
        recording.commit(0)
        recording.trim()
        recording.wait_for_the_cleaner()
        served[State.CRASHED] = recording.served()
        recording.kafka.kill()
        recording.copy(places[State.CRASHED])
        recording.start()
        recording.produce(100)
        recording.commit(10)
        recording.wait_for_the_cleaner()
        served[State.CLEAN] = recording.served()
        znodes = recording.znodes()
        recording.kafka.stop()
        recording.copy(places[State.CLEAN])
    finally:
        recording.close()
    for state, place in places.items():
        document = {"version": version, "znodes": znodes, **served[state]}
        (directory / f"{state.value}.json").write_text(json.dumps(document, indent=1, sort_keys=True))
        (directory / f"{state.value}.dump").write_text(dump_log_segments(tools, place, state))
    return places


def dump_log_segments(classpath: str, place: Path, state: State) -> str:
    """What Kafka's own tool prints of the files of a data directory, their names relative to it.

    The indexes of a crash are left out: their ends are not written yet.
    """
    indexes = ("*/*.index", "*/*.timeindex", "*/*.txnindex") if state is State.CLEAN else ()
    internal, others = ("__*/*.log", "*/*.snapshot", *indexes), ("[!_]*/*.log",)
    runs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (internal, ()),
        (others, ("--print-data-log",)),
    )
    printed = ""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(place, copy, dirs_exist_ok=True)  # the tool opens indexes for writing
        for patterns, flags in runs:
            files = [path for pattern in patterns for path in sorted(Path(copy).glob(pattern))]
            names = ",".join(str(path.relative_to(copy)) for path in files if path.stat().st_size)
            command = [*JAVA, "-cp", classpath, "kafka.tools.DumpLogSegments", "--files", names]
            printed += subprocess.run(
                [*command, "--deep-iteration", *flags],
                cwd=copy,
                capture_output=True,
                text=True,
                timeout=600,
                check=True,
            ).stdout
    return printed


def pack(directory: Path, archive: Path) -> None:
    """Put a capture into an archive."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for state in State:
            for suffix in ("", ".json", ".dump"):
                packed.add(directory / f"{state.value}{suffix}", f"{state.value}{suffix}", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(versions: list[str]) -> None:
    """Make captures anew."""
    with tempfile.TemporaryDirectory(prefix="captures-") as temporary:
        directory = Path(temporary)
        tools = kafka_jars("3.9.1", directory / "tools")
        with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
            for version in versions or VERSIONS:
                place = directory / version
                place.mkdir()
                capture(version, kafka_jars(version, directory / f"jars-{version}"), tools, zookeeper, place)
                pack(place, GOLDEN / f"kafka-{version}.tar.xz")
                sys.stdout.write(f"{version} is captured\n")


if __name__ == "__main__":
    main(sys.argv[1:])
