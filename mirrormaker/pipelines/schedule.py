"""When a pipeline is due. Pure.

A schedule says points in time, whoever is there to heed them. What was missed, while nobody was or while a
run took longer, is made up for by one run: it loads everything that has come meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from mirrormaker.pipelines.run_record import BY_HAND, CUT_OFF, RunRecord, RunState
from mirrormaker.topology.model import RetrySpec, ScheduleSpec

_MINUTE_MS, _DAY_MS = 60_000, 86_400_000


def next_due(schedule: ScheduleSpec, last_ms: int | None, now_ms: int) -> int:
    """When the next run is to start, in milliseconds since the epoch; what has passed means at once.

    `last_ms` is what the last run was due at, None before the first: that of `every` and `continuous` is due
    at once, that of `cron` at its next time. So `cron` is never due without it: before the first run, say
    when the schedule began.
    """
    if schedule.cron is not None:
        return _after(schedule.cron, schedule.zone, now_ms if last_ms is None else last_ms)
    interval_ms = schedule.every_ms or 0
    return now_ms if last_ms is None else last_ms + interval_ms


def due_run(schedule: ScheduleSpec, last_ms: int | None, now_ms: int) -> int | None:
    """The latest point in time that a run is due at by now, None while there is none. Where the last was due
    more than a day from now, the clock has been set back, and the next does not wait for that day.
    """
    if last_ms is not None and last_ms > now_ms + _DAY_MS:
        last_ms = 0
    due_ms = next_due(schedule, last_ms, now_ms)
    if due_ms > now_ms:
        return None
    if schedule.cron is not None:
        return _last(schedule.cron, schedule.zone, due_ms, now_ms)
    interval_ms = schedule.every_ms or 0
    return due_ms + (now_ms - due_ms) // interval_ms * interval_ms if interval_ms else now_ms


def last_due_ms(runs: Iterable[RunRecord]) -> int | None:
    """What the last run was due at that counts for the schedule; None before the first. One by hand that did
    not succeed takes no other's place.
    """
    last = _last_run(runs)
    return None if last is None else last.due_ms


def left_due(runs: Iterable[RunRecord], retry: RetrySpec) -> int | None:
    """What the last run was due at that these tell of, where it ended with its daemon: it was cut short, or
    had attempts left.
    """
    last = _last_run(runs)
    if last is None or last.trigger == BY_HAND or last.state is RunState.SUCCEEDED:
        return None
    return None if _is_given_up(last, retry) else last.due_ms


def was_given_up(runs: Iterable[RunRecord], retry: RetrySpec) -> bool:
    """Whether the last of these runs was, so that somebody has been told."""
    last = _last_run(runs)
    return last is not None and _is_given_up(last, retry)


def _last_run(runs: Iterable[RunRecord]) -> RunRecord | None:
    due = [
        (run.due_ms, run.started_ms, run)
        for run in runs
        if run.due_ms is not None and (run.trigger != BY_HAND or run.state is RunState.SUCCEEDED)
    ]
    return max(due, key=lambda each: each[:2])[2] if due else None


def _is_given_up(run: RunRecord, retry: RetrySpec) -> bool:
    return run.state is RunState.FAILED and run.problem != CUT_OFF and run.attempt >= retry.attempts


def retry_delay_ms(retry: RetrySpec, attempt: int) -> int | None:
    """The wait after the failure of `attempt`, counted from 1; None when that was the last."""
    if attempt >= retry.attempts:
        return None
    return int(min(retry.backoff_ms * (1 << min(attempt - 1, 32)), retry.backoff_max_ms))


def _after(cron: str, zone: str, moment_ms: int) -> int:
    """The next time; where a clock is put back, what it shows twice has been at the first."""
    start = datetime.fromtimestamp(moment_ms / 1000, ZoneInfo(zone))
    times = (int(each.astimezone(UTC).timestamp() * 1000) for each in CronSim(cron, start))
    return next(each for each in times if each > moment_ms)


def _last(cron: str, zone: str, due_ms: int, now_ms: int) -> int:
    """The latest time by now, at least `due_ms`, which is one. Looked for in the last minute first, then ever
    further back: what was missed need not be walked through.
    """
    back_ms = _MINUTE_MS
    while now_ms - back_ms > due_ms and _after(cron, zone, now_ms - back_ms) > now_ms:
        back_ms *= 2
    if now_ms - back_ms > due_ms:
        due_ms = _after(cron, zone, now_ms - back_ms)
    while (later_ms := _after(cron, zone, due_ms)) <= now_ms:
        due_ms = later_ms
    return due_ms
