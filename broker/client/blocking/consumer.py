"""The consumer for threads: one thread reads, others may control it meanwhile.

Records are taken from the loop's consumer a batch at a time, and handed out one by one. What was taken and is
yet to be handed out counts as not read: it is left out of commits and positions, and given back before
anything is changed (`seek`, `pause`, `close`, another assignment), so that it is fetched again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

from broker.client.assignors import Assignor
from broker.client.blocking.cluster import Cluster
from broker.client.blocking.facade import Facade, blocking, on_loop
from broker.client.blocking.loop_thread import LoopThread
from broker.client.consumer import Consumer as AsyncConsumer
from broker.client.consumer_commits import CommitCallback, Offsets
from broker.client.consumer_metrics import ConsumerMetrics
from broker.client.consumer_options import ConsumerOptions
from broker.client.consumer_options import open_consumer as open_async_consumer
from broker.client.consumer_settings import ConsumerSettings
from broker.client.group_offsets import NO_MEMBERSHIP, Membership, OffsetAndMetadata
from broker.client.group_settings import AnyGroupSettings
from broker.client.parking import Parking, RetryPolicy
from broker.client.parking import process as process_on_loop
from broker.client.record_cursor import ConsumerRecord
from broker.client.subscription import PartitionsCallback, Subscription
from broker.types import TopicPartition

BlockingCallback = Callable[[frozenset[TopicPartition]], object]
"""Told of partitions; called in a thread of its own, and may call the consumer."""


class Consumer(Facade[AsyncConsumer]):
    """Reads partitions. Made, started (`with`), then either `assign`ed or `subscribe`d.

    `for record in consumer`, `poll` and `take` raise PartitionError for one partition (the others go on),
    other errors when the consumer has failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: ConsumerSettings | None = None,
        group: AnyGroupSettings | None = None,
        assignors: Sequence[Assignor] | None = None,
    ) -> None:
        make = partial(AsyncConsumer, cluster.behind, settings=settings, group=group, assignors=assignors)
        super().__init__(cluster.thread, cluster.thread.run(make))
        self._ready: deque[ConsumerRecord] = deque()
        """Taken, of one partition, and yet to be handed out. Filled on the loop, emptied by the reader."""

    @classmethod
    def around(cls, thread: LoopThread, behind: Any) -> Self:
        consumer = super().around(thread, behind)
        consumer._ready = deque()
        return consumer

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As `close`; what was handed out last does not count as processed when the body failed."""

        async def leave() -> None:
            self._prepare()
            await self.behind.__aexit__(kind)

        self.thread.call(leave)

    start = blocking(AsyncConsumer.start)
    close = blocking(AsyncConsumer.close)

    # Which partitions, and where

    assign = on_loop(AsyncConsumer.assign)
    add = on_loop(AsyncConsumer.add)
    remove = on_loop(AsyncConsumer.remove)
    seek = on_loop(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    seek_to_time = blocking(AsyncConsumer.seek_to_time)
    pause = on_loop(AsyncConsumer.pause)
    resume = on_loop(AsyncConsumer.resume)

    def subscribe(
        self,
        subscription: Subscription,
        *,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
        on_lost: BlockingCallback | None = None,
    ) -> None:
        """Read what the group assigns. The callbacks are waited for: assigned partitions are not fetched, and
        revoked ones not given up, before they return; `on_lost` is `on_revoked` unless given. Subscribing
        again replaces the topics and keeps the callbacks. Raises RuntimeError without a group, or before
        `start`; ValueError as `SubscriptionPattern.chooser`.
        """
        self.thread.run(
            lambda: self.behind.subscribe(
                subscription,
                on_assigned=None if on_assigned is None else _in_thread(on_assigned),
                on_revoked=self._around_given_up(on_revoked),
                on_lost=self._around_given_up(on_lost or on_revoked),
            )
        )

    def _around_given_up(self, callback: BlockingCallback | None) -> PartitionsCallback:
        async def given_up(partitions: frozenset[TopicPartition]) -> None:
            if callback is not None:
                await _in_thread(callback)(partitions)
            if self._ready and _partition(self._ready[0]) in partitions:
                self._ready.clear()

        return given_up

    @property
    def settings(self) -> ConsumerSettings:
        """What it was made with."""
        return self.behind.settings

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions in this consumer's hands."""
        return self.thread.run(lambda: self.behind.assignment)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self.thread.run(lambda: self.behind.paused)

    @property
    def membership(self) -> Membership:
        """Who the consumer is in its group, for `send_offsets_to_transaction`."""

        def find() -> Membership:
            return NO_MEMBERSHIP if self.behind.member is None else self.behind.member.membership

        return self.thread.run(find)

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The next offset to be handed out, None while it is not known. Raises KeyError."""
        return self.thread.run(lambda: self._position(topic_partition))

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """How many offsets are left to be handed out, as of the last answer; None while that is not known.

        Raises KeyError.
        """

        def find() -> int | None:
            lag, position = self.behind.lag(topic_partition), self._position(topic_partition)
            if lag is None or position is None:
                return None
            return lag + (self.behind.position(topic_partition) or position) - position

        return self.thread.run(find)

    def metrics(self) -> ConsumerMetrics:
        """The consumer's figures as they stand; what is yet to be handed out of a batch counts as taken."""
        return self.thread.run(self.behind.metrics)

    # Taking

    def poll(self, timeout_ms: float | None = None) -> ConsumerRecord | None:
        """The next record; None when there is none within `timeout_ms`."""
        if not self._ready:
            self._fill(timeout_ms, self.settings.records_max)
        return self._next_ready()

    def take(self, timeout_ms: float | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, of one batch; empty when there are none within `timeout_ms`."""
        max_records = self.settings.records_max if max_records is None else max_records
        if not self._ready:
            self._fill(timeout_ms, max_records)
        records: list[ConsumerRecord] = []
        while len(records) < max_records and (record := self._next_ready()) is not None:
            records.append(record)
        return records

    take_batches = blocking(AsyncConsumer.take_batches)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """All records, for ever; a loop may be left and begun again anywhere."""
        while True:
            if (record := self.poll()) is not None:
                yield record

    def stay(self) -> None:
        """Tell that the reader is there, however long it takes for what it has taken."""
        self.thread.run(self.behind.stay)

    def _next_ready(self) -> ConsumerRecord | None:
        try:
            return self._ready.popleft()
        except IndexError:  # also when a partition was given up at this moment
            return None

    def _fill(self, timeout_ms: float | None, max_records: int) -> None:
        """Have records ready, if there are any in time. What comes is kept on the loop: an interrupt in this
        moment loses nothing.
        """

        async def work() -> None:
            self._ready.extend(await self.behind.take(timeout_ms, max_records))

        self.thread.call(work)

    def _prepare(self) -> None:
        """Give back what is yet to be handed out."""
        if self._ready:
            first = self._ready[0]
            self._ready.clear()
            if _partition(first) in self.behind.assignment:
                self.behind.seek(_partition(first), first.offset)

    def _position(self, topic_partition: TopicPartition) -> int | None:
        position = self.behind.position(topic_partition)
        if self._ready and _partition(self._ready[0]) == topic_partition:
            return self._ready[0].offset
        return position

    def process(
        self,
        handler: Callable[[ConsumerRecord], object],
        policy: RetryPolicy | None = None,
        *,
        parking: Parking,
    ) -> None:
        """Hand every record to the handler, in a thread of its own, until interrupted; what it fails on is
        tried again, then parked: `parking.process` with its errors. A dead-letter topic is
        `DeadLetterTopic(producer.behind)`.
        """

        async def called(record: ConsumerRecord) -> None:
            await asyncio.to_thread(handler, record)

        async def work() -> None:
            self._prepare()
            await process_on_loop(self.behind, called, policy, parking=parking)

        self.thread.call(work)

    # Committing

    def commit(self, offsets: Offsets | None = None) -> None:
        """Store positions with the group; without `offsets` those of everything handed out so far.

        Raises ProtocolError as the asyncio consumer, RuntimeError without a group.
        """

        async def work() -> None:
            await self.behind.commit(self._positions() if offsets is None else offsets)

        self.thread.call(work)

    def commit_later(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """As `commit`, without waiting; commits keep their order. `callback` is told the offsets and what
        went wrong, None if nothing did, on the loop's thread, where it must not block; without one, a failure
        is logged. Raises RuntimeError without a group.
        """
        self.thread.run(
            lambda: self.behind.commit_later(self._positions() if offsets is None else offsets, callback)
        )

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored for the partitions. Raises RuntimeError without a group."""
        return self.thread.call(lambda: self.behind.committed(partitions))

    def _positions(self) -> Offsets:
        return {
            partition: OffsetAndMetadata(offset=position)
            for partition in self.behind.assignment
            if (position := self._position(partition)) is not None
        }


@contextmanager
def open_consumer(given: Mapping[str, object] | ConsumerOptions) -> Iterator[Consumer]:
    """A running consumer with connections and a thread of its own, out of options by name, to be subscribed
    or assigned partitions.

    Raises ConfigurationError, ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
    """
    options = given if isinstance(given, ConsumerOptions) else ConsumerOptions.read(given)
    with ExitStack() as stack:
        thread = stack.enter_context(LoopThread())
        behind = stack.enter_context(thread.held(lambda: open_async_consumer(options)))
        consumer = Consumer.around(thread, behind)
        stack.push(consumer.__exit__)
        yield consumer


def _in_thread(callback: BlockingCallback) -> PartitionsCallback:
    async def called(partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(callback, partitions)

    return called


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
