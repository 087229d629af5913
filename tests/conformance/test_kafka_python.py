"""kafka-python against a node."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

DEADLINE_SECONDS = 30


def consume(consumer: KafkaConsumer, count: int) -> list[object]:
    records: list[object] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in consumer.poll(timeout_ms=500).values():
            records += batch
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_keeps_keys_headers_and_timestamps(bootstrap: str, topic: str, codec: str | None) -> None:
    now_ms = time.time_ns() // 1_000_000
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20)
    for index in range(100):
        producer.send(
            topic,
            key=b"k%d" % index,
            value=b"v" * index,
            headers=[("n", b"%d" % index)],
            timestamp_ms=now_ms + index,
            partition=0,
        )
    producer.close(timeout=DEADLINE_SECONDS)
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    records = consume(consumer, 100)
    consumer.close()
    assert [(record.key, record.value, record.offset) for record in records] == [
        (b"k%d" % index, b"v" * index, index) for index in range(100)
    ]
    assert [record.timestamp - now_ms for record in records] == list(range(100))
    assert records[5].headers == [("n", b"5")]


def test_topics_are_created_listed_and_deleted(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(10):
        producer.send(topic, b"x", timestamp_ms=now_ms + index * 1000, partition=0).get(DEADLINE_SECONDS)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 0)
    assert consumer.offsets_for_times({partition: now_ms + 3500})[partition].offset == 4
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()


def test_a_group_splits_the_partitions_of_a_topic(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])
    admin.close()
    members = [
        KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest"
        )
        for _ in range(2)
    ]
    deadline = time.monotonic() + DEADLINE_SECONDS

    def poll(member: KafkaConsumer) -> None:
        while sorted(len(each.assignment()) for each in members) != [2, 2] and time.monotonic() < deadline:
            member.poll(timeout_ms=1000)

    with ThreadPoolExecutor() as threads:  # members that take turns may each be away when the other joins
        list(threads.map(poll, members))
    assert sorted(len(member.assignment()) for member in members) == [2, 2]
    for member in members:
        member.close()


def test_a_group_resumes_where_it_committed(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(10):
        producer.send(topic, b"%d" % index, partition=0)
    producer.close(timeout=DEADLINE_SECONDS)
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": f"group-{topic}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    consumer = KafkaConsumer(topic, max_poll_records=4, **settings)
    assert [record.value for record in consume(consumer, 4)] == [b"0", b"1", b"2", b"3"]
    consumer.commit()
    consumer.close()
    successor = KafkaConsumer(topic, **settings)
    assert [record.value for record in consume(successor, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]
    successor.close()
