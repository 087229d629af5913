"""`windows` of a route or a link, and the speeds beside them."""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

from mirrormaker.topology.document import suggestion
from mirrormaker.topology.kinds.collections import ListOf
from mirrormaker.topology.kinds.kind import Checked, UnreadableError
from mirrormaker.topology.kinds.numbers import Size
from mirrormaker.topology.kinds.records import Given, Key, Record
from mirrormaker.topology.kinds.scalars import Choice, Text
from mirrormaker.topology.kinds.times import ClockTime
from mirrormaker.topology.model import DAY_MINUTES, Day, Window

SPEED_MAX = 1 << 40
SPEED = Size(1, SPEED_MAX)


def _check_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        hint = suggestion(zone, available_timezones()) or "; one is 'Europe/Berlin'"
        raise UnreadableError(f"{zone!r} is not a time zone{hint}") from None
    return zone


def _check_span(window: Window, given: Given) -> Window:
    start, end = window.start_minute, window.end_minute
    if start >= end and start % DAY_MINUTES == end % DAY_MINUTES:
        given.place.report("starts and ends at the same time: a whole day is from 00:00 to 24:00")
    return window


ZONE = Checked(Text("name of a time zone"), _check_zone)
WINDOWS = ListOf(
    Record(
        Window,
        {
            "days": ListOf(Choice(Day), empty=False),
            "from": Key(ClockTime(), "start_minute"),
            "to": Key(ClockTime(), "end_minute"),
            "zone": ZONE,
            "bytes_per_second": Size(0, SPEED_MAX),
        },
        check=_check_span,
    )
)
