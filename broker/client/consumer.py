"""The consumer: partitions assigned by hand or by a group, fetched ahead within a bound, handed out in order.

One supervising task owns what runs in the background: the fetcher, the group membership and the periodic
commits. What goes wrong with one partition is raised once by `take` or `take_batches`, as PartitionError;
that partition then rests until `seek` or `resume`, and the others go on. What ends a background task ends the
consumer, and is raised by the next take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from broker.client.aborted import AbortedTransaction
from broker.client.assignors import Assignor
from broker.client.cluster import Cluster
from broker.client.consumer_commits import CommitCallback, Commits, Offsets
from broker.client.consumer_metrics import ConsumerMetrics
from broker.client.consumer_settings import ConsumerSettings, Isolation, OffsetReset
from broker.client.fetch import FetchedBatches
from broker.client.fetch_state import PartitionError, PartitionState
from broker.client.fetcher import Fetcher
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import AnyGroupSettings
from broker.client.member import Member, check_assignors, new_member
from broker.client.offsets import EARLIEST, LATEST
from broker.client.reader_watch import ReaderWatch
from broker.client.record_cursor import ConsumerRecord
from broker.client.subscription import PartitionsCallback, Subscription
from broker.errors import first_failure
from broker.telemetry import logger
from broker.types import TopicPartition

__all__ = [
    "AbortedTransaction",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "FetchedBatches",
    "Isolation",
    "OffsetReset",
    "PartitionError",
]

_Taken = TypeVar("_Taken")

_log = logger("consumer")


class Consumer:
    """Reads partitions. Made, started (`async with`), then either `assign`ed or `subscribe`d."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: ConsumerSettings | None = None,
        group: AnyGroupSettings | None = None,
        assignors: Sequence[Assignor] | None = None,
    ) -> None:
        """`group` is of either protocol; `assignors`, by default range, are for the classic one: ValueError
        for both.
        """
        check_assignors(group, assignors)
        self.settings = settings or ConsumerSettings()
        self._cluster = cluster
        self._group = group
        self._assignors = assignors
        self._fetcher = Fetcher(cluster, self.settings)
        self._queue = self._fetcher.new_queue(self.settings.buffer_bytes)
        self._member: Member | None = None
        self._commits = None if group is None else Commits(cluster, group.group_id, self._fetcher.partitions)
        self._watch: ReaderWatch | None = None
        self._records_taken = 0
        self._closing = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As `close`; what was handed out last does not count as processed when the body failed."""
        if kind is not None:
            self._queue.forget_taken()
        await self.close()

    async def start(self) -> None:
        """Start the background."""
        started = asyncio.Event()
        self._supervisor = asyncio.create_task(self._supervise(started), name="consumer")
        self._supervisor.add_done_callback(self._on_ended)
        await started.wait()

    async def close(self) -> None:
        """Finish commits under way, commit where that is automatic, leave the group, stop fetching.

        What is buffered is dropped.
        """
        if self._supervisor is None or self._closing.is_set():
            return
        self._queue.note_processed()
        if self._commits is not None:
            await self._commits.settle()
        if self._member is not None:
            await self._member.close()
        else:
            await self._commit_processed(self._fetcher.partitions)
        self._closing.set()
        await asyncio.wait([self._supervisor])
        await self._fetcher.close()

    # Which partitions, and where

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions in this consumer's hands."""
        return frozenset(self._fetcher.partitions)

    @property
    def member(self) -> Member | None:
        """The group membership, when subscribed."""
        return self._member

    def assign(self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, from the given offsets; without one from the reset position.

        Partitions that stay keep their position unless an offset is given. With a group, its committed
        offsets come before the reset position, and commits are those of a group without members. Raises
        RuntimeError when subscribed.
        """
        if self._member is not None:
            raise RuntimeError("a consumer that is subscribed gets its partitions from its group")
        self._begin_commits()
        wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        self.remove([partition for partition in self._fetcher.partitions if partition not in wanted])
        for partition, offset in wanted.items():
            if partition not in self._fetcher.partitions:
                self._fetcher.add(partition, offset, self._queue)
            elif offset is not None:
                self._fetcher.seek(partition, offset)

    def add(self, topic_partition: TopicPartition, offset: int | None = None) -> None:
        """Read one more partition; one that is read already begins anew."""
        self._fetcher.add(topic_partition, offset, self._queue)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; what is buffered of them is dropped."""
        for topic_partition in list(partitions):
            self._fetcher.remove(topic_partition)

    def subscribe(
        self,
        subscription: Subscription,
        *,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Read what the group assigns. The callbacks are awaited: assigned partitions are not fetched, and
        revoked ones not given up, before they return; `on_lost` is `on_revoked` unless given. Subscribing
        again replaces the topics and keeps the callbacks. Raises RuntimeError without a group, or before
        `start`; ValueError as `SubscriptionPattern.chooser`.
        """
        if self._member is not None:
            self._member.subscribe(subscription)
            return
        if self._group is None:
            raise RuntimeError("a consumer needs a group to subscribe")
        self._member = new_member(
            self._cluster,
            self._group,
            subscription=subscription,
            assignors=self._assignors,
            on_assigned=self._around_assigned(on_assigned),
            on_revoked=self._around_revoked(on_revoked),
            on_lost=self._around_lost(on_lost or on_revoked),
        )
        self._begin_commits()
        assert self._commits is not None
        self._commits.member = self._member
        self._start_task(self._member.run(), "group membership")
        if self.settings.max_poll_interval_ms:
            self._watch = ReaderWatch(
                self.settings.max_poll_interval_ms,
                on_gone=self._member.stand_aside,
                on_back=self._member.come_back,
            )
            self._start_task(self._watch.run(), "reader's watch")

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises KeyError for a partition that is not assigned, ValueError below 0."""
        self._fetcher.seek(topic_partition, offset)

    async def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on at the first record that is kept, of all partitions by default. Raises as `seek_to_time`."""
        await self.seek_to_time(dict.fromkeys(self._named(partitions), EARLIEST))

    async def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on at the next record that is written; of committed ones at the last stable offset. Raises as
        `seek_to_time`.
        """
        await self.seek_to_time(dict.fromkeys(self._named(partitions), LATEST))

    async def seek_to_time(self, times: Mapping[TopicPartition, int]) -> None:
        """Go on at the first record at or after a time, milliseconds since the epoch; where there is none, at
        the end. Raises KeyError for a partition that is not assigned, BrokerError as `list_offsets`.
        """
        held = {partition: self._fetcher.partitions[partition] for partition in times}
        found = await self._fetcher.find(times)
        for partition, offset in found.items():
            if self._fetcher.partitions.get(partition) is held[partition]:
                self._fetcher.seek(partition, offset)

    def _named(self, partitions: Collection[TopicPartition] | None) -> Collection[TopicPartition]:
        return list(self._fetcher.partitions) if partitions is None else partitions

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The next offset to be handed out, None while it is not known. Raises KeyError."""
        return self._fetcher.partitions[topic_partition].position

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand nothing out of these partitions, and fetch nothing more. What is buffered of them stays until
        others need the room. Raises KeyError.
        """
        for topic_partition in partitions:
            self._fetcher.pause(topic_partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End a pause, or the rest after an error. Raises KeyError."""
        for topic_partition in partitions:
            self._fetcher.resume(topic_partition)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(name for name, held in self._fetcher.partitions.items() if held.paused)

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """How many offsets are left to be handed out, as of the last answer; None while that is not known.

        Raises KeyError.
        """
        return self._fetcher.partitions[topic_partition].progress.lag

    def metrics(self) -> ConsumerMetrics:
        """The consumer's figures as they stand."""
        partitions = {name: held.progress for name, held in self._fetcher.partitions.items()}
        counters = self._fetcher.counters
        lags = [progress.lag for progress in partitions.values() if progress.lag is not None]
        return ConsumerMetrics(
            records_taken=self._records_taken,
            fetches=counters.fetches,
            fetches_failed=counters.fetches_failed,
            fetched_bytes=counters.fetched_bytes,
            buffered_bytes=sum(progress.buffered_bytes for progress in partitions.values()),
            lag_max=max(lags, default=None),
            partitions=partitions,
        )

    # Taking

    async def take_batches(self, timeout_ms: float | None = None) -> FetchedBatches | None:
        """The next answer of some partition, as raw batches; None when there is none within `timeout_ms`.

        Raises PartitionError for one partition (the others go on), other errors when the consumer has failed.
        """
        return await self._take(PartitionState.take_batches, timeout_ms)

    async def take(
        self, timeout_ms: float | None = None, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records, of one batch; empty when there are none within `timeout_ms`.

        Raises as `take_batches`.
        """

        def take_records(partition: PartitionState) -> list[ConsumerRecord]:
            return partition.take_records(
                self.settings.records_max if max_records is None else max_records,
                committed_only=self.settings.committed_only,
                decoded_bytes_max=self.settings.decoded_bytes_max,
                wanted=self.settings.record_filter,
            )

        records = await self._take(take_records, timeout_ms) or []
        self._records_taken += len(records)
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.take():
                yield record

    async def _take(
        self, read: Callable[[PartitionState], _Taken | None], timeout_ms: float | None
    ) -> _Taken | None:
        """What `read` finds in the first partition that has something, awaited. Partitions take turns."""
        self._queue.note_processed()
        watch = self._watch
        if watch is None:
            return await self._queue.take(read, check=self._raise_failure, timeout_ms=timeout_ms)
        watch.came()
        try:
            return await self._queue.take(read, check=self._raise_failure, timeout_ms=timeout_ms)
        finally:
            watch.left()

    def stay(self) -> None:
        """Tell that the reader is there, however long it takes for what it has taken."""
        if self._watch is not None:
            self._watch.came()
            self._watch.left()

    def _raise_failure(self) -> None:
        if self._supervisor is None or self._closing.is_set():
            raise RuntimeError("the consumer is not running")
        if self._supervisor.done() and (failure := self._supervisor.exception()) is not None:
            raise first_failure(failure)

    # Committing

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Store positions with the group; without `offsets` those of everything taken so far.

        Raises ProtocolError as `GroupMember.commit` and `EpochMember.commit` do, RuntimeError without a
        group.
        """
        await self._require_group().store(offsets)

    def commit_later(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """As `commit`, without waiting; commits keep their order. `callback` is told the offsets and what
        went wrong, None if nothing did; without one, a failure is logged. Raises RuntimeError without a
        group.
        """
        self._require_group().store_later(offsets, callback)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored for the partitions. Raises RuntimeError without a group."""
        return await self._require_group().committed(partitions)

    def _require_group(self) -> Commits:
        if self._commits is None:
            raise RuntimeError("only a consumer with a group has committed offsets")
        return self._commits

    def _begin_commits(self) -> None:
        """Positions are the group's from now on, if there is one."""
        if self._commits is None or self._fetcher.committed_offsets is not None:
            return
        self._fetcher.committed_offsets = self._commits.committed
        if self.settings.auto_commit_interval_ms:
            periodically = self._commits.store_periodically(self.settings.auto_commit_interval_ms)
            self._start_task(periodically, "periodic commits")

    async def _commit_processed(self, partitions: Iterable[TopicPartition]) -> None:
        if self._commits is not None and self.settings.auto_commit_interval_ms:
            await self._commits.store_processed(partitions)

    # What the group says, around the user's own callbacks

    def _around_assigned(self, callback: PartitionsCallback | None) -> PartitionsCallback:
        async def assigned(partitions: frozenset[TopicPartition]) -> None:
            if callback is not None:
                await callback(partitions)
            for partition in sorted(partitions - self.assignment):
                self._fetcher.add(partition, None, self._queue)

        return assigned

    def _around_revoked(self, callback: PartitionsCallback | None) -> PartitionsCallback:
        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            self.pause(partitions & self.assignment)
            if callback is not None:
                await callback(partitions)
            await self._commit_processed(partitions)
            self.remove(partitions)

        return revoked

    def _around_lost(self, callback: PartitionsCallback | None) -> PartitionsCallback:
        async def lost(partitions: frozenset[TopicPartition]) -> None:
            self.pause(partitions & self.assignment)
            if callback is not None:
                await callback(partitions)
            self.remove(partitions)

        return lost

    # The background

    async def _supervise(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._start_task(self._fetcher.run(), "fetcher")
            started.set()
            await self._closing.wait()
            for task in self._running:
                task.cancel()

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        if self._tasks is None:
            work.close()
            raise RuntimeError("the consumer is not started")
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _on_ended(self, supervisor: asyncio.Task[None]) -> None:
        if not supervisor.cancelled() and (failure := supervisor.exception()) is not None:
            _log.warning("consumer_failed", error=str(first_failure(failure)))
        self._queue.wake()
