"""How long records take from their source to their destination. Pure.

Counted by chunk, as the destination has it for readers: acknowledged, or committed where a transaction says
so. A chunk took as long as its newest record, which by `EndHistory.arrived_ms` came to the source when its
timestamp says, as far as that was seen. What a timestamp is worth is told beside: with `append` the source's
nodes set it; with `create` a producer did, so what lies before the append counts too, as far as it could not
be seen. What a process finds there as it begins, and is older than a minute, is lag and no latency.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from broker.types import TopicPartition
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.lag import EndHistory
from mirrormaker.flow.timing.histogram import Histogram, RecentHistogram

BACKLOG_MS = 60_000


class Basis(Enum):
    """What the timestamps of a topic of the source are."""

    APPEND = "append"
    CREATE = "create"


@dataclass(slots=True, kw_only=True)
class _Kind:
    """Latencies of one basis."""

    total: Histogram
    recent: RecentHistogram


class _Arrival(NamedTuple):
    """A chunk that the destination has, and readers do not see yet."""

    next_offset: int
    arrived_ms: int
    records: int


class Latency:
    """Of one route in this process. Times are those of the clock that never goes back, in ms."""

    def __init__(self, now_ms: int) -> None:
        self.bases: Mapping[str, Basis] = {}
        """By topic of the source, as far as it tells."""
        self._begun_ms = now_ms
        self._kinds: dict[Basis, _Kind] = {}
        self._waiting: dict[TopicPartition, deque[_Arrival]] = defaultdict(deque)

    def count(self, source: TopicPartition, arrived_ms: int, count: int, now_ms: int) -> None:
        """`count` records that came to the source at `arrived_ms` are at the destination."""
        basis = self.bases.get(source.topic, Basis.CREATE)
        kind = self._kinds.get(basis)
        if kind is None:
            kind = self._kinds[basis] = _Kind(total=Histogram(), recent=RecentHistogram(self._begun_ms))
        kind.total.record(now_ms - arrived_ms, count)
        kind.recent.record(now_ms - arrived_ms, count, now_ms)

    def hold(self, source: TopicPartition, next_offset: int, arrived_ms: int, count: int) -> None:
        """As `count`, once readers see what comes before `next_offset` (see `settle`)."""
        self._waiting[source].append(_Arrival(next_offset, arrived_ms, count))

    def settle(self, position: Callable[[TopicPartition], int | None], now_ms: int) -> None:
        """Readers see what comes before `position` of each; None: the partition is gone."""
        for source, waiting in list(self._waiting.items()):
            seen_to = position(source)
            if seen_to is None:
                del self._waiting[source]
                continue
            while waiting and waiting[0].next_offset <= seen_to:
                arrival = waiting.popleft()
                self.count(source, arrival.arrived_ms, arrival.records, now_ms)

    def give_up(self) -> None:
        """What is held does not count: it will be copied again."""
        self._waiting.clear()

    def describe(self, now_ms: int) -> dict[str, Any]:
        """By basis, as plain data: counts by bucket (`histogram`), since the start and of late."""
        return {
            basis.value: {
                "records": kind.total.total,
                "seconds": round(kind.total.seconds, 6),
                "buckets": {str(bucket): count for bucket, count in kind.total.sparse().items()},
                "recent": {str(bucket): count for bucket, count in kind.recent.sparse(now_ms).items()},
            }
            for basis, kind in self._kinds.items()
        }


def arrival_of(copied: Copied, history: EndHistory | None, wall_shift_ms: int) -> int | None:
    """When the newest record of it came to its source; None: nobody can tell, or it does not count.
    `wall_shift_ms`: from the clock that never goes back to that of timestamps.
    """
    timestamp_ms = copied.max_timestamp - wall_shift_ms if copied.max_timestamp >= 0 else None
    if history is None:
        return timestamp_ms
    last = copied.next - 1
    arrived_ms, seen_ms = history.arrived_ms(last, timestamp_ms), history.known_since_ms(last)
    if arrived_ms is None or seen_ms is None:
        return None
    is_backlog = seen_ms - arrived_ms > BACKLOG_MS and history.absent_until_ms(last) is None
    return None if is_backlog else arrived_ms
