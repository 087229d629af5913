"""Writes the ends of transactions into their partitions: a marker each, through the nodes that lead them.

What waits for one node shares a request, so that the busier it is the more a request holds. Whatever fails is
tried again, at other nodes if leaders have changed, until each partition has its marker or is gone, or this
node no longer coordinates the transaction. Then the end is complete. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.cluster.image import BrokerInfo
from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import (
    ConnectionFailedError,
    CoordinationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
    WireError,
)
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_log = logger("transactions")

ENDINGS_PER_REQUEST_MAX = 500
BACKOFF_MS = 50
BACKOFF_MS_MAX = 1_000
_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        # The partition has heard of a later producer: the transaction was ended there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Answers after which a partition needs nothing more."""


class Leaders(Protocol):
    """The nodes that lead partitions, and the way to them."""

    def leader(self, partition: TopicPartition) -> BrokerInfo | None:
        """Who leads it, None while nobody does or that is not known here."""
        ...

    async def is_gone(self, partition: TopicPartition) -> bool:
        """Whether the partition was deleted, for certain. Raises CoordinationError."""
        ...

    async def write_markers(
        self, broker: BrokerInfo, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Raises ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Ending:
    """The decided end of one transaction; `partitions` are those that have no marker yet."""

    transactional_id: str
    producer: ProducerIdentity
    commits: bool
    coordinator_epoch: int
    transaction_version: int
    """That of the producer's protocol: from 2 on an end has a later epoch than what it ends."""
    partitions: set[TopicPartition]
    is_wanted: Callable[[], bool] = field(repr=False)
    """Whether this node coordinates the transaction still."""
    complete: Callable[[], Awaitable[bool]] = field(repr=False)
    """Stores that all markers are written; whether it could."""
    is_fenced: bool = False
    """Whether a partition knows a later coordinator."""
    failures: int = 0


_Part = tuple[Ending, tuple[TopicPartition, ...]]


class Markers:
    """See the module's description; its tasks run in the group that `run_in` gives."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: dict[BrokerId, deque[_Part]] = {}
        self._busy: set[BrokerId] = set()
        self._endings: set[Ending] = set()
        self.retried_count = 0
        """Times that partitions did not take their marker, or could not be reached."""

    @property
    def under_way_count(self) -> int:
        """Transactions whose end is decided, and not complete."""
        return len(self._endings)

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Before the first `write`."""
        self._tasks = tasks

    def close(self) -> None:
        """Write no more: another coordinator goes on with what is under way."""
        for task in tuple(self._running):
            task.cancel()

    def write(self, ending: Ending) -> None:
        """Have the markers written, and the end completed after that."""
        self._endings.add(ending)
        if ending.partitions:
            self._hand_out(ending, sorted(ending.partitions))
        else:
            self._start(self._finish(ending))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None, "given before the first transaction ends"
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _hand_out(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
        unled = []
        for partition in partitions:
            leader = self._leaders.leader(partition)
            if leader is None:
                unled.append(partition)
            else:
                by_leader[leader.id].append(partition)
        for broker_id, led in by_leader.items():
            self._waiting.setdefault(broker_id, deque()).append((ending, tuple(led)))
            if broker_id not in self._busy:
                self._busy.add(broker_id)
                self._start(self._serve(broker_id))
        if unled:
            self._start(self._try_again(ending, unled))

    async def _serve(self, broker_id: BrokerId) -> None:
        """Send what waits for one node until nothing does."""
        try:
            while waiting := self._waiting.get(broker_id):
                parts = [waiting.popleft() for _ in range(min(len(waiting), ENDINGS_PER_REQUEST_MAX))]
                await self._send(broker_id, [part for part in parts if self._is_wanted(part[0])])
        finally:
            self._busy.discard(broker_id)

    async def _send(self, broker_id: BrokerId, parts: Collection[_Part]) -> None:
        if not parts:
            return
        broker = self._leaders.leader(next(iter(parts))[1][0])
        errors: dict[tuple[int, TopicPartition], ErrorCode] = {}
        if broker is not None and broker.id == broker_id:
            try:
                response = await self._leaders.write_markers(broker, _request(parts))
                errors = _errors_of(response)
            except (ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError) as error:
                _log.warning("markers_not_sent", broker_id=broker_id, reason=str(error))
        for ending, partitions in parts:
            self._take_in(ending, partitions, errors)

    def _take_in(
        self,
        ending: Ending,
        partitions: Collection[TopicPartition],
        errors: dict[tuple[int, TopicPartition], ErrorCode],
    ) -> None:
        left = []
        for partition in partitions:
            error = errors.get((ending.producer.producer_id, partition))
            if error in _DONE:
                ending.partitions.discard(partition)
            elif error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                ending.is_fenced = True
            else:
                left.append(partition)
        if not self._is_wanted(ending):
            return
        if left:
            self._start(self._try_again(ending, left))
        elif not ending.partitions:
            self._start(self._finish(ending))

    async def _try_again(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        await self._rest(ending)
        left = []
        for partition in partitions:
            if self._leaders.leader(partition) is None and await self._is_gone(partition):
                ending.partitions.discard(partition)
            else:
                left.append(partition)
        if not self._is_wanted(ending):
            return
        if left:
            self._hand_out(ending, left)
        elif not ending.partitions:
            await self._finish(ending)

    async def _is_gone(self, partition: TopicPartition) -> bool:
        try:
            return await self._leaders.is_gone(partition)
        except CoordinationError:
            return False

    async def _finish(self, ending: Ending) -> None:
        while self._is_wanted(ending):
            if await ending.complete():
                self._endings.discard(ending)
                return
            await self._rest(ending)

    async def _rest(self, ending: Ending) -> None:
        self.retried_count += 1
        await asyncio.sleep(min(BACKOFF_MS << min(ending.failures, 10), BACKOFF_MS_MAX) / 1000)
        ending.failures += 1

    def _is_wanted(self, ending: Ending) -> bool:
        if ending.is_wanted() and not ending.is_fenced:
            return True
        if ending in self._endings:
            self._endings.discard(ending)
            _log.info(
                "markers_abandoned",
                transactional_id=ending.transactional_id,
                coordinator_epoch=ending.coordinator_epoch,
            )
        return False


def _request(parts: Iterable[_Part]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=ending.producer.producer_id,
                producer_epoch=ending.producer.epoch,
                transaction_result=ending.commits,
                topics=_topics(partitions),
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.transaction_version,
            )
            for ending, partitions in parts
        ]
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        numbers[topic].append(partition)
    return [
        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in numbers.items()
    ]


def _errors_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode.of(
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
