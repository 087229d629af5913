"""One of the streams of a connector: an endless iterator over the records of the partitions it was given.

All streams share one fetcher, and each has a queue of its own, so that a slow one holds back nobody else.
Records are taken a batch at a time and handed out one by one; what was taken and not handed out of a
partition that is given up is dropped.

A record counts as processed when the reader comes back for the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from typing import Self

from broker.client.consumer_settings import ConsumerSettings
from broker.client.fetch_state import PartitionState
from broker.client.fetcher import Fetcher
from broker.client.reader_queue import ReaderQueue
from broker.client.record_cursor import ConsumerRecord
from broker.types import TopicPartition


class RecordStream:
    """Records of some partitions, for one reader: `async for record in stream`. It ends when the connector
    does.
    """

    def __init__(self, fetcher: Fetcher, queue: ReaderQueue, settings: ConsumerSettings) -> None:
        self._fetcher = fetcher
        self._queue = queue
        self._settings = settings
        self._taken: deque[ConsumerRecord] = deque()
        """Records of one partition that are yet to be handed out."""
        self._in_hand: ConsumerRecord | None = None
        """What the reader has, and is not done with."""
        self._back = asyncio.Event()
        """Set while the reader has nothing."""
        self._back.set()
        self._open = asyncio.Event()
        """Set while something may be handed out, and for good at the end."""
        self._open.set()
        self._ended = False
        self._failure: BaseException | None = None

    # The reader's side

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are this stream's at the moment."""
        return frozenset(self._queue.partitions)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record.

        Raises PartitionError for one partition, which then rests until `seek`; what ended the connector, when
        it failed.
        """
        self._come_back()
        while True:
            await self._open.wait()
            self._check()
            if self._taken:
                self._in_hand = self._taken.popleft()
                self._back.clear()
                return self._in_hand
            self._taken.extend(await self._queue.take(self._read, check=self._check) or ())

    async def next(self, timeout_ms: float) -> ConsumerRecord | None:
        """The next record, or None when there is none within `timeout_ms`, or at the end. Raises as
        iterating does.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await anext(self)
        except (TimeoutError, StopAsyncIteration):
            return None

    def _check(self) -> None:
        """Raises what ended the stream, StopAsyncIteration where nothing was wrong."""
        if self._ended:
            raise self._failure or StopAsyncIteration

    def _read(self, partition: PartitionState) -> list[ConsumerRecord]:
        return partition.take_records(
            self._settings.records_max,
            committed_only=self._settings.committed_only,
            decoded_bytes_max=self._settings.decoded_bytes_max,
            wanted=self._settings.record_filter,
        )

    # The connector's side

    def add(self, partition: TopicPartition, offset: int | None) -> None:
        """Read one more partition; without an offset from where the reset policy says."""
        self._fetcher.add(partition, offset, self._queue)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Hand nothing more out of these partitions."""
        for partition in partitions:
            self._fetcher.remove(partition)
        self._drop(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises KeyError for a partition of another stream, ValueError below 0."""
        self._fetcher.seek(partition, offset)
        self._drop({partition})

    def position(self, partition: TopicPartition, *, processed: bool) -> int | None:
        """The offset after what was handed out, or, when `processed`, after what the reader is done with;
        None while it is not known. Raises KeyError.
        """
        if processed and self._in_hand is not None and _partition(self._in_hand) == partition:
            return self._in_hand.offset
        if self._taken and _partition(self._taken[0]) == partition:
            return self._taken[0].offset
        return self._queue.partitions[partition].position

    def hold(self) -> None:
        """Hand nothing out, and fetch nothing, before `let_go`."""
        if not self._ended:
            self._open.clear()
        for partition in self._queue.partitions.values():
            partition.paused = True

    def let_go(self) -> None:
        """End what `hold` began."""
        self._open.set()
        for partition in self._queue.partitions:
            self._fetcher.resume(partition)

    async def reader_is_back(self) -> None:
        """Return when the reader is done with what it has."""
        await self._back.wait()

    def finish(self) -> None:
        """The reader is done with what it has, and gets no more."""
        self._come_back()
        self.hold()

    def end(self, failure: BaseException | None = None) -> None:
        """Hand nothing out any more; `failure` is what the reader is told, the first of several."""
        self._ended, self._failure = True, self._failure or failure
        self._open.set()
        self._queue.wake()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        if self._taken and _partition(self._taken[0]) in partitions:
            self._taken.clear()
        if self._in_hand is not None and _partition(self._in_hand) in partitions:
            self._come_back()

    def _come_back(self) -> None:
        self._in_hand = None
        self._back.set()


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
