"""Windows of tables."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from mirrormaker.pipelines import command_lines
from mirrormaker.pipelines.runner import RunRequest
from mirrormaker.pipelines.sinks.sink import span_condition
from mirrormaker.pipelines.windows import (
    DAY_MS,
    END_MS,
    HOUR_MS,
    Span,
    columns_of,
    day_of,
    hour_name,
    hour_of,
    parse_moment,
    span_of,
    widen,
    windows_within,
)


def test_a_subfolder_says_its_columns_and_its_time() -> None:
    columns = columns_of("topic=a%3Ab/date=2013-01-31/hour=7")
    assert columns == {"topic": "a:b", "date": "2013-01-31", "hour": "7"}
    start = parse_moment("2013-01-31T07:00:00Z")
    assert span_of(columns) == Span(start_ms=start, end_ms=start + HOUR_MS)
    day = parse_moment("2013-01-31")
    assert span_of({"date": "2013-01-31"}) == Span(start_ms=day, end_ms=day + DAY_MS)


@pytest.mark.parametrize(
    "folder", ["x", "topic=a", "date=__HIVE_DEFAULT_PARTITION__", "date=x", "date=2013-01-31/hour=x"]
)
def test_other_subfolders_have_no_time(folder: str) -> None:
    assert span_of(columns_of(folder)) is None


def test_windows_are_inside_what_is_asked_or_left_alone() -> None:
    folders = [f"date=2013-01-01/hour={hour}" for hour in range(24)] + ["date=2013-01-01", "other"]
    asked = Span(start_ms=parse_moment("2013-01-01T03:00Z"), end_ms=parse_moment("2013-01-01T05:00Z"))
    assert windows_within(folders, asked) == ["date=2013-01-01/hour=3", "date=2013-01-01/hour=4"]


@given(start=st.integers(0, 10**12), length=st.integers(1, 10**9), has_hours=st.booleans())
def test_whole_windows_are_the_smallest_around_what_is_asked(
    start: int, length: int, has_hours: bool
) -> None:
    asked = Span(start_ms=start, end_ms=start + length)
    unit = HOUR_MS if has_hours else DAY_MS
    wide = widen(asked, has_hours=has_hours)
    assert wide.covers(asked)
    assert wide.start_ms % unit == wide.end_ms % unit == 0
    assert asked.start_ms - wide.start_ms < unit
    assert wide.end_ms - asked.end_ms < unit
    assert wide.covers(hour_of(start))


@pytest.mark.parametrize("text", ["yesterday", "20130131120000", "2013-13-01"])
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2026-01-01", "9999-12-31T23:59:59Z", ("2026-01-01T00", "9999-12-31T24")),
        ("0001-01-01T00:00:00+05:00", "2026-01-01", ("0001-01-01T00", "2026-01-01T00")),
        ("9999-12-31T12:00", "9999-12-31T13:00", ("9999-12-31T00", "9999-12-31T24")),
        ("9999-12-31T23:30-08:00", "9999-12-31T23:50-08:00", None),
    ],
)
def test_a_reload_is_of_the_years_that_windows_are_of(
    start: str, end: str, hours: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RunRequest] = []
    monkeypatch.setattr(command_lines, "_carry_out", lambda options, request: asked.append(request))
    options = argparse.Namespace(start_ms=parse_moment(start), end_ms=parse_moment(end))
    if hours is None:
        with pytest.raises(ConfigurationError, match="no windows of that time"):
            command_lines._reload(options)
        return
    command_lines._reload(options)
    assert asked[0].reload is not None
    span = widen(asked[0].reload, has_hours=False)
    assert (hour_name(span.start_ms), hour_name(span.end_ms)) == hours


def test_the_last_day_has_an_end_that_can_be_said() -> None:
    day = day_of(END_MS - 1)
    assert str(day) == "9999-12-31T00:00:00Z to 9999-12-31T24:00:00Z"
    assert windows_within(["date=9999-12-31", "date=9999-12-31/hour=23"], day) == [
        "date=9999-12-31",
        "date=9999-12-31/hour=23",
    ]
    assert span_condition(day, ("date",), str) == "date >= '9999-12-31' AND date <= '9999-12-31'"
    assert span_condition(hour_of(END_MS - 1), ("date", "hour"), str).endswith(
        "(date < '9999-12-31' OR (date = '9999-12-31' AND hour < 24))"
    )
