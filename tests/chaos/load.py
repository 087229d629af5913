"""Load on a cluster by librdkafka, and the accounts of it: what was acknowledged, what can be read.

Every partition of a topic gets the numbers 0, 1, 2, … as values, so that whatever is lost, doubled or out of
order shows. Where keys are wanted, key and tombstone follow from the number.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.background import Background
from tests.chaos.closing import close

PARTITIONS = 4
PATIENCE_SECONDS = 90
RECORDS_PER_SECOND = 2_000
NOISE = Random(0).randbytes(50_000).hex()
"""What values are padded with: it hardly compresses, so that logs grow."""
NOISE_PER_RECORD = 400
OFTEN_WRITTEN_KEYS = 97
NUMBER_HEADER = "number"
"""Carries the number of a tombstone, which has no value."""
CLIENT_SETTINGS: dict[str, Any] = {
    "socket.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1_000,
    "log_level": 0,
}

Placed = dict[int, list[tuple[int, int]]]
"""Partition -> offset and number of every record, in the order of offsets."""


def create_topic(
    bootstrap: str, topic: str, config: Mapping[str, str] | None = None, *, replicas: int = 1
) -> None:
    """A topic of `PARTITIONS` partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT_SETTINGS})
    wanted = NewTopic(topic, PARTITIONS, replicas, config=dict(config or {}))
    (created,) = admin.create_topics([wanted]).values()
    created.result(PATIENCE_SECONDS)


def key_of(number: int) -> str:
    """The key of a record that has one: most are written again and again, some never again."""
    return f"once-{number}" if number % 50 == 0 else f"often-{number * number % OFTEN_WRITTEN_KEYS}"


def is_tombstone(number: int) -> bool:
    """Whether a record that has a key has no value."""
    return number % 11 == 5


def keyed_record(number: int) -> tuple[str, str | None, dict[str, str]]:
    """Key, value and headers of a record that has a key."""
    if is_tombstone(number):
        return key_of(number), None, {NUMBER_HEADER: str(number)}
    return key_of(number), _value(number), {}


class Writer(Background):
    """An idempotent producer with acks=all at steady work within a `with`, whose end waits for every answer.

    It never gives up: what breaks is sent again, however long that takes. `log` is a file for what it says of
    its sequence numbers.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        codec: str,
        keyed: bool = False,
        records_per_second: int = RECORDS_PER_SECOND,
        batch_size: int = 1_000_000,
        log: Path | None = None,
    ) -> None:
        super().__init__("writer")
        self.acknowledged: Placed = defaultdict(list)
        self._topic = topic
        self._keyed = keyed
        self._records_per_second = records_per_second
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.codec": codec,
                "linger.ms": 5,
                "batch.size": batch_size,
                "message.timeout.ms": 0,
                "request.timeout.ms": 2_000,
                "retry.backoff.ms": 50,
                "error_cb": self._on_error,
                **CLIENT_SETTINGS,
                **(_logging_to(log) if log is not None else {}),
            }
        )

    @property
    def acknowledged_count(self) -> int:
        """Records that were acknowledged so far."""
        return sum(map(len, self.acknowledged.values()))

    def _after(self, *, failed: bool) -> None:
        left = self._producer.flush(0 if failed else PATIENCE_SECONDS)
        if not failed:
            assert left == 0, f"{left} records were not answered within {PATIENCE_SECONDS} s"
            assert not self.failures, self.failures[:3]

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stopping.is_set() and not self.failures:
            due = int((time.monotonic() - started) * self._records_per_second)
            while self._sent < due and not self._stopping.is_set():
                self._send()
            self._producer.poll(0.01)

    def _send(self) -> None:
        number, partition = divmod(self._sent, PARTITIONS)
        key, value, headers = keyed_record(number) if self._keyed else (None, _value(number), {})
        try:
            self._producer.produce(
                self._topic,
                key=key,
                value=value,
                headers=headers,
                partition=partition,
                on_delivery=partial(self._on_delivery, number),
            )
            self._sent += 1
        except BufferError:
            self._producer.poll(0.05)
        except KafkaException as error:  # fatal: nothing can be sent any more
            self.failures.append(str(error))

    def _on_delivery(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"record {number} of partition {message.partition()}: {error}")
        else:
            # Without an offset it was not answered itself, but one after it was: it must be where it belongs.
            offset = message.offset()
            self.acknowledged[message.partition()].append((number if offset is None else offset, number))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(str(error))


class _Lines(logging.Handler):
    """Adds lines to a file that is open no longer than it takes."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with self._file.open("a") as file:
            file.write(f"{self.format(record)}\n")


