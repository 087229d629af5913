"""Fetching in the background: positions found, leaders asked, answers buffered ahead of the reader within a
bound.

One dispatcher starts whatever can be started whenever something has changed. Each partition is in at most one
fetch at a time, and is fetched as long as the bounds on buffered bytes leave room. A node may have several
fetches under way, each on a connection of its own, so that a partition whose data was just taken need not
wait for the long poll of the others.

A fetch under way counts as what it may bring at most, so long polls take up room that they do not use. So
each asks for no more than a share of the whole, which leaves room for every node, and partitions that were
not asked for lack of room come before those that were.

Readers that share a fetcher have a queue each, with its own bound. A fetch asks for the partitions of all who
have room, up to the room of all: as an answer has no bound for each of them, one may get what others had room
for, and is not fetched for until it has taken that. At the worst twice the bounds are buffered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.client.consumer_metrics import FetchCounters
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.client.fetch import (
    FetchTerms,
    PartitionPosition,
    build_fetch,
    bytes_needed,
    cut_batches,
    read_fetch,
    version_limit,
)
from broker.client.fetch_state import PartitionState
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from broker.client.read_replicas import ReadReplicas
from broker.client.reader_queue import ReaderQueue
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicPartition
from broker.wire.features import FETCH_FILTER
from broker.wire.framing import FrameTooLargeError
from broker.wire.messages.fetch import FetchRequest, PartitionData

CommittedOffsets = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]
]

_PARTITION_FETCHES_AHEAD = 2
_TOPIC_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Passing for a moment after a topic is created; for long only when it was deleted, or created anew."""

_log = logger("fetcher")


