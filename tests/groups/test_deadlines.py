"""Deadlines, and the grace given when this process itself was late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.deadlines import Deadlines

LATENESS_MAX_MS = 1_000


def due_at(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    keys = []
    while (key := deadlines.pop_due(now_ms)) is not None:
        keys.append(key)
    return keys


def test_keys_come_due_in_order_and_once() -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    deadlines.set("b", 200, 0)
    deadlines.set("a", 100, 0)
    assert deadlines.next_due_ms == 100
    assert due_at(deadlines, 99) == []
    assert due_at(deadlines, 250) == ["a", "b"]
    assert due_at(deadlines, 10_000) == []
    assert deadlines.next_due_ms is None


def test_setting_a_key_again_moves_it_and_cancelling_forgets_it() -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    deadlines.set("a", 100, 0)
    deadlines.set("a", 100, 90)
    deadlines.set("b", 100, 0)
    deadlines.cancel("b")
    deadlines.cancel("unheard of")
    assert due_at(deadlines, 150) == []
    assert due_at(deadlines, 190) == ["a"]


def test_after_a_stall_nobody_is_due_at_once_and_those_heard_of_meanwhile_stay() -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    for member in ("a", "b", "c"):
        deadlines.set(member, 10_000, 0)
    woken_ms = 15_000
    assert due_at(deadlines, woken_ms) == []
    deadlines.set("a", 10_000, woken_ms + 10)
    assert deadlines.next_due_ms == woken_ms + 5_000
    assert due_at(deadlines, woken_ms + 5_000) == ["b", "c"]


def test_the_grace_after_a_long_sleep_is_no_longer_than_the_timers_own_delay() -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    deadlines.set("a", 10_000, 0)
    assert due_at(deadlines, 3_600_000) == []
    assert deadlines.next_due_ms == 3_610_000


def test_grace_is_given_once_until_the_key_is_set_anew() -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    deadlines.set("a", 10_000, 0)
    assert due_at(deadlines, 20_000) == []
    assert due_at(deadlines, 40_000) == ["a"]
    deadlines.set("a", 10_000, 40_000)
    assert due_at(deadlines, 60_000) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5_000), st.integers(0, 3_000)), max_size=30))
def test_every_key_comes_due_in_the_end(steps: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines[str](LATENESS_MAX_MS)
    now_ms, fired, was_set = 0, set[str](), set[str]()
    for key, delay_ms, passed_ms in steps:
        deadlines.set(key, delay_ms, now_ms)
        was_set.add(key)
        fired.discard(key)
        now_ms += passed_ms
        fired.update(due_at(deadlines, now_ms))
    while deadlines.next_due_ms is not None:
        now_ms = max(now_ms, deadlines.next_due_ms)
        fired.update(due_at(deadlines, now_ms))
    assert fired == was_set
