"""Records, transactions and committed offsets of every kind, and what a broker then serves of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.captured import GROUP
from tests.conftest import until

FIRST_TIMESTAMP = 1_700_000_000_000
DEADLINE_SECONDS = 60


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


class Workload:
    """What is written to one broker and read from it."""

    def __init__(self, bootstrap: str, features: Features) -> None:
        self.features = features
        self._client = {"bootstrap.servers": bootstrap, **features.client}

    def create_topics(self) -> None:
        """Make the topics; for brokers that can be asked to."""
        admin = AdminClient(self._client)
        topics = [
            NewTopic(topic, 2 if topic == "plain" else 1, 1, config=dict(config))
            for topic, config in self.features.topics.items()
        ]
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_SECONDS)

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

    def served(self) -> dict[str, Any]:
        """What the broker serves of every topic, and the offsets that it keeps for the group."""
        partitions = self._partitions()
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

    def _partitions(self) -> list[tuple[str, int]]:
        """Those of the topics, once the broker knows them all: one that just started may not."""
        admin = AdminClient(self._client)
        until(
            lambda: admin.list_topics(timeout=DEADLINE_SECONDS).topics.keys() >= self.features.topics.keys()
        )
        topics = admin.list_topics(timeout=DEADLINE_SECONDS).topics
        return sorted(
            (topic, partition) for topic in self.features.topics for partition in topics[topic].partitions
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


def _no_failure(error: object, _: object) -> None:
    assert error is None, error


def _flush(producer: Producer) -> None:
    assert producer.flush(DEADLINE_SECONDS) == 0


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
