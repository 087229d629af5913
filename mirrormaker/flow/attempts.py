"""Which partitions are to be begun, and by whom. Pure.

Each has one attempt at a time: the last that was made for it, until it is begun or given up. Whoever has
waited, for time to pass or for an answer, asks what is left to it: what is at work by now, or another
process's, or given back and another attempt's, is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.types import TopicPartition

RETRY_MS = 500
RETRY_MAX_MS = 5_000


class Attempt:
    """To begin these partitions, made again and again until none is left. To be made by `Attempts`."""

    def __init__(
        self, current: dict[TopicPartition, Attempt], sources: Iterable[TopicPartition], wait_ms: int
    ) -> None:
        self.wait_ms = wait_ms
        """Before the next try."""
        self._current = current
        self._sources = frozenset(sources)

    @property
    def left(self) -> frozenset[TopicPartition]:
        """Those that are not begun yet, and are still its own."""
        return frozenset(source for source in self._sources if self._current.get(source) is self)

    def wait_longer(self) -> None:
        """It was tried, and something is left."""
        self.wait_ms = min(max(2 * self.wait_ms, RETRY_MS), RETRY_MAX_MS)


class Attempts:
    """See the module; of one copier."""

    def __init__(self) -> None:
        self._current: dict[TopicPartition, Attempt] = {}

    def make(self, sources: Collection[TopicPartition], wait_ms: int = RETRY_MS) -> Attempt:
        """These are to be begun, by nobody else from now on."""
        attempt = Attempt(self._current, sources, wait_ms)
        self._current |= dict.fromkeys(sources, attempt)
        return attempt

    def end(self, sources: Iterable[TopicPartition]) -> None:
        """These are begun, or given up."""
        for source in sources:
            self._current.pop(source, None)
