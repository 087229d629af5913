"""Mirrors that are killed while records are written at their source, and what arrives then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from tests.client.reading_members import Brokers
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorProcess

TOPIC, COPY = "flights", "jfk.flights"
PARTITIONS = 3


def address(cluster: Brokers) -> str:
    """As clients take it."""
    return ",".join(map(str, cluster.bootstrap))


def create_topic(cluster: Brokers) -> None:
    """The topic that is copied."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(PATIENCE_SECONDS)


def write(cluster: Brokers, numbers: range, *, partitions: int = PARTITIONS) -> None:
    """Records whose value is their number, in all partitions by turns."""
    producer = Producer({"bootstrap.servers": address(cluster), "log_level": 0})
    for number in numbers:
        producer.produce(TOPIC, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_SECONDS) == 0


class SteadyWriter:
    """Writes numbers to the source until it is told to stop; a key's numbers ascend."""

    def __init__(self, cluster: Brokers, written: int = 0, *, partitions: int = PARTITIONS) -> None:
        """`written`: so many have been written before."""
        self.written = written
        self._partitions = partitions
        settings = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": address(cluster), **settings})
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> SteadyWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _write(self) -> None:
        while not self._done.wait(0.005):
            for _ in range(20):
                key = self.written % (self._partitions * 3)
                self._producer.produce(
                    TOPIC, b"%d" % self.written, b"key-%d" % key, partition=key % self._partitions
                )
                self.written += 1
            self._producer.poll(0)


def end_of(cluster: Brokers, topic: str) -> int:
    """The end of a topic of one partition; 0 before it is there."""
    reader = Consumer({"bootstrap.servers": address(cluster), "group.id": "reader", "log_level": 0})
    try:
        _, end = reader.get_watermark_offsets(Position(topic, 0), timeout=5.0)
    except KafkaException:
        return 0
    finally:
        reader.close()
    return int(end)


def numbers_at(
    cluster: Brokers, *, isolation: str = "read_committed", partitions: int = PARTITIONS
) -> Counter[int]:
    """What readers find."""
    found: Counter[int] = Counter()
    for message in read(cluster, COPY, isolation, partitions):
        found[int(message.value() or b"")] += 1
    return found


def places_at(cluster: Brokers, topic: str) -> dict[int, dict[int, int]]:
    """By partition and offset, the numbers that readers of committed records find."""
    found: dict[int, dict[int, int]] = {number: {} for number in range(PARTITIONS)}
    for message in read(cluster, topic, "read_committed"):
        found[message.partition() or 0][message.offset() or 0] = int(message.value() or b"")
    return found


def commit(cluster: Brokers, group: str, positions: Collection[Position]) -> None:
    """As a consumer that is a member of no group."""
    consumer = Consumer({"bootstrap.servers": address(cluster), "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=list(positions), asynchronous=False)
    finally:
        consumer.close()


def committed(cluster: Brokers, group: str, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Where a group stands."""
    consumer = Consumer({"bootstrap.servers": address(cluster), "group.id": group, "log_level": 0})
    try:
        asked = [Position(topic, partition) for partition in partitions]
        return {each.partition: each.offset for each in consumer.committed(asked, PATIENCE_SECONDS)}
    finally:
        consumer.close()


def read(cluster: Brokers, topic: str, isolation: str, partitions: int = PARTITIONS) -> Iterator[Message]:
    """All that there is."""
    reader = Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an answer without records tells the end, though more are written
            "log_level": 0,
        }
    )
    try:
        reader.assign([Position(topic, number, 0) for number in range(partitions)])
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ended) < partitions:
            assert time.monotonic() < deadline, "the topic was not read to its end"
            messages = reader.consume(10_000, 0.2)
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
    finally:
        reader.close()


def killed_often(
    source: Brokers,
    mirror: MirrorProcess,
    kills: int,
) -> int:
    """Copy while the mirror is killed so often; how many records were written."""
    chance = random.Random()
    with SteadyWriter(source) as writer:
        for _ in range(kills):
            mirror.start()
            time.sleep(chance.uniform(0.7, 3.0))
            mirror.kill()
        mirror.start()
    mirror.wait_copied()
    return writer.written


def events(mirror: MirrorProcess, name: str) -> list[dict[str, Any]]:
    """What all its processes logged under a name."""
    told = [json.loads(line) for line in mirror.log.read_text().splitlines() if line.startswith("{")]
    return [event for event in told if event["event"] == name]
