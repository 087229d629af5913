"""Holding back what may be another process's by now."""

from __future__ import annotations

from collections.abc import Callable

from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.partition import Partition

RECHECK_MS = 100


class Certainty:
    """An admission (`hooks`) that lets nothing through while it is in doubt whose the partitions are.

    A process that stood still wakes with full queues: sent on, they would be copied twice.
    """

    def __init__(self, is_in_doubt: Callable[[], bool]) -> None:
        self._ask = is_in_doubt
        self._asked_ms: int | None = None
        self._answer = False

    def _is_in_doubt(self, now_ms: int) -> bool:
        """Asked once for all partitions of one time."""
        if now_ms != self._asked_ms:
            self._asked_ms, self._answer = now_ms, self._ask()
        return self._answer

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        """See `Admission`."""
        return 0 if self._is_in_doubt(now_ms) else wanted

    def fetched(self, size: int, now_ms: int) -> None:
        """See `Admission`."""

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        """See `Admission`."""
        return not self._is_in_doubt(now_ms)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """See `Admission`."""
        return now_ms + RECHECK_MS if self._is_in_doubt(now_ms) else None
