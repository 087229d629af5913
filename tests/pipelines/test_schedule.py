"""When pipelines are due."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.pipelines import schedule as schedule_module
from mirrormaker.pipelines.run_record import BY_HAND, CUT_OFF, RunRecord, RunState
from mirrormaker.pipelines.schedule import (
    due_run,
    last_due_ms,
    left_due,
    next_due,
    retry_delay_ms,
    was_given_up,
)
from mirrormaker.topology.model import RetrySpec, ScheduleSpec
from tests.pipelines.test_run_log import RUN

HOURLY = ScheduleSpec(cron="5 * * * *")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_the_first_run_of_a_cron_schedule_is_at_its_next_time() -> None:
    assert next_due(HOURLY, None, at("2026-01-01T10:07")) == at("2026-01-01T11:05")
    assert due_run(HOURLY, None, at("2026-01-01T10:07")) is None


def test_what_was_missed_is_made_up_for_by_one_run_of_the_latest_time() -> None:
    last = at("2026-01-01T10:05")
    assert due_run(HOURLY, last, at("2026-01-01T11:04")) is None
    assert due_run(HOURLY, last, at("2026-01-01T14:30")) == at("2026-01-01T14:05")
    every = ScheduleSpec(every_ms=3_600_000)
    assert due_run(every, last, at("2026-01-01T14:30")) == at("2026-01-01T14:05")
    assert due_run(every, None, last) == last


@pytest.mark.parametrize("schedule", [HOURLY, ScheduleSpec(every_ms=3_600_000)])
def test_a_clock_that_is_set_back_does_not_stop_a_schedule(schedule: ScheduleSpec) -> None:
    now = at("2026-01-01T10:07")
    due = due_run(schedule, at("2031-05-01T10:05"), now)
    assert due is not None
    assert now - 3_600_000 < due <= now
    assert due_run(schedule, at("2026-01-01T10:20"), now) is None, "the clock of another daemon"


def test_a_cron_schedule_keeps_to_the_clock_of_its_zone() -> None:
    daily = ScheduleSpec(cron="30 6 * * *", zone="Europe/Berlin")
    winter, summer = at("2026-03-28T06:00"), at("2026-03-29T06:00")
    assert next_due(daily, winter, winter) == at("2026-03-29T04:30")
    assert next_due(daily, at("2026-03-27T06:00"), winter) == at("2026-03-28T05:30")
    assert next_due(daily, summer, summer) == at("2026-03-30T04:30")


def test_a_time_that_a_clock_shows_twice_is_not_due_again_at_the_second() -> None:
    nightly = ScheduleSpec(cron="30 2 * * *", zone="Europe/Berlin")
    first, between = at("2026-10-25T00:30"), at("2026-10-25T01:23")
    assert next_due(nightly, at("2026-10-24T12:00"), between) == first
    assert next_due(nightly, between, between) == at("2026-10-26T01:30")


@given(
    cron=st.sampled_from(
        ["* * * * *", "*/7 1-3 * * *", "30 2 * * *", "0 0 * * 0", "15 4 1 * *", "0 0 29 2 *"]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    last=st.integers(at("2026-03-01T00:00"), at("2026-12-01T00:00")),
    passed=st.integers(0, 2 * 86_400_000),
)
def test_the_time_that_is_due_is_the_last_of_those_that_were(
    cron: str, zone: str, last: int, passed: int
) -> None:
    schedule, now = ScheduleSpec(cron=cron, zone=zone), last + passed
    walked, following = None, next_due(schedule, last, now)
    while following <= now:
        walked, following = following, next_due(schedule, following, now)
    assert due_run(schedule, last, now) == walked


def test_years_of_minutes_that_were_missed_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    after = schedule_module._after

    def counted(cron: str, zone: str, moment_ms: int) -> int:
        looks.append(moment_ms)
        return after(cron, zone, moment_ms)

    monkeypatch.setattr(schedule_module, "_after", counted)
    minutely = ScheduleSpec(cron="* * * * *")
    assert due_run(minutely, at("2020-01-01T00:00"), at("2026-01-01T00:00")) == at("2026-01-01T00:00")
    assert len(looks) < 10


@given(last=st.integers(0, 10**12), passed=st.integers(0, 10**10), interval=st.integers(1, 10**9))
def test_a_run_is_due_by_now_and_at_most_an_interval_ago(last: int, passed: int, interval: int) -> None:
    due = due_run(ScheduleSpec(every_ms=interval), last, last + passed)
    if due is None:
        assert passed < interval
    else:
        assert last + passed - interval < due <= last + passed
        assert (due - last) % interval == 0


@pytest.mark.parametrize(("attempt", "delay"), [(1, 1000), (2, 2000), (3, 4000), (4, 5000), (5, None)])
def test_waits_double_up_to_the_longest_and_end_with_the_attempts(attempt: int, delay: int | None) -> None:
    retry = RetrySpec(attempts=5, backoff_ms=1000, backoff_max_ms=5000)
    assert retry_delay_ms(retry, attempt) == delay


FAILED = replace(RUN, state=RunState.FAILED, problem="no luck", attempt=1, due_ms=5)


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ([], None),
        ([replace(FAILED, due_ms=None)], None),
        ([FAILED], 5),
        ([replace(FAILED, attempt=3)], None),
        ([replace(FAILED, attempt=3, problem=CUT_OFF)], 5),
        ([replace(RUN, state=RunState.STOPPED)], 5),
        ([replace(RUN, state=RunState.SUCCEEDED)], None),
        ([FAILED, replace(RUN, started_ms=20, state=RunState.SUCCEEDED)], None),
        ([FAILED, replace(RUN, due_ms=6, state=RunState.SUCCEEDED)], None),
        ([FAILED, replace(FAILED, due_ms=6, trigger=BY_HAND)], 5),
        ([FAILED, replace(RUN, due_ms=6, trigger=BY_HAND, state=RunState.SUCCEEDED)], None),
    ],
)
def test_what_a_run_was_due_at_is_left_where_it_ended_with_its_daemon(
    runs: list[RunRecord], left: int | None
) -> None:
    assert left_due(runs, RetrySpec(attempts=3)) == left


def test_a_run_by_hand_takes_the_place_of_one_that_was_missed_where_it_succeeds() -> None:
    before = replace(RUN, state=RunState.SUCCEEDED, due_ms=5)
    failed, succeeded = (
        replace(RUN, state=state, due_ms=9, trigger=BY_HAND)
        for state in (RunState.FAILED, RunState.SUCCEEDED)
    )
    assert last_due_ms([]) is last_due_ms([failed]) is None
    assert (last_due_ms([before, failed]), last_due_ms([before, succeeded])) == (5, 9)


def test_a_failure_that_has_been_told_is_known_to_the_next_daemon() -> None:
    given_up, retry = replace(FAILED, attempt=3), RetrySpec(attempts=3)
    assert was_given_up([given_up], retry)
    assert was_given_up([given_up, replace(FAILED, due_ms=9, trigger=BY_HAND)], retry)
    assert not was_given_up([], retry)
    assert not was_given_up([FAILED], retry)
    assert not was_given_up([given_up, replace(RUN, due_ms=9, state=RunState.SUCCEEDED)], retry)
