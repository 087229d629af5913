"""Limits by the time of the week, each window on the clock of its own zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from mirrormaker.flow.bandwidth.schedule import Schedule
from mirrormaker.topology.model import Day, Window

WORKDAYS = tuple(Day)[:5]


def moment(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def test_without_windows_one_limit_holds_always() -> None:
    assert Schedule(bytes_per_second=7).limit_at(0) == 7
    assert Schedule().limit_at(moment("2026-07-01T12:00")) is None


@pytest.mark.parametrize(
    ("at", "limit"),
    [
        ("2026-01-05T07:59:59", None),
        ("2026-01-05T08:00:00", 100),
        ("2026-01-05T17:59:59", 100),
        ("2026-01-05T18:00:00", None),
        ("2026-01-10T12:00:00", None),  # a Saturday
    ],
)
def test_a_window_holds_from_its_first_minute_to_its_last(at: str, limit: int | None) -> None:
    window = Window(bytes_per_second=100, days=WORKDAYS, start_minute=480, end_minute=1080)
    assert Schedule(windows=(window,)).limit_at(moment(at)) == limit


def test_the_clock_is_that_of_the_windows_zone_in_summer_and_in_winter() -> None:
    window = Window(bytes_per_second=100, start_minute=540, end_minute=600, zone="Europe/Oslo")
    schedule = Schedule(bytes_per_second=9, windows=(window,))
    for day in ("2026-01-15", "2026-07-15", "2026-03-29", "2026-10-25"):
        assert schedule.limit_at(moment(f"{day}T08:59", "Europe/Oslo")) == 9
        assert schedule.limit_at(moment(f"{day}T09:00", "Europe/Oslo")) == 100
    assert schedule.limit_at(moment("2026-01-15T08:30")) == 100
    assert schedule.limit_at(moment("2026-07-15T08:30")) == 9


def test_the_hour_that_is_skipped_is_skipped_and_the_one_that_comes_twice_counts_twice() -> None:
    window = Window(bytes_per_second=0, start_minute=120, end_minute=180, zone="Europe/Oslo")
    schedule = Schedule(windows=(window,))
    spring = [schedule.limit_at(moment("2026-03-29T00:00") + minute * 60_000) for minute in range(0, 240, 30)]
    assert spring == [None] * 8
    autumn = [schedule.limit_at(moment("2026-10-24T23:00") + minute * 60_000) for minute in range(0, 240, 30)]
    assert autumn.count(0) == 4


def test_the_first_window_that_holds_counts() -> None:
    night = Window(bytes_per_second=1, start_minute=1320, end_minute=360)
    always = Window(bytes_per_second=2)
    schedule = Schedule(windows=(night, always))
    assert schedule.limit_at(moment("2026-01-05T23:00")) == 1
    assert schedule.limit_at(moment("2026-01-05T05:59")) == 1
    assert schedule.limit_at(moment("2026-01-05T06:00")) == 2
