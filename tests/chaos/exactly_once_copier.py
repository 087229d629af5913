"""Copies one topic to another, exactly once, until killed.

python -m tests.chaos.exactly_once_copier ADDRESSES TRANSACTIONAL_ID
"""

from __future__ import annotations

import asyncio
import sys

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerRecord, ConsumerSettings, Isolation, OffsetReset
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import GroupSettings
from broker.client.producer import ProducerSettings
from broker.client.transactional_producer import TransactionAbortableError, TransactionalProducer
from broker.types import HostPort, TopicPartition

SOURCE, DESTINATION, GROUP = "source", "destination", "copiers"
RECORDS_MAX = 40
"""In one transaction."""
READING = ConsumerSettings(
    offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED, auto_commit_interval_ms=0
)
MEMBERSHIP = GroupSettings(group_id=GROUP, session_timeout_ms=6_000, heartbeat_interval_ms=500)


async def copy(consumer: Consumer, producer: TransactionalProducer) -> None:
    """Records and the positions after them in the same transactions."""
    consumer.subscribe([SOURCE])
    while True:
        records = await consumer.take(500, max_records=RECORDS_MAX)
        member = consumer.member
        if not records or member is None:
            continue
        place = TopicPartition(records[0].topic, records[0].partition)
        try:
            async with producer.transaction():
                await _write(producer, records)
                position = OffsetAndMetadata(offset=records[-1].offset + 1)
                await producer.send_offsets_to_transaction({place: position}, GROUP, member.membership)
        except TransactionAbortableError:
            if place in consumer.assignment:
                consumer.seek(place, records[0].offset)


async def _write(producer: TransactionalProducer, records: list[ConsumerRecord]) -> None:
    for record in records:
        await producer.send(DESTINATION, record.value, record.key, partition=record.partition)


async def main(addresses: str, transactional_id: str) -> None:
    writing = ProducerSettings(
        transactional_id=transactional_id, linger_ms=1, batch_bytes=500, transaction_timeout_ms=10_000
    )
    async with (
        Cluster([HostPort.parse(address) for address in addresses.split(",")]) as cluster,
        TransactionalProducer(cluster, settings=writing) as producer,
        Consumer(cluster, settings=READING, group=MEMBERSHIP) as consumer,
    ):
        await producer.init_transactions()
        await copy(consumer, producer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
