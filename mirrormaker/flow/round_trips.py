"""Round trips to the brokers of a cluster: the shortest of the last minutes, since queues only add. Pure."""

from __future__ import annotations

from collections import deque

SPAN_MS = 60_000
SPANS_KEPT = 10


class RoundTrips:
    """Of one cluster, by broker."""

    def __init__(self) -> None:
        self._brokers: dict[int, deque[tuple[int, float]]] = {}
        """Start and shortest of each minute."""

    def observe(self, broker: int, round_trip_ms: float, now_ms: int) -> None:
        """A request that asked for next to nothing was answered after so long."""
        spans = self._brokers.setdefault(broker, deque(maxlen=SPANS_KEPT))
        if spans and now_ms - spans[-1][0] < SPAN_MS:
            started_ms, shortest_ms = spans.pop()
            spans.append((started_ms, min(shortest_ms, round_trip_ms)))
        else:
            spans.append((now_ms, round_trip_ms))

    def keep(self, brokers: set[int]) -> None:
        """Forget all others."""
        for broker in self._brokers.keys() - brokers:
            del self._brokers[broker]

    @property
    def by_broker(self) -> dict[int, float]:
        """Milliseconds."""
        return {broker: min(each for _, each in spans) for broker, spans in self._brokers.items()}

    @property
    def longest_ms(self) -> float | None:
        """To the broker that is furthest; None: not known yet."""
        return max(self.by_broker.values(), default=None)
