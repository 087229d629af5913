"""confluent-kafka (a current librdkafka) against a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from broker.settings import ConfigSource
from broker.types import HostPort
from tests.conformance.test_kcat import CODECS
from tests.node.raw_client import connected
from tests.node.transactions import RawTransactions

DEADLINE_SECONDS = 30


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(DEADLINE_SECONDS)


def produce(bootstrap: str, topic: str, values: Iterable[str], **settings: object) -> None:
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert not failures


def consume(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        for message in consumer.consume(count - len(messages), timeout=1):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def group_consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
    )


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_keeps_keys_headers_and_timestamps(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    now_ms = time.time_ns() // 1_000_000
    for index in range(200):
        producer.produce(
            topic,
            key=f"k{index}",
            value=b"v" * index,
            headers=[("n", str(index).encode()), ("none", None)],
            timestamp=now_ms + index,
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = group_consumer(bootstrap, f"group-{topic}")
    consumer.subscribe([topic])
    messages = consume(consumer, 200)
    consumer.close()
    assert [message.key() for message in messages] == [f"k{index}".encode() for index in range(200)]
    assert [message.value() for message in messages] == [b"v" * index for index in range(200)]
    assert [message.offset() for message in messages] == list(range(200))
    assert [message.timestamp()[1] - now_ms for message in messages] == list(range(200))
    assert messages[7].headers() == [("n", b"7"), ("none", None)]


def test_topics_are_created_listed_grown_described_and_deleted(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, topic, 3, **{"retention.ms": "12345678"})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create(bootstrap, topic)
    for future in admin.create_partitions([NewPartitions(topic, 5)]).values():
        future.result(DEADLINE_SECONDS)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    assert described.result(DEADLINE_SECONDS)["retention.ms"].value == "12345678"
    for future in admin.delete_topics([topic]).values():
        future.result(DEADLINE_SECONDS)
    assert topic not in admin.list_topics(timeout=10).topics


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = time.time_ns() // 1_000_000
    for index in range(10):
        producer.produce(topic, str(index), timestamp=now_ms + index * 1000)
        producer.flush(DEADLINE_SECONDS)
    consumer = group_consumer(bootstrap, f"group-{topic}")
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, now_ms + 3500)], timeout=10)
    assert found.offset == 4
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shares_partitions_and_rebalances_when_a_member_leaves(
    bootstrap: str, topic: str, strategy: str
) -> None:
    create(bootstrap, topic, 4)
    settings = {"partition_assignment_strategy": strategy, "session_timeout_ms": 6000}
    first, second = (group_consumer(bootstrap, f"group-{topic}", **settings) for _ in range(2))
    members = (first, second)
    for consumer in members:
        consumer.subscribe([topic])
    poll_until(members, lambda: sorted(len(consumer.assignment()) for consumer in members) == [2, 2])
    produce(bootstrap, topic, map(str, range(100)), partitioner="random")
    second.close()
    poll_until((first,), lambda: len(first.assignment()) == 4)
    first.close()


def poll_until(consumers: Iterable[Consumer], condition: Callable[[], bool]) -> None:
    """Drive the members until `condition` holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.1)


def test_committed_offsets_outlive_the_consumer(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, map(str, range(10)))
    consumer = group_consumer(bootstrap, f"group-{topic}")
    consumer.subscribe([topic])
    messages = consume(consumer, 4)
    consumer.commit(messages[-1], asynchronous=False)
    consumer.close()
    successor = group_consumer(bootstrap, f"group-{topic}")
    assert successor.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 4
    successor.subscribe([topic])
    assert [message.value() for message in consume(successor, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]
    successor.close()


def test_groups_are_listed_described_and_deleted(bootstrap: str, topic: str) -> None:
    group = f"group-{topic}"
    produce(bootstrap, topic, ["x"])
    consumer = group_consumer(bootstrap, group)
    consumer.subscribe([topic])
    consumer.commit(consume(consumer, 1)[0], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert group in {entry.group_id for entry in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert [len(member.assignment.topic_partitions) for member in described.members] == [1]
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert group not in {entry.group_id for entry in listed.valid}


def test_an_idempotent_producer_writes_each_message_once_and_in_order(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    settings = {"enable_idempotence": True, "linger_ms": 1, "batch_num_messages": 7}
    produce(bootstrap, topic, map(str, range(2000)), **settings)
    consumer = group_consumer(bootstrap, f"group-{topic}")
    consumer.subscribe([topic])
    assert [int(message.value()) for message in consume(consumer, 2000)] == list(range(2000))
    consumer.close()


def test_a_message_over_the_limit_is_refused_and_the_next_one_is_taken(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, **{"max.message.bytes": "2000"})
    outcomes: list[str | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for size in (5000, 10):
        producer.produce(
            topic, b"x" * size, on_delivery=lambda error, _: outcomes.append(error.name() if error else None)
        )
        producer.flush(DEADLINE_SECONDS)
    assert outcomes == ["MSG_SIZE_TOO_LARGE", None]


def test_only_committed_transactions_are_read_by_who_asks_for_that(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    host, port = bootstrap.rsplit(":", 1)
    with connected(HostPort(host, int(port))) as client:
        committed, aborted, undecided = (RawTransactions(client, topic) for _ in range(3))
        for number in range(5):
            assert committed.write(b"yes %d" % number) == aborted.write(b"no %d" % number) == 0
            assert aborted.end(commit=False) == 0
            assert committed.end(commit=True) == 0
        assert undecided.write(b"perhaps") == committed.write(b"later") == committed.end(commit=True) == 0
        reader = group_consumer(bootstrap, f"group-{topic}", isolation_level="read_committed")
        try:
            reader.subscribe([topic])
            found = [message.value() for message in consume(reader, 5)]
            assert found == [b"yes %d" % number for number in range(5)]
            assert undecided.end(commit=False) == 0
            assert [message.value() for message in consume(reader, 1)] == [b"later"]
        finally:
            reader.close()
    everything = group_consumer(bootstrap, f"all-{topic}", isolation_level="read_uncommitted")
    try:
        everything.subscribe([topic])
        assert len(consume(everything, 12)) == 12
    finally:
        everything.close()


def test_settings_of_a_node_are_altered_while_it_runs(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = "log.index.interval.bytes"

    def alter(operation: AlterConfigOpType, value: str | None = None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE_SECONDS)

    def described() -> ConfigEntry:
        (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        entry: ConfigEntry = future.result(DEADLINE_SECONDS)[name]
        return entry

    alter(AlterConfigOpType.SET, "8192")
    entry = described()
    assert (entry.value, entry.source, entry.is_read_only) == ("8192", ConfigSource.BROKER_DYNAMIC, False)
    alter(AlterConfigOpType.DELETE)
    assert described().value == "4096"
