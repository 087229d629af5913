"""What the figures of runs tell of the hours that were loaded."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mirrormaker.pipelines.loaded_hours import (
    ALL_HOURS,
    HourRange,
    PastRuns,
    decode_past,
    encode_past,
    loaded_hours,
    with_past,
)
from mirrormaker.pipelines.run_record import GarbledRecordError, RunKind, RunRecord, RunState

LOAD = "g/load"
THIRD_HOUR = HourRange(first="2013-01-01T03", end="2013-01-01T04")


def run_of(batches: int, last: int | None, **hours: int) -> RunRecord:
    """A run of the topic t with so many batches up to `last`, and rows by hour (`h03`)."""
    counts: Mapping[str, int] = {f"2013-01-01T{hour[1:]}": rows for hour, rows in hours.items()}
    return RunRecord(
        run="r",
        pipeline="p",
        kind=RunKind.LOAD,
        state=RunState.SUCCEEDED,
        trigger="schedule",
        attempt=1,
        due_ms=None,
        started_ms=1,
        at_ms=2,
        batches=batches,
        hours={"t": counts} if counts else {},
        counted={} if last is None else {LOAD: last},
    )


FIRST, SECOND = run_of(2, 1, h03=5, h04=1), run_of(1, 2, h03=2)


def test_rows_of_an_hour_are_those_of_all_runs() -> None:
    loaded = loaded_hours(PastRuns(), [FIRST, run_of(0, None), SECOND], LOAD, 3)
    assert loaded is not None
    assert loaded.of("t", THIRD_HOUR) == {"2013-01-01T03": 7}
    assert loaded.of("t", ALL_HOURS) == {"2013-01-01T03": 7, "2013-01-01T04": 1}
    assert loaded.of("other", THIRD_HOUR) == {}


@pytest.mark.parametrize("runs", [[], [FIRST], [SECOND], [run_of(2, 3, h03=5)]])
def test_figures_that_lack_a_batch_tell_nothing(runs: list[RunRecord]) -> None:
    assert loaded_hours(PastRuns(), runs, LOAD, 3) is None


def test_figures_of_another_checkpoint_are_left_out() -> None:
    assert loaded_hours(PastRuns(), [FIRST, SECOND], "h/load", 3) is None
    assert loaded_hours(PastRuns(batches={"h": 9}), [FIRST, SECOND], LOAD, 3) is not None


def test_of_runs_that_are_past_the_hours_after_their_last_are_known() -> None:
    past = with_past(with_past(PastRuns(), [run_of(2, 1, h01=1, h02=9)]), [run_of(0, 1), run_of(1, 2, h01=4)])
    assert decode_past(encode_past(past)) == past
    loaded = loaded_hours(past, [run_of(1, 3, h02=3, h03=5)], LOAD, 4)
    assert loaded is not None
    assert loaded.of("t", THIRD_HOUR) == {"2013-01-01T03": 5}
    assert loaded.of("t", HourRange(first="2013-01-01T02", end="2013-01-01T04")) is None
    assert loaded.of("t", ALL_HOURS) is None


@pytest.mark.parametrize("line", ["", "{", "[]", '{"run": "r1"}', '{"past": {"more": 1}}', '{"past": 5}'])
def test_other_lines_do_not_say_what_past_runs_had(line: str) -> None:
    with pytest.raises(GarbledRecordError):
        decode_past(line)
