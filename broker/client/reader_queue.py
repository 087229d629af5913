"""What is fetched ahead for one reader: its partitions, whose turn it is, and how much room there is.

Several readers may share a fetcher, each with a queue of its own. A queue that is full is not fetched for, so
a reader that is slow costs the others nothing. Partitions take turns; the records of one stay in order.

Everything is called from the event loop of the fetcher, which fills the queue; one task at a time takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from broker.client.fetch_state import PartitionError, PartitionState
from broker.types import TopicPartition

_Found = TypeVar("_Found")


class ReaderQueue:
    """The partitions of one reader, filled by a fetcher. `Fetcher.new_queue` makes it."""

    def __init__(self, *, buffer_bytes: int, answers_max: int, made_room: Callable[[], None]) -> None:
        """`buffer_bytes` bounds what waits to be taken, `answers_max` the number of answers that do, 0 for
        any; `made_room` is called whenever something was taken.
        """
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.buffer_bytes = buffer_bytes
        self._answers_max = answers_max
        self._made_room = made_room
        self._reserved_bytes = 0
        """What fetches under way are expected to bring at most."""
        self._ready: deque[PartitionState] = deque()
        """Partitions with something to read, in the order in which they are served; some may have left
        meanwhile.
        """
        self._errors: deque[PartitionError] = deque()
        """What went wrong with single partitions, to be raised once."""
        self._news = asyncio.Event()
        self._taken: set[TopicPartition] = set()
        """Partitions whose reader has not come back yet."""

    # The fetcher's side

    @property
    def room_bytes(self) -> int:
        """How much more may be fetched; 0 or less when the queue is full."""
        if self._answers_max and self._answers >= self._answers_max:
            return 0
        return self.buffer_bytes - self._reserved_bytes - self.buffered_bytes

    @property
    def buffered_bytes(self) -> int:
        """What waits to be taken."""
        return sum(partition.buffered_bytes for partition in self.partitions.values())

    @property
    def _answers(self) -> int:
        return sum(partition.buffered_answers for partition in self.partitions.values())

    def make_room(self, wanted_bytes: int) -> None:
        """As far as less than that is free, have partitions that nobody may read now give back what they
        hold: otherwise paused ones could stop all others.
        """
        for partition in self.partitions.values():
            if partition.buffered_answers and (partition.paused or partition.resting):
                if self.room_bytes >= wanted_bytes:
                    return
                partition.give_back()

    def reserve(self, size: int) -> None:
        """Keep room for a fetch; a negative size gives it back."""
        self._reserved_bytes += size

    def discard(self, topic_partition: TopicPartition) -> None:
        """The reader does not have the partition any more."""
        self.partitions.pop(topic_partition, None)
        self._taken.discard(topic_partition)

    def serve(self, partition: PartitionState) -> None:
        """A partition has something to read where it had nothing: it gets in line."""
        if partition.readable:
            self._ready.append(partition)
            self._news.set()

    def fail(self, error: PartitionError) -> None:
        """Something is wrong with one partition."""
        self._errors.append(error)
        self._news.set()

    def wake(self) -> None:
        """Have the reader look again at what `check` says."""
        self._news.set()

    # The reader's side

    async def take(
        self,
        read: Callable[[PartitionState], _Found | None],
        *,
        check: Callable[[], None],
        timeout_ms: float | None = None,
    ) -> _Found | None:
        """What `read` finds in the first partition that has something, awaited; None when there is none
        within `timeout_ms`.

        Raises PartitionError for one partition, and what `check` raises, which is asked after every news.
        """
        if (found := self._look(read, check)) is not None:
            return found
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    await self._news.wait()
                    self._news.clear()
                    if (found := self._look(read, check)) is not None:
                        return found
        except TimeoutError:
            return None

    def note_processed(self) -> None:
        """Whoever comes back for more is done with what was taken before."""
        for topic_partition in self._taken:
            partition = self.partitions[topic_partition]
            partition.processed = partition.position
        self._taken.clear()

    def forget_taken(self) -> None:
        """What was taken last does not count as processed."""
        self._taken.clear()

    def _look(
        self, read: Callable[[PartitionState], _Found | None], check: Callable[[], None]
    ) -> _Found | None:
        check()
        while self._errors:
            error = self._errors.popleft()
            if error.topic_partition in self.partitions:
                raise error
        while (partition := self._next_readable()) is not None:
            found = read(partition)
            if partition.readable:
                self._ready.append(partition)
            self._made_room()
            if found:
                self._taken.add(partition.topic_partition)
                return found
            if partition.topic_partition not in self._taken:
                partition.processed = partition.position  # nothing there that was for the reader
        return None

    def _next_readable(self) -> PartitionState | None:
        while self._ready:
            partition = self._ready.popleft()
            if self.partitions.get(partition.topic_partition) is partition and partition.readable:
                return partition
        return None
