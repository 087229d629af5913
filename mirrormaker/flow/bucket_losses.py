"""Buckets that an exactly-once delivery lost: how often, and when each is taken over again. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from broker.types import TopicPartition
from mirrormaker.flow.producers import ProducerKey

LOST_WAIT_MS = 100
LOST_WAIT_MAX_MS = 5_000
FENCED_WAIT_MS = 4_000
"""Longer than a heartbeat takes: the group tells by then whether the bucket is another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBucket:
    """A bucket that this process wrote and cannot go on writing as it did."""

    key: ProducerKey
    sources: frozenset[TopicPartition]
    reason: str
    is_fenced: bool
    """Somebody else has taken it over, or the destination aborted its transaction as too old."""
    wait_ms: int
    """Before it is taken over again, if it is still this process's."""
    is_again: bool = False
    """Nothing was committed of it since it was lost before."""
    has_gone_on: Callable[[], bool] = lambda: True
    """Whether it was committed since."""


class BucketLosses:
    """See the module; of one delivery."""

    def __init__(self) -> None:
        self._in_a_row: Counter[ProducerKey] = Counter()
        """Without a commit in between."""

    def count(self, key: ProducerKey) -> None:
        """It is lost once more."""
        self._in_a_row[key] += 1

    def is_lost(self, key: ProducerKey) -> bool:
        """Whether it was, and has not been committed since."""
        return self._in_a_row[key] > 0

    def end(self, key: ProducerKey) -> int:
        """It was committed; returns how often it was lost before."""
        return self._in_a_row.pop(key, 0)

    def lost(
        self, key: ProducerKey, sources: frozenset[TopicPartition], reason: str, is_fenced: bool = False
    ) -> LostBucket:
        """As its partitions are told of it."""
        backoff_ms = min(LOST_WAIT_MS << min(self._in_a_row[key], 16), LOST_WAIT_MAX_MS)
        return LostBucket(
            key=key,
            sources=sources,
            reason=reason,
            is_fenced=is_fenced,
            wait_ms=max(backoff_ms, FENCED_WAIT_MS) if is_fenced else backoff_ms,
            is_again=self._in_a_row[key] > 1,
            has_gone_on=lambda: not self._in_a_row[key],
        )
