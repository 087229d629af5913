"""A consume-transform-produce loop of librdkafka, as a process that may be killed at any moment:
`python -m tests.chaos.copier BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID`.

What it reads and where it stands are committed in one transaction. Whatever keeps it from that ends it, after
an attempt to abort: whoever has started it starts it again, and the next one begins where the last one stood.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ANSWER_SECONDS = 30.0
BATCH_COUNT = 50
TRANSACTION_TIMEOUT_MS = 10_000


def main(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Copy for ever. Raises KafkaException."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "max.poll.interval.ms": 60_000,
        }
    )
    producer.init_transactions(ANSWER_SECONDS)
    consumer.subscribe([source])
    while True:
        messages = [
            message for message in consumer.consume(BATCH_COUNT, timeout=0.5) if message.error() is None
        ]
        if messages:
            _copy(producer, consumer, messages, target)


def _copy(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> None:
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(
                target,
                message.value(),
                message.key(),
                partition=message.partition(),
                headers=message.headers(),
            )
        standing = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        producer.send_offsets_to_transaction(standing, consumer.consumer_group_metadata(), ANSWER_SECONDS)
        producer.commit_transaction(ANSWER_SECONDS)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(ANSWER_SECONDS)
        _go_back(consumer)


def _go_back(consumer: Consumer) -> None:
    """Read again from where the group stands."""
    for partition in consumer.committed(consumer.assignment(), ANSWER_SECONDS):
        consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
