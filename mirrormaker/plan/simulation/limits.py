"""Limits over time: what holds at a moment of a simulation, and when that changes. Pure.

Time is in milliseconds since the start of the simulation, which is the midnight that begins a Monday, UTC; so
the days of the week of limits with time windows fall where they do in a real week.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mirrormaker.topology.model import DAY_MINUTES, Day, Outage, Window

START = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = DAY_MINUTES * MINUTE_MS
UNLIMITED = float("inf")
_DAYS = list(Day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit with windows in which another holds, and outages in which nothing passes."""

    bytes_per_second: float = UNLIMITED
    windows: tuple[Window, ...] = ()
    outages: tuple[Outage, ...] = ()

    def at(self, now_ms: float) -> float:
        """What holds at a moment."""
        if any(one.after_ms <= now_ms < one.after_ms + one.lasts_ms for one in self.outages):
            return 0.0
        for window in self.windows:
            moment = (START + timedelta(milliseconds=now_ms)).astimezone(ZoneInfo(window.zone))
            if window.holds(_DAYS[moment.weekday()], moment.hour * 60 + moment.minute):
                return window.bytes_per_second
        return self.bytes_per_second

    def changes(self, span_ms: int) -> Iterator[int]:
        """Moments at which something else may hold."""
        for outage in self.outages:
            yield outage.after_ms
            yield outage.after_ms + outage.lasts_ms
        for window in self.windows:
            yield from _edges(window, span_ms)


def changes_of(limits: Iterable[Limit], span_ms: int) -> list[int]:
    """When any of the limits changes, within the span, sorted."""
    moments = {moment for limit in limits for moment in limit.changes(span_ms)}
    return sorted(moment for moment in moments if 0 < moment < span_ms)


def _edges(window: Window, span_ms: int) -> Iterator[int]:
    """A time of the day that comes twice as clocks go back is an edge each time. One that is skipped as they
    go forward is none: what it would have changed changes as they do.
    """
    zone = ZoneInfo(window.zone)
    for day in range(-1, span_ms // DAY_MS + 2):
        midnight = START.replace(tzinfo=None) + timedelta(days=day)
        for minute in (window.start_minute, window.end_minute):
            local = midnight + timedelta(minutes=minute)
            yield from {_since_start(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)}
        yield from _clock_changes(zone, START + timedelta(days=day))


def _clock_changes(zone: ZoneInfo, begin: datetime) -> Iterator[int]:
    """When clocks of the zone are set, within a day from `begin` on."""

    def differs(minute: int) -> bool:
        return (begin + timedelta(minutes=minute)).astimezone(zone).utcoffset() != before

    before = begin.astimezone(zone).utcoffset()
    if differs(DAY_MINUTES):
        yield _since_start(begin) + bisect_left(range(DAY_MINUTES), True, key=differs) * MINUTE_MS


def _since_start(moment: datetime) -> int:
    return round((moment - START).total_seconds() * 1000)
