"""The simple consumer: reads where it is told to, and keeps nothing between two calls.

    consumer = SimpleConsumer(cluster)
    fetched = await consumer.fetch(FetchAt(topic="flights", partition=0, offset=5))
    for record in fetched.records():
        ...
    offset = fetched.next_offset

Without a node it asks the leader of each partition, which it looks up anew when another leads; with one it
asks that node alone, as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.consumer_settings import ConsumerSettings
from broker.client.fetch import (
    FetchedBatches,
    FetchTerms,
    PartitionPosition,
    build_fetch,
    bytes_needed,
    cut_batches,
    read_fetch,
    version_limit,
)
from broker.client.fetch_state import PartitionError
from broker.client.offsets_before import offsets_before
from broker.client.record_cursor import ConsumerRecord, RecordCursor
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.fetch import FetchRequest, PartitionData

_MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,  # one that led, and follows now, says so of what it does not have
    }
)
"""Metadata is old, or may be: worth another look."""
_RECORDS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAt:
    """What to read: a partition from `offset` on, about `max_bytes` of it (0: as the settings say). A batch
    that is larger still comes whole.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer to one `FetchAt`: whole batches as the node stores them, none at the end, or an error."""

    at: FetchAt
    error: BrokerError | None = None
    batches: FetchedBatches | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    committed_only: bool = False
    decoded_bytes_max: int = 0

    @property
    def next_offset(self) -> int:
        """Where to go on."""
        return self.batches.next_offset if self.batches is not None else self.at.offset

    def records(self) -> list[ConsumerRecord]:
        """The records from the offset on. Raises the error, CorruptRecordsError."""
        if self.error is not None:
            raise self.error
        if self.batches is None:
            return []
        cursor = RecordCursor(
            self.batches, committed_only=self.committed_only, decoded_bytes_max=self.decoded_bytes_max
        )
        records: list[ConsumerRecord] = []
        while taken := cursor.take(_RECORDS_AT_ONCE):
            records += taken
        return records


class SimpleConsumer:
    """Single requests to nodes; the caller keeps offsets."""

    def __init__(
        self, cluster: Cluster, *, node_id: int | None = None, settings: ConsumerSettings | None = None
    ) -> None:
        """`node_id` is the one node to ask; None stands for the leader of each partition."""
        self.node_id = node_id
        self.settings = settings or ConsumerSettings()
        self._cluster = cluster

    async def fetch(self, at: FetchAt, *, max_wait_ms: int = 0, min_bytes: int = 1) -> Fetched:
        """One partition; the node waits for so many bytes for so long. Raises PartitionError,
        ConnectionFailedError, RequestTimedOutError.
        """
        (fetched,) = await self.multifetch([at], max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        if fetched.error is not None:
            raise fetched.error
        return fetched

    async def multifetch(
        self, fetches: Sequence[FetchAt], *, max_wait_ms: int = 0, min_bytes: int = 1
    ) -> list[Fetched]:
        """Several at once, with one request to each node; answers as they were asked for, each with its own
        error.
        """
        terms = FetchTerms(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=self.settings.fetch_max_bytes,
            read_committed=self.settings.committed_only,
        )
        await self._look_up(fetches, anew=False)
        answers = await self._ask_all(fetches, terms)
        if moved := [number for number, answer in enumerate(answers) if self._has_moved(answer)]:
            again = [fetches[number] for number in moved]
            await self._look_up(again, anew=True)
            for number, answer in zip(moved, await self._ask_all(again, terms), strict=True):
                answers[number] = answer
        return answers

    async def get_offsets_before(
        self, topic: str, partition: int, timestamp: int, max_offsets: int
    ) -> list[int]:
        """At most so many offsets at or before a time, the largest first: to begin reading at.

        `timestamp` is in milliseconds; -1 (`LATEST`) is the end of the log, -2 (`EARLIEST`) its beginning.
        The first offset is that of the first record as young, the others are where segments before begin.
        Raises PartitionError, ConnectionFailedError, RequestTimedOutError.
        """
        at = FetchAt(topic=topic, partition=partition, offset=timestamp)
        await self._look_up([at], anew=False)
        try:
            return await self._offsets_before(at, max_offsets)
        except PartitionError as error:
            if error.code not in _MOVED or self.node_id is not None:
                raise
        await self._look_up([at], anew=True)
        return await self._offsets_before(at, max_offsets)

    async def _offsets_before(self, at: FetchAt, max_offsets: int) -> list[int]:
        try:
            node_id = self._node_of(at)
            return await offsets_before(self._cluster, node_id, at.topic_partition, at.offset, max_offsets)
        except ProtocolError as error:
            raise _error_of(at, error) from error

    # Whom to ask

    async def _look_up(self, fetches: Iterable[FetchAt], *, anew: bool) -> None:
        """Know the node to ask, or the leaders; ask for those that are known only when `anew`."""
        metadata = self._cluster.metadata
        if self.node_id is not None:
            if self.node_id not in metadata.nodes:
                await self._cluster.refresh([])
            return
        topics = {at.topic for at in fetches if anew or metadata.leader(at.topic_partition) is None}
        if topics:
            await self._cluster.refresh(topics)

    def _node_of(self, at: FetchAt) -> int:
        """Raises PartitionError LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION."""
        if self.node_id is not None:
            return self.node_id
        leader = self._cluster.leader(at.topic_partition)
        if leader is None:
            known = self._cluster.metadata.partition(at.topic_partition) is not None
            code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise _error_of(at, ProtocolError(code))
        return leader

    def _has_moved(self, answer: Fetched) -> bool:
        error = answer.error
        return self.node_id is None and isinstance(error, ProtocolError) and error.code in _MOVED

    # Asking

    async def _ask_all(self, fetches: Sequence[FetchAt], terms: FetchTerms) -> list[Fetched]:
        """The answers in order. A node gets one request, and others for what is asked for twice."""
        requests: dict[tuple[int, int], dict[TopicPartition, FetchAt]] = defaultdict(dict)
        places: list[tuple[int, int] | PartitionError] = []
        times: dict[TopicPartition, int] = defaultdict(int)
        for at in fetches:
            try:
                place = self._node_of(at), times[at.topic_partition]
            except PartitionError as error:
                places.append(error)
                continue
            places.append(place)
            requests[place][at.topic_partition] = at
            times[at.topic_partition] += 1
        answered = await asyncio.gather(
            *(self._ask(place[0], asked, terms) for place, asked in requests.items())
        )
        answers = dict(zip(requests, answered, strict=True))
        return [
            Fetched(at=at, error=asked_in)
            if isinstance(asked_in, PartitionError)
            else answers[asked_in][at.topic_partition]
            for at, asked_in in zip(fetches, places, strict=True)
        ]

    async def _ask(
        self, node_id: int, asked: Mapping[TopicPartition, FetchAt], terms: FetchTerms
    ) -> dict[TopicPartition, Fetched]:
        """The answers of one node; when there is none, each is the error."""
        positions = [self._position(at) for at in asked.values()]
        metadata = self._cluster.metadata
        request = build_fetch(positions, terms, metadata)
        try:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(FetchRequest, at_most=version_limit(positions, metadata))
            timeout_ms = self._cluster.settings.request_timeout_ms + terms.max_wait_ms
            response = await connection.request(request, version, timeout_ms=timeout_ms)
            found = dict(read_fetch(response, request))
        except BrokerError as error:
            return {partition: Fetched(at=at, error=error) for partition, at in asked.items()}
        reads = (self._read(at, found.get(partition), terms) for partition, at in asked.items())
        return dict(zip(asked, await asyncio.gather(*reads), strict=True))

    def _position(self, at: FetchAt) -> PartitionPosition:
        max_bytes = at.max_bytes or self.settings.partition_max_bytes
        return PartitionPosition(topic_partition=at.topic_partition, offset=at.offset, max_bytes=max_bytes)

    async def _read(self, at: FetchAt, answer: PartitionData | None, terms: FetchTerms) -> Fetched:
        """What an answer says; where not one batch came whole, that of a larger fetch."""
        if answer is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return Fetched(at=at, error=_error_of(at, ProtocolError(code, "the answer leaves it out")))
        if answer.error_code:
            return Fetched(at=at, error=_error_of(at, ProtocolError(ErrorCode.of(answer.error_code))))
        position = self._position(at)
        try:
            batches = cut_batches(position, answer)
            needed = position.max_bytes if batches is not None else bytes_needed(answer, position.max_bytes)
        except ProtocolError as error:
            return Fetched(at=at, error=_error_of(at, error))
        if needed > position.max_bytes:
            return await self._ask_for_more(at, needed, terms)
        return Fetched(
            at=at,
            batches=batches,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
            committed_only=self.settings.committed_only,
            decoded_bytes_max=self.settings.decoded_bytes_max,
        )

    async def _ask_for_more(self, at: FetchAt, needed_bytes: int, terms: FetchTerms) -> Fetched:
        """Old nodes tear what does not fit."""
        if needed_bytes > self._cluster.settings.max_frame_bytes:
            message = f"its next batch needs {needed_bytes} bytes, over the limit of a frame"
            return Fetched(
                at=at, error=_error_of(at, ProtocolError(ErrorCode.RECORD_LIST_TOO_LARGE, message))
            )
        (answer,) = await self._ask_all([replace(at, max_bytes=needed_bytes)], terms)
        return answer


def _error_of(at: FetchAt, error: ProtocolError) -> PartitionError:
    return PartitionError(at.topic_partition, at.offset, error.code, error.message)
