"""Producer ids, handed out one by one from blocks that no other node has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.types import ProducerId


class ProducerIds:
    """Takes a block from `allocate` whenever the last one is used up; what is left of a block at a stop is
    never used.
    """

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id that nobody had before.

        Raises ProtocolError COORDINATOR_NOT_AVAILABLE while ZooKeeper is away.
        """
        async with self._lock:
            taken = next(self._block, None)
            if taken is None:
                try:
                    self._block = iter(await self._allocate())
                except CoordinationError as error:
                    raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
                taken = next(self._block)
        return ProducerId(taken)
