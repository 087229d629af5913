"""The way of a coordinator to its topic: the port to the log, and the writer of one partition.

All that is to be written to one partition goes through one writer, in the order it was asked for. One
append is under way at a time; what is asked for meanwhile goes into the next one together, so that the busier
the partition is the more a batch holds; a batch is part of one transaction at most. Owned by the event loop;
`run` is a task of the coordinator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from broker.clock import Clock
from broker.coordinators.record_batches import (
    NO_PRODUCER,
    KeyValue,
    ProducerIdentity,
    build_batch,
    encoded_size,
)
from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.types import Buffer

Record = TypeVar("Record")


class CoordinatorLog(Protocol):
    """A coordinator's topic as it needs it."""

    @property
    def partition_count(self) -> int:
        """Partitions of the topic; 0 while it does not exist."""
        ...

    def is_leader(self, partition: int) -> bool:
        """Whether this node leads `partition` now."""
        ...

    async def append(self, partition: int, batch: bytearray) -> None:
        """Append one batch, which may be part of a transaction, and return once it is committed (as
        acks=all). Raises ProtocolError, StorageError.
        """
        ...

    def read_all(self, partition: int) -> AsyncIterator[Buffer]:
        """The log from start to end, in chunks of whole batches. Raises ProtocolError."""
        ...


Done = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    pairs: list[KeyValue]
    size: int
    producer: ProducerIdentity
    done: Done


class PartitionWriter(Generic[Record]):
    """Writes records of one partition in batches; every `done` is called exactly once, with NONE or the log's
    error.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        partition: int,
        clock: Clock,
        encode: Callable[[Record], KeyValue],
        *,
        batch_bytes_max: int,
        pending_max: int,
    ) -> None:
        self._log = log
        self._partition = partition
        self._clock = clock
        self._encode = encode
        self._batch_bytes_max = batch_bytes_max
        self._pending_max = pending_max
        self._waiting: deque[_Write] = deque()
        self._under_way: list[_Write] = []
        self._wake = asyncio.Event()
        self._told: asyncio.Future[None] | None = None
        """Done when all that is under way was told how it went."""
        self._closed_with: ErrorCode | None = None

    @property
    def is_full(self) -> bool:
        """So much is waiting that no more work should be taken on."""
        return len(self._waiting) >= self._pending_max

    def submit(self, records: Sequence[Record], done: Done, producer: ProducerIdentity = NO_PRODUCER) -> None:
        """Have `records` appended in one batch, as part of the transaction of `producer` if one is given, and
        after all that was submitted before; `done` is called later, never from here.

        Raises what `encode` raises for a record that cannot be stored.
        """
        pairs = [self._encode(record) for record in records]
        if self._closed_with is not None:
            asyncio.get_running_loop().call_soon(done, self._closed_with)
            return
        self._waiting.append(_Write(pairs=pairs, size=encoded_size(pairs), producer=producer, done=done))
        self._wake.set()

    async def told(self) -> None:
        """Return when all that is being appended at this moment was told how it went."""
        if self._under_way:
            if self._told is None:
                self._told = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._told)

    async def run(self) -> None:
        """Append until `close`, or until cancelled."""
        while self._closed_with is None:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                self._under_way = self._take_batch()
                error = await self._append(self._under_way)
                finished, self._under_way = self._under_way, []
                for write in finished:
                    write.done(error)
                self._tell_told()

    def close(self, error: ErrorCode) -> None:
        """Answer everything with `error`, now and from now on; what is under way may still get there."""
        self._closed_with = error
        unfinished = [*self._under_way, *self._waiting]
        self._under_way = []
        self._waiting.clear()
        self._wake.set()
        for write in unfinished:
            write.done(error)
        self._tell_told()

    def _tell_told(self) -> None:
        if self._told is not None:
            self._told.set_result(None)
            self._told = None

    def _take_batch(self) -> list[_Write]:
        taken = [self._waiting.popleft()]
        size, producer = taken[0].size, taken[0].producer
        while (
            self._waiting
            and size + self._waiting[0].size <= self._batch_bytes_max
            and self._waiting[0].producer == producer
        ):
            size += self._waiting[0].size
            taken.append(self._waiting.popleft())
        return taken

    async def _append(self, writes: list[_Write]) -> ErrorCode:
        pairs = [pair for write in writes for pair in write.pairs]
        try:
            await self._log.append(
                self._partition, build_batch(pairs, self._clock.now_ms(), writes[0].producer)
            )
        except ProtocolError as error:
            return error.code
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE
