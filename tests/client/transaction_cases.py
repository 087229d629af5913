"""Transactions of our producer on real nodes; `tests/interop` runs the same against Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset
from broker.client.group_offsets import OffsetAndMetadata, fetch_offsets
from broker.client.producer import ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.client.transactional_producer import (
    ProducerFencedError,
    TransactionalProducer,
    TransactionStateError,
    TransactionStatus,
)
from broker.types import HostPort, TopicPartition
from tests.client.running import run


class Running(Protocol):
    @property
    def bootstrap(self) -> Sequence[HostPort]: ...


@asynccontextmanager
async def connected(running: Running) -> AsyncIterator[Cluster]:
    """A client of the cluster, with a topic `t` of three partitions."""
    async with Cluster(running.bootstrap) as cluster:
        await Admin(cluster).create_topic(NewTopic(name="t", partitions=3))
        await cluster.ensure(["t"])
        yield cluster


def transactional(cluster: Cluster, name: str = "mover") -> TransactionalProducer:
    settings = ProducerSettings(transactional_id=name, linger_ms=1, batch_bytes=1000)
    return TransactionalProducer(cluster, settings=settings)


async def committed_values(cluster: Cluster, count: int) -> list[bytes | None]:
    """The first `count` values that readers of committed records see, sorted."""
    settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED)
    values: list[bytes | None] = []
    async with Consumer(cluster, settings=settings) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(3)])
        while len(values) < count:
            values += [record.value for record in await consumer.take(1_000)]
    return sorted(values, key=lambda value: value or b"")


def test_committed_transactions_are_seen_and_aborted_ones_are_not(cluster: Callable[[], Running]) -> None:
    async def main() -> None:
        async with connected(cluster()) as client, transactional(client) as producer:
            await producer.init_transactions()
            expected = []
            for number in range(6):
                producer.begin_transaction()
                values = [b"%d-%03d" % (number, place) for place in range(50)]
                for place, value in enumerate(values):
                    await producer.send("t", value * 10, partition=place % 3)
                if number % 3 == 1:
                    await producer.flush()
                    await producer.abort_transaction()
                elif number % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    expected += [value * 10 for value in values]
            producer.begin_transaction()
            await producer.commit_transaction()
            assert producer.status is TransactionStatus.READY
            assert await committed_values(client, len(expected)) == expected

    run(main)


def test_a_newer_producer_of_the_same_id_fences_the_older_one(cluster: Callable[[], Running]) -> None:
    async def main() -> None:
        async with (
            connected(cluster()) as client,
            transactional(client) as older,
            transactional(client) as newer,
        ):
            await older.init_transactions()
            older.begin_transaction()
            await (await older.send("t", b"of the older"))
            await newer.init_transactions()
            with pytest.raises(ProducerFencedError):
                await older.commit_transaction()
            with pytest.raises(ProducerFencedError):
                older.begin_transaction()
            async with newer.transaction():
                await newer.send("t", b"of the newer")
            assert await committed_values(client, 1) == [b"of the newer"]

    run(main)


def test_positions_of_a_group_are_committed_with_the_records_or_not_at_all(
    cluster: Callable[[], Running],
) -> None:
    async def main() -> None:
        read = TopicPartition("t", 1)
        async with connected(cluster()) as client, transactional(client) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"result")
                await producer.send_offsets_to_transaction({read: OffsetAndMetadata(offset=7)}, "g")

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({read: OffsetAndMetadata(offset=9)}, "g")
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
            found = await fetch_offsets(client, "g", [read])
            assert found[read].offset == 7

    run(main)


def test_calls_out_of_turn_are_refused(cluster: Callable[[], Running]) -> None:
    async def main() -> None:
        async with connected(cluster()) as client, transactional(client) as producer:
            with pytest.raises(TransactionStateError, match="mover: cannot begin a transaction while uninit"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(TransactionStateError, match="cannot send while ready"):
                await producer.send("t", b"v")
            with pytest.raises(TransactionStateError, match="cannot commit while ready"):
                await producer.commit_transaction()
            producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="cannot begin a transaction while open"):
                producer.begin_transaction()
            await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(10)))
            await producer.commit_transaction()

    run(main)
