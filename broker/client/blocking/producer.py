"""Producers for threads. Any number of threads may share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar

from broker.client.blocking.cluster import Cluster
from broker.client.blocking.facade import Facade, blocking, on_loop
from broker.client.blocking.loop_thread import LoopThread
from broker.client.partitioner import Partitioner
from broker.client.producer import Producer as AsyncProducer
from broker.client.producer_batch import Delivery, RecordMetadata
from broker.client.producer_metrics import ProducerMetrics
from broker.client.producer_options import ProducerOptions
from broker.client.producer_options import open_producer as open_async_producer
from broker.client.producer_parts import ProducerParts
from broker.client.producer_settings import ProducerRecord, ProducerSettings
from broker.client.transaction_state import TransactionStatus
from broker.client.transactional_producer import TransactionalProducer as AsyncTransactionalProducer
from broker.errors import BrokerError
from broker.records.record import Header
from broker.types import TopicPartition

_Producer_co = TypeVar("_Producer_co", bound=AsyncProducer, covariant=True)


class _AnyProducer(Facade[_Producer_co]):
    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    start = blocking(AsyncProducer.start)
    close = blocking(AsyncProducer.close)
    flush = blocking(AsyncProducer.flush)

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Future[RecordMetadata]:
        """Buffer a record; returns the future of where it went or why it went nowhere, which cannot be
        cancelled and may be left alone. Its callbacks run on the loop's thread and must not block.

        Waits, and raises, as the asyncio producer's `send`: for metadata and room, for `max_block_ms`; a
        synchronous producer until the record is written.
        """

        async def work() -> Future[RecordMetadata]:
            send = self.behind.send
            return _future_of(
                await send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            )

        return self.thread.call(work)

    def send_all(self, records: Iterable[ProducerRecord]) -> list[Future[RecordMetadata]]:
        """Buffer records one after the other, with one change of threads for all of them; a synchronous
        producer writes them all before it returns.

        Raises as `send` does; records before the failing one stay buffered.
        """
        listed = list(records)

        async def work() -> list[Future[RecordMetadata]]:
            return [_future_of(delivery) for delivery in await self.behind.send_all(listed)]

        return self.thread.call(work)

    def send_batch(
        self, topic_partition: TopicPartition, batch: bytearray | memoryview
    ) -> Future[RecordMetadata]:
        """Send one whole magic-2 batch; the future is that of its first record. Raises as the asyncio
        producer's `send_batch`.
        """

        async def work() -> Future[RecordMetadata]:
            return _future_of(await self.behind.send_batch(topic_partition, batch))

        return self.thread.call(work)

    @property
    def settings(self) -> ProducerSettings:
        """What it was made with."""
        return self.behind.settings

    @property
    def buffered_bytes(self) -> int:
        """Estimated bytes of records that are neither written nor given up."""
        return self.thread.run(lambda: self.behind.buffered_bytes)

    @property
    def metrics(self) -> ProducerMetrics:
        """Figures of what was done so far, and of this moment."""
        return self.thread.run(lambda: self.behind.metrics)


class Producer(_AnyProducer[AsyncProducer]):
    """Writes records. Started by `with`, ended by `close`, which sends what is buffered."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: ProducerSettings | None = None,
        parts: ProducerParts | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        """As the asyncio producer; what is plugged in runs on the loop's thread and must not block."""
        make = partial(AsyncProducer, cluster.behind, settings=settings, parts=parts, partitioner=partitioner)
        super().__init__(cluster.thread, cluster.thread.run(make))


class TransactionalProducer(_AnyProducer[AsyncTransactionalProducer]):
    """Writes transactions one after the other, under the transactional id of its settings. What calls may
    raise is said with the asyncio producer.
    """

    def __init__(
        self, cluster: Cluster, *, settings: ProducerSettings, parts: ProducerParts | None = None
    ) -> None:
        """Raises ConfigurationError as the asyncio producer."""
        make = partial(AsyncTransactionalProducer, cluster.behind, settings=settings, parts=parts)
        super().__init__(cluster.thread, cluster.thread.run(make))

    init_transactions = blocking(AsyncTransactionalProducer.init_transactions)
    begin_transaction = on_loop(AsyncTransactionalProducer.begin_transaction)
    send_offsets_to_transaction = blocking(AsyncTransactionalProducer.send_offsets_to_transaction)
    commit_transaction = blocking(AsyncTransactionalProducer.commit_transaction)
    abort_transaction = blocking(AsyncTransactionalProducer.abort_transaction)

    @property
    def status(self) -> TransactionStatus:
        """Where the transaction stands."""
        return self.thread.run(lambda: self.behind.status)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that is committed at the end of the block, and aborted when that raises; the error
        goes on.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            if self.status in (TransactionStatus.OPEN, TransactionStatus.ABORTABLE):
                self.abort_transaction()
            raise


@contextmanager
def open_producer(
    given: Mapping[str, object] | ProducerOptions,
) -> Iterator[Producer | TransactionalProducer]:
    """A running producer with connections and a thread of its own, out of options by name; with a
    transactional id, a TransactionalProducer.

    Raises ConfigurationError, ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
    """
    options = given if isinstance(given, ProducerOptions) else ProducerOptions.read(given)
    with LoopThread() as thread, thread.held(lambda: open_async_producer(options)) as producer:
        if isinstance(producer, AsyncTransactionalProducer):
            yield TransactionalProducer.around(thread, producer)
        else:
            yield Producer.around(thread, producer)


def _future_of(delivery: Delivery) -> Future[RecordMetadata]:
    """Done when the delivery is. Called on the loop."""
    future: Future[RecordMetadata] = Future()
    future.set_running_or_notify_cancel()  # it is on its way: too late to cancel

    def settle(settled: Delivery) -> None:
        try:
            future.set_result(settled.result())
        except BrokerError as error:
            future.set_exception(error)

    delivery.add_done_callback(settle)
    return future
