"""Reading a coordinator's partition: what its log says from start to end, others served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from broker.coordinators.partition_writer import CoordinatorLog
from broker.types import Buffer

Entry = TypeVar("Entry")

_SLICE_COUNT = 500
"""Records that are read before others get their turn on the event loop: some milliseconds."""


async def entries_of(
    log: CoordinatorLog, partition: int, read: Callable[[Buffer], Iterable[Entry]]
) -> AsyncIterator[Entry]:
    """What `read` makes of the partition's batches, in order. Raises ProtocolError, and what `read`
    raises.
    """
    count = 0
    async for chunk in log.read_all(partition):
        for entry in read(chunk):
            yield entry
            count += 1
            if count % _SLICE_COUNT == 0:
                await asyncio.sleep(0)
