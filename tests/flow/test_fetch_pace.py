"""How far apart fetches are: by how long answers take, and how many partitions they bring something of."""

from __future__ import annotations

import pytest

from mirrormaker.flow.fetch_pace import INTERVAL_MAX_MS, FetchPace


def pace_after(parts: int, answer_ms: int, every_ms: int, *, seconds: int = 2) -> FetchPace:
    """One whose answers have been like that for a while, the last of them at the end of it."""
    pace = FetchPace()
    for now_ms in range(0, seconds * 1000 + 1, every_ms):
        pace.answered(parts, answer_ms, now_ms)
    return pace


def test_the_first_fetches_follow_each_other_at_once() -> None:
    pace = FetchPace()
    assert pace.wait_ms(0, 0) == 0
    pace.answered(100, 5, 5)
    assert pace.wait_ms(0, 5) < 0


def test_a_source_that_takes_its_time_though_much_comes_is_left_alone_for_as_long_again() -> None:
    pace = pace_after(parts=60, answer_ms=6, every_ms=10)
    assert pace.wait_ms(1000, 1006) == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize(
    ("parts", "answer_ms", "every_ms"),
    [(1, 500, 500), (1, 90, 100), (2, 1, 1), (100, 150, 150), (8, 20, 20)],
    ids=["waits for records", "slow records", "idle nodes", "long way", "catching up"],
)
def test_whoever_has_waited_for_an_answer_asks_at_once(parts: int, answer_ms: int, every_ms: int) -> None:
    pace = pace_after(parts, answer_ms, every_ms)
    assert pace.wait_ms(1000, 1000 + answer_ms) <= 1


def test_fetches_are_not_so_far_apart_that_delays_grow_with_what_comes() -> None:
    pace = pace_after(parts=100, answer_ms=15, every_ms=15)
    assert pace.wait_ms(1000, 1015) == pytest.approx(INTERVAL_MAX_MS - 15)


def test_a_rush_is_forgotten_once_less_comes() -> None:
    pace = pace_after(parts=60, answer_ms=6, every_ms=10)
    for now_ms in range(2000, 4001, 100):
        pace.answered(1, 6, now_ms)
    assert pace.wait_ms(4000, 4006) < 0


def test_answers_within_one_millisecond_count_together() -> None:
    pace = FetchPace()
    for now_ms in range(2000):
        for _ in range(4):
            pace.answered(1, 1, now_ms)
    assert pace.wait_ms(0, 0) == pytest.approx(2, abs=0.1)
