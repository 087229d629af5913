"""Latencies in buckets, and what is read from them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.timing.histogram import (
    BUCKETS,
    GROWTH,
    Histogram,
    RecentHistogram,
    bucket_of,
    percentile_ms,
    upper_ms,
)

DAY_MS = 86_400_000


@given(latency_ms=st.floats(1.01, 10 * DAY_MS))
def test_a_bucket_ends_above_what_it_holds_and_begins_below_it(latency_ms: float) -> None:
    bucket = bucket_of(latency_ms)
    assert latency_ms <= upper_ms(bucket) * 1.000001
    assert latency_ms > upper_ms(bucket) / GROWTH * 0.999999


def test_what_is_too_short_or_too_long_has_a_bucket_too() -> None:
    assert bucket_of(-5_000) == bucket_of(0) == bucket_of(1) == 0
    assert bucket_of(1e15) == BUCKETS - 1


@given(
    latencies=st.lists(st.integers(1, 10 * DAY_MS), min_size=1, max_size=200),
    part=st.sampled_from([0.5, 0.99]),
)
def test_percentiles_are_right_within_a_bucket(latencies: list[int], part: float) -> None:
    histogram = Histogram()
    for latency_ms in latencies:
        histogram.record(latency_ms, 1)
    found = percentile_ms(histogram.sparse(), part)
    exact = sorted(latencies)[max(-(-len(latencies) * part // 1), 1).__int__() - 1]
    assert found is not None
    assert exact * 0.999999 <= found <= max(exact * GROWTH * 1.000001, 1)


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile_ms({}, 0.5) is None


def test_records_count_each() -> None:
    histogram = Histogram()
    histogram.record(10, 99)
    histogram.record(10_000, 1)
    assert (histogram.total, histogram.seconds) == (100, 99 * 0.01 + 10)
    assert percentile_ms(histogram.sparse(), 0.5) == upper_ms(bucket_of(10))
    assert percentile_ms(histogram.sparse(), 0.999) == upper_ms(bucket_of(10_000))


def test_what_is_older_than_five_minutes_is_forgotten() -> None:
    recent = RecentHistogram(0)
    recent.record(10, 1, 30_000)
    recent.record(20, 1, 90_000)
    assert recent.sparse(299_999) == {bucket_of(10): 1, bucket_of(20): 1}
    assert recent.sparse(300_000) == {bucket_of(20): 1}
    assert recent.sparse(3_600_000) == {}
    recent.record(30, 2, 3_600_001)
    assert recent.sparse(3_600_001) == {bucket_of(30): 2}
