"""When a source deletes what is not copied yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.timing.risk import WINDOW_MS, Cause, Course, Retention, Risk, Standing

HOUR_MS = 3_600_000


def standing(
    at_ms: int,
    position: int,
    end: int,
    *,
    start: int = 0,
    oldest_ms: int | None = None,
    size: float | None = 100,
) -> Standing:
    return Standing(
        at_ms=at_ms, position=position, start=start, end=end, oldest_ms=oldest_ms, bytes_per_offset=size
    )


def course(*standings: Standing) -> Course:
    made = Course()
    for each in standings:
        made.observe(each)
    return made


def test_a_partition_that_stands_loses_its_first_record_when_that_is_old_enough() -> None:
    stands = course(*(standing(at, 5, 10, oldest_ms=-HOUR_MS // 2) for at in (0, 5_000, 10_000)))
    risk = stands.risk(Retention(ms=HOUR_MS))
    assert risk == Risk(seconds=(HOUR_MS / 2 - 10_000) / 1000, cause=Cause.AGE)


def test_one_that_comes_forward_slower_than_time_goes_loses_later() -> None:
    half_speed = course(*(standing(at, at, 10**9, oldest_ms=at // 2) for at in (0, 10_000, 20_000)))
    risk = half_speed.risk(Retention(ms=HOUR_MS))
    assert risk is not None
    assert risk.seconds == pytest.approx((HOUR_MS - 10_000) / 1000 * 2)


@pytest.mark.parametrize("speed", [1, 2, 10])
def test_one_that_comes_forward_as_fast_as_time_goes_loses_nothing(speed: int) -> None:
    catches_up = course(
        *(standing(at, at, 10**9, oldest_ms=at * speed - HOUR_MS // 2) for at in (0, 10_000, 20_000))
    )
    assert catches_up.risk(Retention(ms=HOUR_MS)) is None


def test_times_that_go_back_are_no_pace() -> None:
    """Of two producers whose times are apart, the second one's record waits now."""
    back = course(standing(0, 0, 100, oldest_ms=0), standing(1_000, 10, 100, oldest_ms=-HOUR_MS))
    week_ms = 7 * 24 * HOUR_MS
    risk = back.risk(Retention(ms=week_ms))
    assert risk == Risk(seconds=(week_ms - HOUR_MS - 1_000) / 1000, cause=Cause.AGE)


def test_what_is_past_its_time_may_go_any_moment_however_fast_copying_is() -> None:
    late = course(*(standing(at, at, 10**9, oldest_ms=at * 5 - 3 * HOUR_MS) for at in (0, 10_000)))
    assert late.risk(Retention(ms=HOUR_MS)) == Risk(seconds=0.0, cause=Cause.AGE)


def test_a_source_bounded_by_size_loses_what_new_records_push_out() -> None:
    grows = course(*(standing(at, 0, at // 10) for at in (0, 10_000, 20_000)))  # 100 offsets a second
    risk = grows.risk(Retention(bytes=1_200_000))  # 12,000 offsets; 2,000 are there
    assert risk == Risk(seconds=100.0, cause=Cause.SIZE)
    full = course(*(standing(at, 0, 20_000) for at in (0, 10_000)))
    assert full.risk(Retention(bytes=1_200_000)) == Risk(seconds=0.0, cause=Cause.SIZE)


def test_the_nearest_of_several_counts() -> None:
    both = course(*(standing(at, 0, at // 10, oldest_ms=0) for at in (0, 10_000, 20_000)))
    risk = both.risk(Retention(ms=50_000, bytes=1_200_000))
    assert risk == Risk(seconds=30.0, cause=Cause.AGE)


def test_where_nothing_is_told_the_pace_of_the_sources_start_counts() -> None:
    leaps = course(
        standing(0, 1_000, 5_000, start=0),
        standing(10_000, 1_000, 5_000, start=200),
        standing(20_000, 1_000, 5_000, start=400),
    )
    assert leaps.risk(None) == Risk(seconds=30.0, cause=Cause.SEEN)
    assert leaps.risk(Retention()) is None, "it keeps everything: somebody deleted by hand"
    stands = course(*(standing(at, 1_000, 5_000, start=0) for at in (0, 10_000)))
    assert stands.risk(None) is None


def test_nothing_is_in_danger_where_nothing_waits() -> None:
    assert Course().risk(Retention(ms=1)) is None
    assert course(standing(0, 10, 10, oldest_ms=-HOUR_MS)).risk(Retention(ms=1)) is None


def test_only_the_last_minute_tells_the_pace() -> None:
    waits = [standing(at, 0, 10**9, oldest_ms=0) for at in range(0, HOUR_MS, 60_000)]
    now = HOUR_MS
    runs = [standing(now + at, at, 10**9, oldest_ms=at * 2) for at in range(0, WINDOW_MS + 1_000, 1_000)]
    assert course(*waits, *runs).risk(Retention(ms=3 * HOUR_MS)) is None


@given(
    steps=st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 500), st.integers(0, 500)), max_size=200)
)
def test_however_it_moves_little_is_kept_and_no_risk_is_negative(steps: list[tuple[int, int, int]]) -> None:
    made, at, position, end = Course(), 0, 0, 0
    for passed, copied, came in steps:
        at, end = at + passed, end + came
        position = min(position + copied, end)
        made.observe(standing(at, position, end, start=position // 2, oldest_ms=at - 1_000))
        for retention in (None, Retention(ms=2_000, bytes=5_000)):
            risk = made.risk(retention)
            assert risk is None or risk.seconds >= 0
    assert len(made._standings) <= WINDOW_MS / 1_000 + 3
