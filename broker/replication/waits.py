"""Requests that wait: fetches for bytes, produces for their records to be committed.

Followers wait for appends to the leader's log, other clients for the high watermark or, if they read
committed transactions only, for the last stable offset to pass the bytes.

A wait is an object that its request's coroutine awaits and that the partitions it concerns hold. There is at
most one request in work per connection, so `max.connections` bounds the fetch waits, and a wait leaves every
partition when its coroutine ends, for whatever reason. All of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Protocol


class Isolation(Enum):
    """Up to where a fetch may read."""

    LOG_END = "log end"
    COMMITTED = "high watermark"
    STABLE = "last stable offset"


class FetchWait:
    """One fetch that wants `bytes_missing` more bytes, from any of its partitions."""

    __slots__ = ("_bytes_missing", "_future", "_grown", "_is_ended")

    def __init__(self, bytes_missing: int) -> None:
        self._bytes_missing = bytes_missing
        self._grown: set[HoldsFetchWaits] = set()
        self._is_ended = False
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grew(self, size: int, replica: HoldsFetchWaits) -> None:
        """One of the partitions, `replica`, has `size` more bytes to read."""
        self._grown.add(replica)
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self._finish()

    def end(self) -> None:
        """Answer with what is there: a partition changed its state, or the node stops."""
        self._is_ended = True
        self._finish()

    @property
    def grown(self) -> Collection[HoldsFetchWaits] | None:
        """The only partitions that are worth a look now; None where it may be any."""
        return None if self._is_ended or not self._grown else self._grown

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def within(self, timeout_ms: int) -> None:
        """Return when enough bytes are there, the wait was ended, or the time is up."""
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.end)
        try:
            await self._future
        finally:
            timer.cancel()


class HoldsFetchWaits(Protocol):
    """A partition, as far as a fetch wait needs it."""

    fetch_waits: dict[FetchWait, None]
    """Those of fetches that read up to the high watermark, the oldest first."""
    follower_waits: dict[FetchWait, None]
    """Those of fetches that read up to the log's end."""
    prompt_waits: dict[FetchWait, None]
    """Those of followers that are to hear at once of a high watermark that moved."""
    stable_waits: dict[FetchWait, int]
    """Those of fetches that read what is committed and decided only, with the last stable offset up to which
    bytes were counted.
    """

    @property
    def last_stable_offset(self) -> int: ...


async def wait_for_bytes(
    replicas: Iterable[HoldsFetchWaits],
    bytes_missing: int,
    timeout_ms: int,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    until_commit: bool = False,
) -> Collection[HoldsFetchWaits] | None:
    """Wait until the partitions together grew by so many bytes that `isolation` lets be read, one of them
    changed its state, the time is up, or, with `until_commit`, a high watermark moved. Returns which of them
    grew if that is all that happened, else None.
    """
    wait = FetchWait(bytes_missing)
    held = list(replicas)
    for replica in held:
        match isolation:
            case Isolation.STABLE:
                replica.stable_waits[wait] = replica.last_stable_offset
            case Isolation.LOG_END:
                replica.follower_waits[wait] = None
            case Isolation.COMMITTED:
                replica.fetch_waits[wait] = None
        if until_commit:
            replica.prompt_waits[wait] = None
    try:
        await wait.within(timeout_ms)
        return wait.grown
    finally:
        for replica in held:
            if isolation is Isolation.LOG_END:
                replica.follower_waits.pop(wait, None)
                replica.prompt_waits.pop(wait, None)
            else:
                replica.stable_waits.pop(wait, None)
                replica.fetch_waits.pop(wait, None)


class CommitWaits:
    """Produces that wait until the high watermark of one partition passes their records, oldest first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, next_offset: int) -> asyncio.Future[None]:
        """A future that is done when the high watermark is at `next_offset` or beyond."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        while waiting and waiting[0][1].done():  # its request waited long enough
            waiting.popleft()
        waiting.append((next_offset, future))
        return future

    def advance(self, high_watermark: int) -> None:
        """The high watermark moved: appends are in offset order, so the waits it passed are at the front."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= high_watermark or waiting[0][1].done()):
            future = waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """The partition is led elsewhere now: nobody here can tell whether the records will be committed."""
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(error)
                future.exception()  # a request that ended early asks for only some of its commits


class FollowerWaits:
    """Requests that wait for something to be true of the followers of one partition: looked at when they have
    fetched, or the ISR has changed.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, condition: Callable[[], bool]) -> asyncio.Future[None]:
        """A future that is done when `condition` holds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        return future

    def settle(self) -> None:
        """Something may have become true."""
        left = []
        for condition, future in self._waiting:
            if future.done():
                continue
            if condition():
                future.set_result(None)
            else:
                left.append((condition, future))
        self._waiting = left

    def fail(self, error: Exception) -> None:
        """As `CommitWaits.fail`."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()
