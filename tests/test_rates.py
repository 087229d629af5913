"""Rates over windows, and buckets of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rates import RateWindows, TokenBucket, WindowedRate

WINDOWS = RateWindows(count=11, size_ms=1000)


def test_a_burst_is_averaged_over_all_windows() -> None:
    rate = WindowedRate(WINDOWS)
    rate.record(10_000, 5_000)
    assert rate.per_second(5_000) == 1_000
    assert rate.throttle_ms(1_000, 5_000) == 0
    assert rate.throttle_ms(500, 5_000) == 10_000


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = WindowedRate(WINDOWS)
    rate.record(10_000, 0)
    assert not rate.is_empty(10_999)
    assert rate.is_empty(11_000)
    assert rate.per_second(11_000) == 0


def test_an_amount_can_be_taken_back() -> None:
    rate = WindowedRate(WINDOWS)
    rate.record(700, 0)
    rate.record(300, 0)
    rate.record(-300, 0)
    assert rate.per_second(0) == 70


def test_a_single_window_is_a_rate_too() -> None:
    rate = WindowedRate(RateWindows(count=1, size_ms=1000))
    rate.record(500, 0)
    assert rate.per_second(0) == 500


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 50_000)), min_size=1, max_size=60),
    st.integers(1, 100_000),
)
def test_whoever_rests_as_told_stays_near_the_bound(steps: list[tuple[int, int]], bound: int) -> None:
    """However amounts and pauses fall: a client that rests for its throttle time after each amount has had,
    once it rested, no more than the bound on average since its windows began, plus one amount.
    """
    rate, now_ms, total = WindowedRate(WINDOWS), 0, 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        total += amount
        now_ms += rate.throttle_ms(bound, now_ms)
        windows_ms = WINDOWS.count * WINDOWS.size_ms
        assert total <= bound * (now_ms + windows_ms) / 1000 * 1.2 + 50_000


def test_a_bucket_can_be_overdrawn_and_fills_again() -> None:
    bucket = TokenBucket(rate=2, burst=10, now_ms=0)
    bucket.spend(10, 0)
    assert bucket.throttle_ms(0) == 0
    bucket.spend(4, 0)
    assert bucket.throttle_ms(0) == 2_000
    assert bucket.throttle_ms(1_500) == 500
    assert bucket.throttle_ms(2_000) == 0


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(rate=2, burst=10, now_ms=0)
    bucket.spend(11, 1_000_000)
    assert bucket.throttle_ms(1_000_000) == 500


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_slow_buckets_fill_too(rate: float) -> None:
    bucket = TokenBucket(rate=rate, burst=1, now_ms=0)
    bucket.spend(2, 0)
    assert bucket.throttle_ms(0) == 1000 / rate
