"""How fast a destination broker takes what it is sent. Pure."""

from __future__ import annotations

from collections import deque

SPAN_MS = 250
SPANS_KEPT = 12
SHORTEST_MS = 10
"""What took less says too little, as clocks go by the millisecond."""


class DeliveryRate:
    """The most that came through in a span of time, of the last spans. Measured while the broker always has
    something to do, from answer to answer, so that neither the round trip nor pauses count; a span in which
    everything was answered can only raise it.

    Where there is only one request at a time there is no such span. What came through from when nothing was
    under way until nothing is again, round trip included, raises it as well: else requests that are larger
    than what a rate of small ones lets be under way would go one at a time for ever.
    """

    __slots__ = ("_began_ms", "_bytes", "_came", "_in_flight", "_since_ms", "_spans")

    def __init__(self) -> None:
        self._in_flight = 0
        self._began_ms = 0
        """When there was something under way again."""
        self._came = 0
        """Bytes that were answered since then."""
        self._since_ms: int | None = None
        """Of the span at hand: when its first answer came."""
        self._bytes = 0
        self._spans: deque[float] = deque(maxlen=SPANS_KEPT)

    @property
    def per_second(self) -> float | None:
        """Bytes; None: not known yet."""
        return max(self._spans, default=None)

    def sent(self, size: int, now_ms: int) -> None:
        """A request of so many bytes is under way."""
        if not self._in_flight:
            self._began_ms, self._came = now_ms, 0
        self._in_flight += size

    def ended(self, size: int, now_ms: int, *, is_answered: bool) -> None:
        """It is not any more."""
        self._in_flight -= size
        if is_answered:
            self._came += size
            self._count(size, now_ms)
        else:
            self._since_ms = None
        if not self._in_flight:
            self._end_short(now_ms)

    def _count(self, size: int, now_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms, self._bytes = now_ms, 0
            return
        self._bytes += size
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= SPAN_MS:
            self._spans.append(self._bytes * 1000 / elapsed_ms)
            self._since_ms, self._bytes = now_ms, 0

    def _end_short(self, now_ms: int) -> None:
        if self._since_ms is not None and (elapsed_ms := now_ms - self._since_ms) > SPAN_MS // 5:
            self._raise_to(self._bytes * 1000 / elapsed_ms)
        self._since_ms = None
        if self._spans and (elapsed_ms := now_ms - self._began_ms) >= SHORTEST_MS:
            self._raise_to(self._came * 1000 / elapsed_ms)

    def _raise_to(self, rate: float) -> None:
        if rate > (self.per_second or 0):
            self._spans.append(rate)
