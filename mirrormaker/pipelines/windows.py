"""Windows: the hours and days that the rows of a table stand in, and their subfolders. Pure.

A subfolder is named by the columns that it stands for, `topic=jfk.flights/date=2013-01-31/hour=7`, escaped as
Spark and Hive do. A window is such a folder whose columns say a `date`; its time is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
END_MS = 253_402_300_800_000
"""The end of the year 9999, and of its last window: no `datetime` says it."""
DATE, HOUR = "date", "hour"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What a subfolder is named by where the column is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Time from `start_ms` (inclusive) to `end_ms` (exclusive), in milliseconds since the epoch."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"{_moment(self.start_ms)} to {_moment(self.end_ms)}"

    def covers(self, other: Span) -> bool:
        """Whether all of `other` is inside."""
        return self.start_ms <= other.start_ms and other.end_ms <= self.end_ms


def hour_of(moment_ms: int) -> Span:
    """The hour that a moment is in."""
    start_ms = moment_ms // HOUR_MS * HOUR_MS
    return Span(start_ms=start_ms, end_ms=start_ms + HOUR_MS)


def day_of(moment_ms: int) -> Span:
    """The day (UTC) that a moment is in."""
    start_ms = moment_ms // DAY_MS * DAY_MS
    return Span(start_ms=start_ms, end_ms=start_ms + DAY_MS)


def columns_of(folder: str) -> dict[str, str | None]:
    """Column -> value of a subfolder's path; {} when it is not named by columns."""
    found: dict[str, str | None] = {}
    for part in folder.split("/"):
        name, equals, value = part.partition("=")
        if not equals:
            return {}
        found[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return found


def span_of(columns: Mapping[str, str | None]) -> Span | None:
    """The time that the columns of a subfolder stand for; None when they do not say any."""
    try:
        day = datetime.strptime(columns.get(DATE) or "", "%Y-%m-%d").replace(tzinfo=UTC)
        if HOUR not in columns:
            return _span(day, timedelta(days=1))
        return _span(day + timedelta(hours=int(columns[HOUR] or "")), timedelta(hours=1))
    except ValueError:
        return None


def windows_within(folders: Iterable[str], asked: Span) -> list[str]:
    """The subfolders whose time is inside what is asked, sorted."""
    return sorted(
        folder
        for folder in folders
        if (span := span_of(columns_of(folder))) is not None and asked.covers(span)
    )


def widen(asked: Span, *, has_hours: bool) -> Span:
    """The whole windows that what is asked lies in."""
    unit = hour_of if has_hours else day_of
    return Span(
        start_ms=unit(asked.start_ms).start_ms,
        end_ms=unit(max(asked.end_ms - 1, asked.start_ms)).end_ms,
    )


def day_and_hour(moment_ms: int) -> tuple[str, int]:
    """The day (such as 2013-01-31) and the hour, both of UTC, that a moment is in; of `END_MS` the last day,
    and 24.
    """
    if moment_ms == END_MS:
        return day_and_hour(END_MS - 1)[0], 24
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.date().isoformat(), moment.hour


def hour_name(moment_ms: int) -> str:
    """The hour (UTC) that a moment is in, as records of runs have it: `2013-01-31T07`."""
    day, hour = day_and_hour(moment_ms)
    return f"{day}T{hour:02}"


_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_moment(text: str) -> int:
    """Milliseconds since the epoch of ISO 8601; without a time zone it is UTC, a date alone its midnight.

    Raises ValueError.
    """
    if text.isdecimal() and not _ISO_DATE.fullmatch(text):
        raise ValueError(f"{text!r} is no time: write one such as 2026-01-31T12:00:00Z")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write one such as 2026-01-31T12:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _span(start: datetime, length: timedelta) -> Span:
    start_ms = round(start.timestamp() * 1000)
    return Span(start_ms=start_ms, end_ms=start_ms + round(length.total_seconds() * 1000))


def _moment(moment_ms: int) -> str:
    if moment_ms == END_MS:
        return f"{day_and_hour(END_MS - 1)[0]}T24:00:00Z"
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
