"""Spans of time that records are counted by. Pure.

A span is a stretch of offsets in each partition: from the first record that is as young as its beginning up
to the first that is as young as its end, which is how clusters look offsets up by time. So spans side by side
are stretches side by side, and every record is in one, also one whose time is older than its neighbours'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from mirrormaker.audit.ranges import Range
from mirrormaker.topology.kinds.numbers import amount

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIRST_MS, _LAST_MS = -(1 << 62), 1 << 62
_DIGITS_MAX = 18
WINDOWS_MAX = 10_000
"""More are not counted one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """From a time up to another, milliseconds since the epoch; None: whatever there is on that side."""

    from_ms: int | None = None
    to_ms: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where it ends before it begins."""
        if self.from_ms is not None and self.to_ms is not None and self.to_ms <= self.from_ms:
            raise ValueError(f"{self} ends before it begins")

    @property
    def range_ms(self) -> Range:
        """The same as a range without ends that are None."""
        first = _FIRST_MS if self.from_ms is None else self.from_ms
        return Range(first, _LAST_MS if self.to_ms is None else self.to_ms)

    def __str__(self) -> str:
        return f"{format_time(self.from_ms)} to {format_time(self.to_ms)}"

    def cut(self, span_ms: int, first_ms: int, last_ms: int) -> Iterator[TimeWindow]:
        """Windows of `span_ms` that begin at its multiples and together are this one; where it has no begin
        or no end, the first and last of them are those of `first_ms` and `last_ms`.

        Raises ValueError when these are more than `WINDOWS_MAX`.
        """
        start = self.from_ms if self.from_ms is not None else first_ms - first_ms % span_ms
        end = self.to_ms if self.to_ms is not None else max(last_ms - last_ms % span_ms + span_ms, start + 1)
        if (end - start) / span_ms > WINDOWS_MAX:
            raise ValueError(f"more than {WINDOWS_MAX} windows: take longer ones, or a shorter time")
        while start < end:
            until = min(start - start % span_ms + span_ms, end)
            yield TimeWindow(from_ms=start, to_ms=until)
            start = until


def format_time(at_ms: int | None) -> str:
    """For people; `-` for none. Producers may say any time."""
    if at_ms is None:
        return "-"
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"  # in no year that has four digits
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """A time such as 2026-01-31T12:00:00Z, or milliseconds since the epoch. Raises ValueError.

    None before the epoch: clusters that look such times up take some of them for the earliest or the latest.
    """
    if text.isdecimal() and len(text) <= _DIGITS_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone: add Z for UTC, or an offset such as +01:00")
    at_ms = round(moment.timestamp() * 1000)
    if at_ms < 0:
        raise ValueError(f"{text} is before 1970, when the times of clusters begin")
    return at_ms


def parse_span(text: str) -> int:
    """A duration such as 90s or 5m, in milliseconds. Raises ValueError."""
    span_ms = amount(text, _UNITS_MS)
    if span_ms is None or span_ms < 1:
        raise ValueError(f"{text!r} is not a duration such as 90s or 5m")
    return span_ms