def _logging_to(file: Path) -> dict[str, object]:
    """Settings of a producer that writes down what becomes of its sequence numbers and epochs."""
    log = logging.Logger(file.name)
    log.addHandler(_Lines(file))
    return {"debug": "eos", "log_level": 7, "logger": log}


class Follower(Background):
    """A member of a consumer group that reads along from the beginning, until the end of a `with`."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__("follower")
        self.seen: dict[int, dict[int, int]] = defaultdict(dict)
        """By partition, the number at every offset."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **CLIENT_SETTINGS,
            }
        )

    def _after(self, *, failed: bool) -> None:
        close(self._consumer)

    def has_seen(self, placed: Placed) -> bool:
        """Whether it has read every one of these records, and never another at its offset."""
        assert not self.failures, self.failures[:3]
        return all(self.seen[partition].items() >= set(records) for partition, records in placed.items())

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    self._note(message.partition(), message.offset(), number_in(message))

    def _note(self, partition: int, offset: int, number: int) -> None:
        before = self.seen[partition].setdefault(offset, number)
        if before != number:
            self.failures.append(f"partition {partition}, offset {offset}: first {before}, then {number}")


def read_all(bootstrap: str, topic: str) -> Placed:
    """Every record of the topic as it can be read now."""
    placed: Placed = {partition: [] for partition in range(PARTITIONS)}
    unfinished = set(placed)
    with _reader(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in placed])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while unfinished and time.monotonic() < deadline:
            for message in consumer.consume(5_000, timeout=1.0):
                error = message.error()
                if error is None:
                    placed[message.partition()].append((message.offset(), number_in(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                elif not error.retriable() and error.code() >= 0:
                    raise KafkaException(error)
    assert not unfinished, f"partitions {unfinished} were not read to their end"
    return placed


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **CLIENT_SETTINGS,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def assert_written_once_and_in_order(acknowledged: Placed, placed: Placed) -> None:
    """Everything that was acknowledged is there, once, where it was said to be, in the order it was sent."""
    for partition, records in placed.items():
        numbers = [number for _, number in records]
        assert numbers == list(range(len(numbers))), _first_fault(partition, records)
        assert sorted(acknowledged[partition]) == records, f"partition {partition}: acknowledged elsewhere"


def assert_seen_is_there(seen: Mapping[int, Mapping[int, int]], placed: Placed) -> None:
    """What somebody has read is still there, and the same."""
    for partition, numbers in seen.items():
        vanished = numbers.items() - set(placed[partition])
        assert not vanished, f"partition {partition}: {len(vanished)} vanished, the first {min(vanished)}"


def assert_nothing_is_missing(acknowledged: Placed, placed: Placed) -> None:
    """Everything that was acknowledged is there; records may be repeated, but in order otherwise."""
    for partition, records in acknowledged.items():
        firsts = list(dict.fromkeys(number for _, number in placed[partition]))
        assert firsts == sorted(firsts), f"partition {partition} is out of order"
        missing = {number for _, number in records} - set(firsts)
        assert not missing, f"partition {partition}: {len(missing)} missing, the first {min(missing)}"


class NotInTimeError(AssertionError):
    """Something did not happen for too long."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds. Raises NotInTimeError with `what` when it does not for too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.1)


def _first_fault(partition: int, records: list[tuple[int, int]]) -> str:
    for index, (offset, number) in enumerate(records):
        if number != index:
            return f"partition {partition}, offset {offset}: number {number} where {index} is next"
    return f"partition {partition} is sound"


def _value(number: int) -> str:
    start = number * 37 % (len(NOISE) - NOISE_PER_RECORD)
    return f"{number} {NOISE[start : start + NOISE_PER_RECORD]}"


def number_in(message: Message) -> int:
    """The number that a message carries."""
    return number_of(message.value(), message.headers() or [])


def number_of(value: str | bytes | None, headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """The number that a record carries."""
    if value is None:
        value = dict(headers)[NUMBER_HEADER]
    assert isinstance(value, bytes)
    return int(value.split(b" ", 1)[0])
