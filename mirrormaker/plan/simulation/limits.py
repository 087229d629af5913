"""Limits over time: what holds at a moment of a simulation, and when that changes. Pure.

Time is in milliseconds since the start of the simulation, which is the midnight that begins a Monday, UTC; so
the days of the week of limits with time windows fall where they do in a real week.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mirrormaker.topology.model import Day, Outage, Window

START = datetime(2026, 6, 1, tzinfo=UTC)
HOUR_MS = 3_600_000
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
    zone = ZoneInfo(window.zone)
    day = START.astimezone(zone).replace(hour=0, minute=0) - timedelta(days=1)
    end = START + timedelta(milliseconds=span_ms)
    while day <= end:
        for minute in (window.start_minute, window.end_minute):
            edge = (day.replace(tzinfo=None) + timedelta(minutes=minute)).replace(tzinfo=zone)
            yield round((edge - START).total_seconds() * 1000)
        day = (day.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone)
