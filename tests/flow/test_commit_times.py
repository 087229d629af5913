"""When transactions of a bucket end."""

from __future__ import annotations

from mirrormaker.flow.commit_times import PUT_OFF_MAX_MS, STALLS, CommitTimes
from mirrormaker.flow.transaction_steps import TransactionTerms

TERMS = TransactionTerms(interval_ms=1_000, phase_ms=250)


def after_a_commit_of(committing_ms: int, opening_ms: int) -> tuple[CommitTimes, int]:
    """With the next transaction just open, and when that was."""
    times = CommitTimes(TERMS, 0)
    times.asked(0)
    times.opened(0)
    times.closing(1_250)
    times.committed(1_250 + committing_ms)
    asked_ms = 1_250 + committing_ms
    times.asked(asked_ms)
    times.opened(asked_ms + opening_ms)
    return times, asked_ms + opening_ms


def test_commits_are_due_at_multiples_of_the_interval_in_turns() -> None:
    times = CommitTimes(TERMS, 100)
    assert times.due_ms == 250
    times.rest(250)
    assert times.due_ms == 1_250


def test_what_a_transaction_is_opened_for_gets_half_an_interval() -> None:
    times = CommitTimes(TERMS, 100)
    times.asked(100)
    times.opened(200)
    assert times.due_ms == 700


def test_the_first_commit_is_not_put_off_longer_than_opening_took() -> None:
    times = CommitTimes(TERMS, 0)
    times.asked(0)
    times.opened(40)
    assert not times.put_off(40 + STALLS * 40)
    assert times.put_off(40 + STALLS * 40 - 1)


def test_a_commit_is_put_off_by_what_the_last_one_took() -> None:
    times, open_ms = after_a_commit_of(45, 15)
    until_ms = open_ms + STALLS * 60
    assert times.put_off(until_ms - 100)
    assert times.due_ms == until_ms - 85, "looked at again"
    assert times.put_off(until_ms - 5)
    assert times.due_ms == until_ms
    assert not times.put_off(until_ms)


def test_a_commit_is_not_put_off_for_ever() -> None:
    times, open_ms = after_a_commit_of(5_000, 5_000)
    assert times.put_off(open_ms + PUT_OFF_MAX_MS - 1)
    assert times.due_ms == open_ms + PUT_OFF_MAX_MS
    assert not times.put_off(open_ms + PUT_OFF_MAX_MS)


def test_near_commits_are_not_put_off() -> None:
    times, open_ms = after_a_commit_of(5, 1)
    assert not times.put_off(open_ms + TERMS.interval_ms // 2)