class Fetcher:
    """Keeps partitions fetched ahead, each for the queue of its reader.

    `run` is its task; everything else is called from the same loop.
    """

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, *, clock: Clock | None = None) -> None:
        self.counters = FetchCounters()
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.committed_offsets: CommittedOffsets | None = None
        """Where the group's positions are to be had, when there is a group."""
        self._cluster = cluster
        self._settings = settings
        self._clock = clock or SystemClock()
        self._sources = ReadReplicas()
        self._queues: list[ReaderQueue] = []
        self._queue_of: dict[TopicPartition, ReaderQueue] = {}
        self._free_lanes: dict[int, list[str]] = {}
        self._lanes: list[str] = []
        self._stale_topics: set[str] = set()
        self._refreshing = False
        self._wake = asyncio.Event()

    # The reader's side

    def new_queue(self, buffer_bytes: int, answers_max: int = 0) -> ReaderQueue:
        """Room for one more reader. Bounds as ReaderQueue says."""
        queue = ReaderQueue(buffer_bytes=buffer_bytes, answers_max=answers_max, made_room=self._wake.set)
        self._queues.append(queue)
        return queue

    def add(self, topic_partition: TopicPartition, offset: int | None, queue: ReaderQueue) -> None:
        """Fetch one more partition, from `offset` or from wherever it is found to begin; one that is fetched
        already begins anew.
        """
        if topic_partition in self._queue_of:
            self._queue_of[topic_partition].discard(topic_partition)
        added = PartitionState(topic_partition, self._settings.partition_max_bytes)
        if offset is not None:
            added.place(offset)
        self.partitions[topic_partition] = queue.partitions[topic_partition] = added
        self._queue_of[topic_partition] = queue
        self._wake.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition; what is buffered of it is dropped."""
        removed = self.partitions.pop(topic_partition, None)
        self._sources.recall(topic_partition)
        if removed is not None:
            self._queue_of.pop(topic_partition).discard(topic_partition)
            removed.drop_buffered()
            self._wake.set()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises KeyError, and ValueError for an offset below 0."""
        if offset < 0:
            raise ValueError(f"{topic_partition}: offset {offset} is below 0")
        self.partitions[topic_partition].place(offset)
        self._wake.set()

    def pause(self, topic_partition: TopicPartition) -> None:
        """Fetch nothing more of it, and hand nothing out. Raises KeyError."""
        self.partitions[topic_partition].paused = True
        self._wake.set()  # others may have its room

    def resume(self, topic_partition: TopicPartition) -> None:
        """End a pause, or the rest after an error. Raises KeyError."""
        partition = self.partitions[topic_partition]
        partition.paused = partition.resting = False
        partition.topic_id = NO_TOPIC_ID
        partition.forget_failures()
        self._queue_of[topic_partition].serve(partition)
        self._wake.set()

    async def close(self) -> None:
        """Close the connections that fetches used; `run` must have ended."""
        for lane in self._lanes:
            await self._cluster.release_lane(lane)

    # The background

    async def run(self) -> None:
        """Fetch until cancelled. Raises BrokerError for what concerns no single partition."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                for work in self._due():
                    tasks.create_task(work)
                await self._wake.wait()

    def _due(self) -> list[Coroutine[Any, Any, None]]:
        """The work that can begin now; its partitions are marked as busy."""
        unplaced: list[PartitionState] = []
        by_source: dict[int, list[PartitionState]] = {}
        now = asyncio.get_running_loop().time()
        for partition in self.partitions.values():
            if partition.busy or partition.resting or partition.retry_at > now:
                continue
            if partition.position is None:
                unplaced.append(partition)
            elif self._is_recreated(partition):
                error = ProtocolError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, "the topic was deleted and created anew"
                )
                self._lose_place(partition, error)
                self._wake.set()
            elif self._wants_more(partition):
                source = self._sources.source(partition.topic_partition, self._cluster.metadata, now * 1000)
                if source is None:
                    self._stale_topics.add(partition.topic_partition.topic)
                else:
                    by_source.setdefault(source, []).append(partition)
        for node_id in by_source:
            if node_id not in self._free_lanes:
                self._free_lanes[node_id] = [self._new_lane() for _ in range(self._settings.fetches_per_node)]
        work = [fetch for source in by_source.items() if (fetch := self._begin_fetch(*source)) is not None]
        if unplaced:
            _mark_busy(unplaced)
            work.append(self._find_positions(unplaced))
        if self._stale_topics and not self._refreshing:
            self._refreshing = True
            work.append(self._refresh())
        return work

    def _is_recreated(self, partition: PartitionState) -> bool:
        """Whether the topic is not the one that the position belongs to. Old nodes do not tell."""
        topic = self._cluster.topics.get(partition.topic_partition.topic)
        if topic is None or topic.topic_id == NO_TOPIC_ID:
            return False
        if partition.topic_id == NO_TOPIC_ID:
            partition.topic_id = topic.topic_id
        return partition.topic_id != topic.topic_id

    def _wants_more(self, partition: PartitionState) -> bool:
        ahead_max = _PARTITION_FETCHES_AHEAD * self._settings.partition_max_bytes
        return not partition.paused and partition.buffered_bytes < ahead_max

    def _begin_fetch(
        self, node_id: int, partitions: list[PartitionState]
    ) -> Coroutine[Any, Any, None] | None:
        """A fetch from a node, if it has a free lane and readers have room."""
        if not self._free_lanes[node_id]:
            return None
        wanted_bytes: dict[ReaderQueue, int] = {}
        for partition in partitions:
            queue = self._queue_of[partition.topic_partition]
            wanted_bytes[queue] = wanted_bytes.get(queue, 0) + partition.max_bytes
        for queue, size in wanted_bytes.items():
            queue.make_room(min(size, self._share([queue])))
        room = {queue: queue.room_bytes for queue in self._queues}
        asked_bytes = {queue: size for queue, size in wanted_bytes.items() if room[queue] > 0}
        if not asked_bytes:
            return None
        asked = [each for each in partitions if self._queue_of[each.topic_partition] in asked_bytes]
        # Answers are bound for all readers together: one that had used up the room of all others is
        # no reason to stop those.
        room_bytes = max(sum(room.values()), min(room[queue] for queue in asked_bytes))
        max_bytes = min(
            self._settings.fetch_max_bytes, room_bytes, self._share(room), sum(asked_bytes.values())
        )
        reserved = {queue: min(size, max_bytes, self._share([queue])) for queue, size in asked_bytes.items()}
        for queue, size in reserved.items():
            queue.reserve(size)
        _mark_busy(asked)
        for partition in asked:
            self._queue_last(partition)
        return self._fetch(node_id, self._free_lanes[node_id].pop(), asked, max_bytes, reserved)

    def _share(self, queues: Iterable[ReaderQueue]) -> int:
        """One fetch's share of what these may hold."""
        return max(1, sum(queue.buffer_bytes for queue in queues) // len(self._lanes))

    def _new_lane(self) -> str:
        self._lanes.append(self._cluster.new_lane("fetch"))
        return self._lanes[-1]

    async def _fetch(
        self,
        node_id: int,
        lane: str,
        partitions: list[PartitionState],
        max_bytes: int,
        reserved: Mapping[ReaderQueue, int],
    ) -> None:
        """One fetch, from request to buffer."""
        asked = {
            partition.topic_partition: (partition, partition.seeks, partition.fetch_position)
            for partition in partitions
        }
        try:
            positions = [position for _, _, position in asked.values()]
            for topic_partition, answer in await self._ask(node_id, lane, positions, max_bytes):
                if topic_partition in asked:
                    partition, seeks, position = asked[topic_partition]
                    if self._is_current(partition) and partition.seeks == seeks:
                        self._take_answer(partition, position, answer)
        except BrokerError as error:
            self.counters.fetches_failed += 1
            if isinstance(error.__cause__, FrameTooLargeError):
                raise
            for partition, seeks, _position in asked.values():
                if self._is_current(partition) and partition.seeks == seeks:
                    self._fail(partition, error)
        finally:
            for queue, size in reserved.items():
                queue.reserve(-size)
            self._free_lanes[node_id].append(lane)
            self._end(partitions)

    async def _ask(
        self, node_id: int, lane: str, positions: list[PartitionPosition], max_bytes: int
    ) -> list[tuple[TopicPartition, PartitionData]]:
        settings, metadata = self._settings, self._cluster.metadata
        connection = await self._cluster.connection(node_id, lane)
        wanted = settings.record_filter
        filters_there = settings.filter_at_nodes and FETCH_FILTER in connection.supported_features
        terms = FetchTerms(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=max_bytes,
            read_committed=settings.committed_only,
            rack=settings.rack,
            record_filter=wanted.text if wanted is not None and filters_there else "",
        )
        self.counters.fetches += 1
        request = build_fetch(positions, terms, metadata)
        version = connection.version_of(FetchRequest, at_most=version_limit(positions, metadata))
        timeout_ms = self._cluster.settings.request_timeout_ms + settings.fetch_max_wait_ms
        response = await connection.request(request, version, timeout_ms=timeout_ms)
        return list(read_fetch(response, request))

    def _take_answer(
        self, partition: PartitionState, position: PartitionPosition, answer: PartitionData
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self._sources.recall(partition.topic_partition):  # else the leader may have it
                self._lose_place(partition, ProtocolError(code))
        elif answer.preferred_read_replica >= 0:
            self._read_elsewhere(partition, answer.preferred_read_replica)
        elif code is not ErrorCode.NONE:
            self._fail(partition, ProtocolError(code))
        else:
            partition.forget_failures()
            partition.end = (
                answer.last_stable_offset if self._settings.committed_only else answer.high_watermark
            )
            try:
                self._buffer(partition, position, answer)
            except ProtocolError as error:
                self._put_to_rest(partition, error)

    def _read_elsewhere(self, partition: PartitionState, node_id: int) -> None:
        now_ms = asyncio.get_running_loop().time() * 1000
        try:
            self._sources.send(partition.topic_partition, node_id, self._cluster.metadata, now_ms)
        except ProtocolError as error:
            self._fail(partition, error)

    def _buffer(self, partition: PartitionState, position: PartitionPosition, answer: PartitionData) -> None:
        """Keep the answer, or ask for more next time when not one batch fitted.

        Raises CorruptRecordsError.
        """
        fetched = cut_batches(position, answer)
        if fetched is not None:
            partition.max_bytes = self._settings.partition_max_bytes
            # Whoever brought something goes to the end, so that the bound on answers starves nobody.
            self._queue_last(partition)
            self.counters.fetched_bytes += len(fetched.records)
            was_readable = partition.readable
            partition.buffer(fetched)
            if not was_readable:
                self._queue_of[partition.topic_partition].serve(partition)
            return
        partition.max_bytes = bytes_needed(answer, position.max_bytes)
        if partition.max_bytes > self._cluster.settings.max_frame_bytes:
            message = f"its next batch needs {partition.max_bytes} bytes, over the limit of a frame"
            raise ProtocolError(ErrorCode.RECORD_LIST_TOO_LARGE, message)

    def _queue_last(self, partition: PartitionState) -> None:
        """Have all other partitions asked for before this one, where there is not room for all."""
        self.partitions[partition.topic_partition] = self.partitions.pop(partition.topic_partition)

    def _lose_place(self, partition: PartitionState, error: ProtocolError) -> None:
        """The log does not have the position: the reset policy decides."""
        if self._settings.offset_reset is OffsetReset.NONE:
            self._put_to_rest(partition, error)
            return
        _log.warning(
            "position_reset",
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            position=partition.fetch_offset,
            policy=self._settings.offset_reset.value,
            reason=error.message,
        )
        partition.lose_place()

    def _fail(self, partition: PartitionState, error: BrokerError) -> None:
        """A fetch of the partition failed: try again later, or let it rest when that will not help."""
        loop = asyncio.get_running_loop()
        self._sources.recall(partition.topic_partition)
        partition.failures += 1
        partition.failing_since = partition.failing_since or loop.time()
        gone = isinstance(error, ProtocolError) and error.code in _TOPIC_GONE
        failing_ms = (loop.time() - partition.failing_since) * 1000
        if not is_retriable(error) or (gone and failing_ms > self._settings.topic_gone_timeout_ms):
            self._put_to_rest(partition, error)
            return
        delay_ms = self._cluster.backoff.delay_ms(partition.failures, self._cluster.random)
        partition.retry_at = loop.time() + delay_ms / 1000
        loop.call_at(partition.retry_at, self._wake.set)
        self._stale_topics.add(partition.topic_partition.topic)

    def _put_to_rest(self, partition: PartitionState, error: BrokerError) -> None:
        partition.resting = True
        self._queue_of[partition.topic_partition].fail(partition.error_of(error))

    async def _refresh(self) -> None:
        """Ask for the metadata of topics whose leaders are unknown or were wrong."""
        topics = set(self._stale_topics)
        try:
            await self._cluster.refresh(topics)
            self._stale_topics -= topics
            self._fail_leaderless(topics)
        except BrokerError as error:
            _log.info("metadata_not_refreshed", error=str(error))
            await asyncio.sleep(self._cluster.backoff.max_ms / 1000)
        finally:
            self._refreshing = False
            self._wake.set()

    def _fail_leaderless(self, topics: set[str]) -> None:
        """Partitions that still have no leader are tried again later, with growing pauses."""
        for partition in self.partitions.values():
            topic = partition.topic_partition.topic
            if topic in topics and self._cluster.leader(partition.topic_partition) is None:
                known = self._cluster.metadata.partition(partition.topic_partition) is not None
                code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._fail(partition, ProtocolError(code))

    # Positions

    async def _find_positions(self, partitions: list[PartitionState]) -> None:
        """Where to begin: the committed offset, else what the reset policy says."""
        try:
            await self._place_committed([partition for partition in partitions if not partition.reset])
            await self._place_by_policy([partition for partition in partitions if partition.position is None])
        except BrokerError as error:
            for partition in partitions:
                if self._is_current(partition) and partition.position is None:
                    self._fail(partition, error)
        finally:
            self._end(partitions)

    async def _place_committed(self, partitions: list[PartitionState]) -> None:
        if self.committed_offsets is None or not partitions:
            return
        committed = await self.committed_offsets([partition.topic_partition for partition in partitions])
        for partition in partitions:
            found = committed.get(partition.topic_partition)
            if found is not None and partition.position is None:
                partition.place(found.offset)

    async def _place_by_policy(self, partitions: list[PartitionState]) -> None:
        policy = self._settings.offset_reset
        if policy is OffsetReset.NONE:
            for partition in partitions:
                self._put_to_rest(
                    partition, ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, "no offset is committed")
                )
            return
        found = await self.find({partition.topic_partition: self._reset_time() for partition in partitions})
        for partition in partitions:
            if partition.position is None:
                partition.place(found[partition.topic_partition])

    def _reset_time(self) -> int:
        match self._settings.offset_reset:
            case OffsetReset.EARLIEST:
                return EARLIEST
            case OffsetReset.BY_DURATION:
                return self._clock.now_ms() - self._settings.offset_reset_duration_ms
            case _:
                return LATEST

    async def find(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of the first record at or after each time (milliseconds, EARLIEST or LATEST); where
        there is none that young, of the next one. Raises as `list_offsets`.
        """
        read_committed = self._settings.committed_only
        found = await list_offsets(self._cluster, times, read_committed=read_committed)
        missing = [partition for partition, at in found.items() if at.offset == NO_OFFSET]
        if missing:
            latest = dict.fromkeys(missing, LATEST)
            found |= await list_offsets(self._cluster, latest, read_committed=read_committed)
        return {partition: at.offset for partition, at in found.items()}

    def _end(self, partitions: Iterable[PartitionState]) -> None:
        for partition in partitions:
            partition.busy = False
        self._wake.set()

    def _is_current(self, partition: PartitionState) -> bool:
        return self.partitions.get(partition.topic_partition) is partition


def _mark_busy(partitions: Iterable[PartitionState]) -> None:
    for partition in partitions:
        partition.busy = True
