"""How much a fetch asks of a source broker, so that the way there is used and no answer takes too long. Pure.

While an answer is full and took less than a number of round trips, the next fetch asks for twice as much:
what one round trip costs is then small beside the transfer. Where answers take long, it asks for half.
"""

from __future__ import annotations

ANSWER_BYTES_MIN = 64 << 10
SLOW_MS = 2_000
"""An answer that took so long is too large, unless round trips are very long."""
ROUND_TRIPS_ALONE = 10
"""With one fetch at a time, nine tenths of the time are transfer."""
ROUND_TRIPS_BESIDE_OTHERS = 3
"""Others transfer while this one waits."""


class AnswerSize:
    """What one fetch loop asks for."""

    __slots__ = ("bytes",)

    def __init__(self, size: int) -> None:
        self.bytes = size

    def took(
        self, asked: int, came: int, elapsed_ms: float, round_trip_ms: float, *, fetchers: int, largest: int
    ) -> None:
        """An answer of `came` bytes to a fetch for `asked` came after `elapsed_ms`; never ask for more than
        `largest`.
        """
        round_trips = ROUND_TRIPS_ALONE if fetchers == 1 else ROUND_TRIPS_BESIDE_OTHERS
        wanted_ms = round_trips * round_trip_ms
        if came * 2 >= asked and elapsed_ms > max(2 * wanted_ms, SLOW_MS):
            self.bytes = max(min(self.bytes, asked) // 2, ANSWER_BYTES_MIN)
        elif asked == self.bytes and came * 4 >= asked * 3 and elapsed_ms < wanted_ms:
            self.bytes = min(self.bytes * 2, largest)
        self.bytes = min(self.bytes, largest)

    def timed_out(self) -> None:
        """No answer came in time."""
        self.bytes = max(self.bytes // 2, ANSWER_BYTES_MIN)
