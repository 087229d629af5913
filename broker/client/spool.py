"""Records put aside on this machine's disk, and tried again from there, also by the next process.

Bounded in bytes: while there is no room `park` waits, and consumption with it, for records that are retried
with success; nothing is dropped. Each record is tried alone, the one that is due first; after a failure it is
due later, ever more so up to the backoff's maximum. A file that cannot be read is told once and left alone.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from broker.client.backoff import Backoff, Random, system_random
from broker.client.parking import Handler, ParkedRecord, describe, handle
from broker.client.spool_directory import SpoolDirectory
from broker.client.spool_entry import decode_entry, encode_entry
from broker.errors import StorageError
from broker.telemetry import logger

_log = logger("spool")


class Spool:
    """A `Parking`; used within `async with`. The directory is made if it is missing."""

    def __init__(
        self,
        directory: Path | str,
        *,
        bytes_max: int = 1 << 30,
        backoff: Backoff | None = None,
        failures: tuple[type[Exception], ...] = (Exception,),
        random: Random = system_random,
    ) -> None:
        """`backoff` is between attempts at one record; whatever a handler raises beside `failures` ends
        `retry`.
        """
        self._path = Path(directory)
        self._bytes_max = bytes_max
        self._backoff = backoff or Backoff(initial_ms=1_000, max_ms=300_000)
        self._failures = failures
        self._random = random
        self._directory: SpoolDirectory | None = None
        self._due: list[tuple[float, int]] = []
        """When each record is due, on the event loop's clock, and its number; a heap."""
        self._attempts: dict[int, int] = {}
        """By this process."""
        self._reserved_bytes = 0
        self._parked = asyncio.Event()
        self._freed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Raises StorageError for a directory that cannot be used, or is in use."""
        self._directory = await asyncio.to_thread(SpoolDirectory, self._path)
        self._due = [(0.0, number) for number in self._directory.sizes]
        return self

    async def __aexit__(self, *_: object) -> None:
        directory, self._directory = self._open, None
        directory.close()

    @property
    def count(self) -> int:
        """Records that are put aside."""
        return len(self._open.sizes)

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return sum(self._open.sizes.values())

    async def park(self, parked: ParkedRecord) -> None:
        """Return when the record is on the disk. Raises StorageError, also for a record that is larger than
        the whole spool may be.
        """
        data = encode_entry(parked)
        if len(data) > self._bytes_max:
            raise StorageError(f"{self._path}: a record of {len(data)} bytes where {self._bytes_max} may be")
        await self._take_room(len(data))
        try:
            number = await asyncio.to_thread(self._open.add, data)
        finally:
            self._reserved_bytes -= len(data)
        self._enlist(number)

    async def retry(self, handler: Handler) -> None:
        """Try parked records again until cancelled. Raises StorageError."""
        loop = asyncio.get_running_loop()
        while True:
            self._parked.clear()
            pause_s = self._due[0][0] - loop.time() if self._due else None
            if pause_s is not None and pause_s <= 0:
                await self._retry(heapq.heappop(self._due)[1], handler)
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._parked.wait()
            except TimeoutError:
                continue

    async def records(self) -> AsyncIterator[tuple[int, ParkedRecord]]:
        """What is put aside, with its numbers, in the order of parking. Raises StorageError."""
        for number in list(self._open.sizes):
            data = await asyncio.to_thread(self._open.read, number)
            yield number, decode_entry(data, f"{self._path}, record {number}")

    async def drop(self, number: int) -> None:
        """Give a record up for good. Raises StorageError."""
        await asyncio.to_thread(self._open.remove, number)
        self._attempts.pop(number, None)
        self._freed.set()

    async def _retry(self, number: int, handler: Handler) -> None:
        if number not in self._open.sizes:
            return
        data = await asyncio.to_thread(self._open.read, number)
        try:
            parked = decode_entry(data, f"{self._path}, record {number}")
        except StorageError as error:
            _log.warning("parked_record_unreadable", error=str(error))
            return
        try:
            await handle(handler, parked.record)
        except self._failures as error:
            attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
            _log.info("parked_record_failed", number=number, attempts=attempts, error=describe(error))
            delay_s = self._backoff.delay_ms(attempts, self._random) / 1000
            heapq.heappush(self._due, (asyncio.get_running_loop().time() + delay_s, number))
            return
        await self.drop(number)
        _log.info("parked_record_processed", number=number, topic=parked.record.topic)

    async def _take_room(self, size: int) -> None:
        if self.size + self._reserved_bytes + size > self._bytes_max:
            _log.warning("spool_full", directory=str(self._path), bytes=self.size, bytes_max=self._bytes_max)
        while self.size + self._reserved_bytes + size > self._bytes_max:
            self._freed.clear()
            await self._freed.wait()
        self._reserved_bytes += size

    def _enlist(self, number: int) -> None:
        due = asyncio.get_running_loop().time() + self._backoff.delay_ms(1, self._random) / 1000
        heapq.heappush(self._due, (due, number))
        self._parked.set()

    @property
    def _open(self) -> SpoolDirectory:
        if self._directory is None:
            raise RuntimeError("the spool is not open")
        return self._directory
