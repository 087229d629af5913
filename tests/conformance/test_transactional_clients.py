"""Transactions of confluent-kafka (librdkafka) on a cluster: what is committed is read, once; nothing else
is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ClusterFactory

DEADLINE_SECONDS = 30
Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def bootstrap(cluster: ClusterFactory) -> str:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    return ",".join(map(str, cluster(brokers=3, settings=settings).bootstrap))


def create(bootstrap: str, *topics: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, 3) for topic in topics])
    for future in made.values():
        future.result(DEADLINE_SECONDS)


def transactional(bootstrap: str, name: str, **settings: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(DEADLINE_SECONDS)
    return producer


def reader(bootstrap: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def values(
    bootstrap: str, topic: str, *, partitions: int = 3, isolation: str = "read_committed"
) -> list[str]:
    """All there is to read of a topic at the moment."""
    consumer = reader(bootstrap, "values", isolation_level=isolation)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()
    return sorted(found)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str) -> None:
    create(bootstrap, "flights", "weather")
    producer = transactional(bootstrap, "desk")
    for number in range(6):
        producer.begin_transaction()
        for copy in range(4):
            producer.produce("flights", f"{number}-{copy}", key=f"{copy}")
        producer.produce("weather", f"{number}")
        if number % 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
    kept = (0, 2, 4)
    assert values(bootstrap, "flights") == [f"{number}-{copy}" for number in kept for copy in range(4)]
    assert values(bootstrap, "weather") == [str(number) for number in kept]
    everything = values(bootstrap, "flights", isolation="read_uncommitted")
    assert set(everything) >= set(values(bootstrap, "flights"))


def test_a_producer_is_fenced_by_the_next_one_of_its_id(bootstrap: str) -> None:
    create(bootstrap, "flights")
    first = transactional(bootstrap, "desk")
    first.begin_transaction()
    first.produce("flights", "lost")
    first.flush(DEADLINE_SECONDS)
    second = transactional(bootstrap, "desk")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(DEADLINE_SECONDS)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    second.produce("flights", "kept")
    second.commit_transaction(DEADLINE_SECONDS)
    assert values(bootstrap, "flights") == ["kept"]


def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str) -> None:
    create(bootstrap, "flights", partitions=1)
    producer = transactional(bootstrap, "slow", transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce("flights", "late")
    producer.flush(DEADLINE_SECONDS)
    other = transactional(bootstrap, "quick")
    other.begin_transaction()
    other.produce("flights", "in time")
    other.commit_transaction(DEADLINE_SECONDS)
    consumer = reader(bootstrap, "patient", isolation_level="read_committed", enable_partition_eof=False)
    consumer.subscribe(["flights"])
    message = None
    deadline = time.monotonic() + DEADLINE_SECONDS
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1)
    assert message is not None
    assert message.value() == b"in time"
    consumer.close()
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)
    assert values(bootstrap, "flights", partitions=1) == ["in time"]


def test_offsets_count_with_the_transaction_that_they_are_part_of(bootstrap: str) -> None:
    create(bootstrap, "source", "target")
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(90):
        plain.produce("source", str(number), partition=number % 3)
    assert plain.flush(DEADLINE_SECONDS) == 0
    producer = transactional(bootstrap, "copier")
    consumer = reader(bootstrap, "copiers", isolation_level="read_committed", enable_partition_eof=False)
    consumer.subscribe(["source"])
    copied, turn = 0, 0
    deadline = time.monotonic() + 2 * DEADLINE_SECONDS
    while copied < 90:
        assert time.monotonic() < deadline, copied
        messages = [message for message in consumer.consume(10, timeout=1) if message.error() is None]
        if not messages:
            continue
        turn += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce("target", message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE_SECONDS
        )
        if turn % 3 == 0:
            producer.abort_transaction(DEADLINE_SECONDS)
            for partition in consumer.committed(consumer.assignment(), DEADLINE_SECONDS):
                consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
            copied += len(messages)
    assert values(bootstrap, "target") == sorted(map(str, range(90)))
    committed = consumer.committed(consumer.assignment(), DEADLINE_SECONDS)
    assert [partition.offset for partition in committed] == [30, 30, 30]
    consumer.close()
