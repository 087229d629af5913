"""Percentiles of many values in little memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.latencies import Latencies


def counted(*times_ms: float) -> Latencies:
    latencies = Latencies()
    for time_ms in times_ms:
        latencies.record(time_ms)
    return latencies


def test_nothing_took_no_time() -> None:
    nothing = Latencies()
    assert (nothing.count, nothing.mean_ms, nothing.max_ms, nothing.percentile_ms(99)) == (0, 0, 0, 0)


def test_the_mean_and_the_largest_are_exact() -> None:
    latencies = counted(1, 2, 6)
    assert (latencies.count, latencies.mean_ms, latencies.max_ms) == (3, 3, 6)


@given(st.lists(st.floats(0.01, 100_000), min_size=1, max_size=200), st.floats(0.1, 100))
def test_percentiles_are_true_to_a_hundredth(times_ms: list[float], percent: float) -> None:
    rank = max(0, -(-len(times_ms) * percent // 100) - 1)
    expected = sorted(times_ms)[min(int(rank), len(times_ms) - 1)]
    assert counted(*times_ms).percentile_ms(percent) == pytest.approx(expected, rel=0.011)
