"""Times, and what they are cut into."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mirrormaker.audit.windows import TimeWindow, format_time, parse_span, parse_time

NOON_MS = 1_767_268_800_000


def test_times_and_spans_are_read_as_people_write_them() -> None:
    assert parse_time("2026-01-01T12:00:00Z") == parse_time("2026-01-01T13:00:00+01:00") == NOON_MS
    assert parse_time(str(NOON_MS)) == NOON_MS
    assert parse_time("1970-01-01T00:00:00Z") == parse_time("0") == 0
    assert [parse_span(text) for text in ("5m", "90s", "1.5 h", "250ms")] == [300_000, 90_000, 5_400_000, 250]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("noon", "'noon' is not a time such as 2026-01-31T12:00:00Z"),
        ("2026-01-01T12:00:00", "2026-01-01T12:00:00 has no time zone"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z is before 1970"),
        ("1970-01-01T00:00:00+01:00", "is before 1970"),
        ("9" * 19, "is not a time"),
        ("9" * 4400, "is not a time"),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_time(text)


@pytest.mark.parametrize("text", ["5", "m", "5 minutes", "0s", "-1s", "9" * 400 + "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_span(text)


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        TimeWindow(from_ms=NOON_MS, to_ms=NOON_MS)


def test_times_are_shown_in_utc() -> None:
    window = TimeWindow(from_ms=NOON_MS, to_ms=NOON_MS + 1)
    assert str(window) == "2026-01-01T12:00:00Z to 2026-01-01T12:00:00.001Z"
    assert format_time(None) == "-"
    assert format_time(NOON_MS * 1000) == f"{NOON_MS}000 ms"


@given(start=some.integers(0, 10_000), length=some.integers(1, 10_000), span=some.integers(10, 3_000))
def test_windows_are_the_whole_time_and_begin_at_multiples_of_their_span(
    start: int, length: int, span: int
) -> None:
    windows = list(TimeWindow(from_ms=start, to_ms=start + length).cut(span, 0, 0))
    assert (windows[0].from_ms, windows[-1].to_ms) == (start, start + length)
    for before, after in pairwise(windows):
        assert before.to_ms == after.from_ms
        assert after.from_ms is not None
        assert after.from_ms % span == 0


def test_windows_without_an_end_reach_the_last_record() -> None:
    windows = list(TimeWindow().cut(100, 250, 420))
    assert [window.from_ms for window in windows] == [200, 300, 400]
    assert windows[-1].to_ms == 500


def test_too_many_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 10000 windows"):
        list(TimeWindow(from_ms=0, to_ms=NOON_MS).cut(1000, 0, 0))
