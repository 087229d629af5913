"""The topic of a coordinator in memory, with the failures that a test asks for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import read_header, rebase


class MemoryLog:
    """Implements the CoordinatorLog port. Appends wait while `gate` is closed; `refuses` makes them fail."""

    def __init__(self, partition_count: int = 2) -> None:
        self.partition_count = partition_count
        self.leads = set(range(partition_count))
        self.refuses: ErrorCode | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.reading = asyncio.Event()
        self.reading.set()
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        self._next_offset: dict[int, int] = defaultdict(int)

    def is_leader(self, partition: int) -> bool:
        return partition in self.leads

    async def append(self, partition: int, batch: bytearray) -> None:
        await self.gate.wait()
        if self.refuses is not None:
            raise ProtocolError(self.refuses)
        header = read_header(batch)
        rebase(batch, 0, self._next_offset[partition], 0)
        self._next_offset[partition] += header.record_count
        self.batches[partition].append(bytes(batch))

    async def read_all(self, partition: int) -> AsyncIterator[bytes]:
        for batch in tuple(self.batches[partition]):
            await self.reading.wait()
            yield batch
