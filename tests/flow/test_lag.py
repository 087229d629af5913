"""Lag in messages, bytes and seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.lag import NO_LAG, SAMPLES_MAX, EndHistory, Lag


def test_seconds_count_from_when_the_first_waiting_record_was_seen() -> None:
    history = EndHistory()
    history.observe(10, 1_000)
    history.observe(20, 2_000)
    history.observe(20, 3_000)
    history.observe(30, 4_000)
    assert history.known_since_ms(0) == 1_000
    assert history.known_since_ms(10) == 2_000
    assert history.known_since_ms(19) == 2_000
    assert history.known_since_ms(20) == 4_000
    assert history.known_since_ms(30) is None


def test_the_time_that_a_record_says_counts_as_far_as_looks_bear_it_out() -> None:
    history = EndHistory()
    history.observe(10, 1_000, asked_ms=900)
    history.observe(10, 2_000, asked_ms=1_900)
    history.observe(20, 2_500, asked_ms=2_000)
    assert history.absent_until_ms(5) is None
    assert history.absent_until_ms(15) == 1_900
    assert [history.arrived_ms(15, said) for said in (1_000, 2_200, 9_000, None)] == [
        1_900,
        2_200,
        2_500,
        2_500,
    ]
    assert [history.arrived_ms(5, said) for said in (-50_000, 9_000, None)] == [-50_000, 1_000, 1_000]
    assert history.arrived_ms(20, 2_600) is None


def test_a_source_that_shrank_starts_anew() -> None:
    history = EndHistory()
    history.observe(30, 1_000)
    history.observe(5, 2_000)
    assert history.known_since_ms(4) == 2_000
    assert history.known_since_ms(5) is None


def test_a_late_answer_is_no_source_that_shrank() -> None:
    """Several fetches of one partition are under way on a long way, and overtake each other."""
    history = EndHistory()
    history.observe(90, 1_000, asked_ms=900)
    history.observe(110, 1_500, asked_ms=1_100)
    history.observe(100, 2_000, asked_ms=1_050)
    assert history.known_since_ms(50) == 1_000
    assert history.known_since_ms(105) == 1_500
    assert history.arrived_ms(95, -50_000) == 900
    history.observe(100, 3_000, asked_ms=2_000)
    assert history.known_since_ms(50) == 3_000
    assert history.known_since_ms(105) is None


@given(steps=st.lists(st.integers(1, 50), min_size=1, max_size=600), position=st.integers(0, 10_000))
def test_thinned_samples_never_make_a_record_older_than_it_is(steps: list[int], position: int) -> None:
    history, exact, end = EndHistory(), {}, 0
    for now, step in enumerate(steps):
        for offset in range(end, end + step):
            exact[offset] = now
        end += step
        history.observe(end, now)
    assert len(history._ends) <= SAMPLES_MAX
    known = history.known_since_ms(position)
    if position < end:
        assert known is not None
        assert exact[position] <= known
    else:
        assert known is None


def test_what_is_copied_needs_no_samples_any_more() -> None:
    history = EndHistory()
    for end in range(1, 50):
        history.observe(end, end * 10)
    history.forget_before(40)
    assert len(history._ends) == 10
    assert history.known_since_ms(45) == 460


def test_a_total_adds_messages_and_bytes_and_takes_the_oldest() -> None:
    parts = [Lag(messages=3, bytes=30, seconds=1.5), NO_LAG, Lag(messages=4, bytes=50, seconds=0.5)]
    assert Lag.total(parts) == Lag(messages=7, bytes=80, seconds=1.5)
    assert Lag.total([*parts, Lag(messages=1, bytes=None, seconds=None)]) == Lag(
        messages=8, bytes=None, seconds=None
    )
    assert Lag.total([]) == NO_LAG


def test_what_had_nothing_new_to_tell_when_it_was_asked_before_was_absent_until_then() -> None:
    history = EndHistory()
    history.observe(10, 1_000, 900)
    history.observe(20, 5_000, 4_500, unchanged_ms=4_000)
    assert history.absent_until_ms(15) == 4_000
    assert history.arrived_ms(15, 3_000) == 4_000


def test_a_source_that_tells_nothing_new_is_heard_of() -> None:
    history = EndHistory()
    history.observe(10, 1_000, 900)
    history.hear(2_000, 1_900)
    assert history.heard_ms == 2_000
    assert history.absent_until_ms(10) == 1_900
