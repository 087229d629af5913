"""What is kept of runs."""

from __future__ import annotations

import resource
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Event, Thread

import pytest

from mirrormaker.pipelines import run_log
from mirrormaker.pipelines.plots import short_number
from mirrormaker.pipelines.report import BARS_MAX, bin_hours, render_report
from mirrormaker.pipelines.run_log import PipelineBusyError, PipelineFolder
from mirrormaker.pipelines.run_record import (
    RunKind,
    RunRecord,
    RunState,
    counted_batches,
    decode_record,
    encode_record,
    kept_figures,
)
from mirrormaker.topology.model import PipelineName, PipelineSpec
from tests.conftest import until
from tests.daemon.conftest import mirrormaker

RUN = RunRecord(
    run="r1",
    pipeline="p",
    kind=RunKind.LOAD,
    state=RunState.RUNNING,
    trigger="schedule",
    attempt=1,
    due_ms=5,
    started_ms=10,
    at_ms=11,
    offsets={"t": {"0": (1, 5)}},
    rows_written={"0-parquet": 4},
    hours={"t": {"2013-01-01T07": 4}},
    windows=("a",),
    incomplete=("jfk: <b> is missing",),
)


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    kept = PipelineFolder(tmp_path, PipelineName("p"))
    with kept.locked():
        kept.note(RUN)
    return kept


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_record(encode_record(RUN)) == RUN


def test_figures_of_a_job_are_kept_whatever_it_returns() -> None:
    told = {"rows": 3, "mean": float("nan"), date(2013, 1, 1): {("EWR", "UA"): (1, 2.5)}, "lock": object}
    figures = kept_figures(told)
    known = {"rows": 3, "mean": "nan", "2013-01-01": {"('EWR', 'UA')": [1, 2.5]}, "lock": str(object)}
    assert figures == known
    assert decode_record(encode_record(replace(RUN, figures=figures))).figures == known


def test_what_was_said_last_of_a_run_holds(folder: PipelineFolder) -> None:
    done = replace(RUN, state=RunState.SUCCEEDED, ended_ms=20)
    other = replace(RUN, run="r2", started_ms=30)
    folder.note(other)
    folder.note(done)
    assert folder.runs() == [done, other]
    assert folder.last_run() == other


def test_the_last_run_is_that_which_was_noted_last_though_a_clock_was_ahead(
    folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = replace(RUN, run="r9", started_ms=4_000_000_000_000, state=RunState.SUCCEEDED)
    now = [replace(ahead, run=f"s{number}", started_ms=20 + number) for number in range(5)]
    for run in [ahead, *now]:
        folder.note(run)
    assert folder.last_run() == now[-1]
    assert folder.runs() == [RUN, ahead, *now]
    monkeypatch.setattr(run_log, "RUNS_KEPT", 3)
    monkeypatch.setattr(run_log, "_LINES_MAX", 6)
    folder.note(now[-1])
    assert folder.runs() == now[-3:]


def test_a_line_that_a_crash_cut_off_is_passed_over(folder: PipelineFolder) -> None:
    file = folder.path / "runs.jsonl"
    file.write_text(file.read_text()[:-20])
    assert folder.runs() == []
    folder.note(RUN)
    assert folder.runs() == [RUN]


def test_old_runs_are_forgotten(folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "RUNS_KEPT", 3)
    monkeypatch.setattr(run_log, "_LINES_MAX", 6)
    for number in range(20):
        ended = replace(RUN, run=f"r{number:02}", started_ms=number, state=RunState.FAILED)
        folder.note(replace(ended, batches=2, counted={"g/load": 2 * number + 1}))
    runs = folder.runs()
    assert runs[-1].run == "r19"
    assert 3 <= len(runs) <= 6
    past = folder.past_runs()
    assert past.last_hours == {"t": "2013-01-01T07"}
    assert past.batches["g"] + sum(run.batches for run in runs) == 40


def test_only_one_runs_a_pipeline(folder: PipelineFolder) -> None:
    assert not folder.is_locked()
    with folder.locked():
        assert folder.is_locked()
        with pytest.raises(PipelineBusyError, match="runs already"), folder.locked():
            pass
    assert not folder.is_locked()


def test_who_waits_for_a_run_is_known_to_it_and_goes_on_once_it_is_over(folder: PipelineFolder) -> None:
    begun = Event()

    def wait() -> None:
        with folder.locked(lambda: True):
            begun.set()

    with folder.locked():
        assert not folder.is_wanted()
        waiting = Thread(target=wait)
        waiting.start()
        until(folder.is_wanted)
        assert not begun.is_set()
    assert begun.wait(30)
    waiting.join()
    with folder.locked():
        assert not folder.is_wanted()


def test_the_page_of_a_pipeline_needs_nothing_else(folder: PipelineFolder) -> None:
    ended = replace(RUN, state=RunState.SUCCEEDED, ended_ms=1_400_000_000_000)
    page = render_report(PipelineSpec(name=PipelineName("p"), owner="me"), [ended], 0)
    assert "<rect" in page
    assert "<circle" in page
    assert "jfk: &lt;b&gt; is missing" in page
    assert "http" not in page


def test_half_of_a_surrogate_pair_that_a_run_has_told_is_on_the_page(tmp_path: Path) -> None:
    """As the words of an exception may have it."""
    file, page = tmp_path / "topology.yaml", tmp_path / "page.html"
    file.write_text(
        "clusters: {a: {bootstrap: ['127.0.0.1:1']}}\npipelines: [{name: p, job: 'a:b'}]\ndata_dir: data\n"
    )
    folder = PipelineFolder(tmp_path / "data", PipelineName("p"))
    with folder.locked():
        folder.note(replace(RUN, state=RunState.FAILED, ended_ms=1, problem="no column \ud83d"))
    done = mirrormaker("pipeline", "report", str(file), "p", "--to", str(page))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no column \\ud83d" in page.read_text()


def test_records_of_years_that_no_calendar_has_are_not_in_the_plots(folder: PipelineFolder) -> None:
    hours = {"t": {"2013-01-01T07": 1, "+57742-02-03T04": 2, "-0005-01-01T00": 3}}
    ended = replace(RUN, state=RunState.SUCCEEDED, ended_ms=1_400_000_000_000, hours=hours)
    page = render_report(PipelineSpec(name=PipelineName("p")), [ended], 0)
    assert "t, 01-01 07:00: 1 rows" in page
    far = replace(ended, hours={"t": {"+57742-02-03T04": 2}})
    assert "None yet." in render_report(PipelineSpec(name=PipelineName("p")), [far], 0)


def test_numbers_are_shown_in_the_unit_that_they_round_to() -> None:
    shown = [short_number(value) for value in (0, 999, 1000, 999_499, 999_999, 1_500_000)]
    assert shown == ["0", "999", "1 k", "999 k", "1 M", "1.5 M"]


def test_bars_are_hours_days_or_weeks_without_a_gap() -> None:
    by_hour = bin_hours({"t": {"2013-01-01T07": 4, "2013-01-02T09": 1}, "s": {"2013-01-01T07": 2}})
    assert (by_hour.unit, len(by_hour.times_ms)) == ("hour", 27)
    assert [sum(counts.values()) for counts in by_hour.counts.values()] == [2, 5]
    by_day = bin_hours({"t": {"2013-01-01T07": 4, "2013-01-01T23": 3, "2013-03-01T00": 1}})
    assert (by_day.unit, len(by_day.times_ms)) == ("day", 60)
    assert by_day.counts["t"][by_day.times_ms[0]] == 7
    latest = bin_hours({"t": {"1970-01-01T00": 4, "2026-01-01T00": 3}})
    assert (latest.unit, len(latest.times_ms)) == ("four weeks", BARS_MAX)
    assert bin_hours({}).times_ms == []


def test_runs_that_say_nothing_more_have_failed(folder: PipelineFolder) -> None:
    done = replace(RUN, run="r2", started_ms=30, state=RunState.SUCCEEDED, ended_ms=40)
    with folder.locked():
        folder.note(done)
        (ended,) = folder.end_cut_off("killed")
        assert folder.end_cut_off("killed") == []
    assert folder.runs() == [ended, done]
    assert (ended.state, ended.problem, ended.ended_ms) == (RunState.FAILED, "killed", RUN.at_ms)


def test_a_line_for_which_there_is_no_room_is_told_and_no_later_one_is_lost(folder: PipelineFolder) -> None:
    size = (folder.path / "runs.jsonl").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    later = replace(RUN, run="r2", started_ms=30)
    with folder.locked():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                folder.note(later)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (folder.path / "runs.jsonl").stat().st_size == size + 20, "a part of it is there"
        folder.note(later)
    assert folder.runs() == [RUN, later]


def test_batches_are_counted_in_one_run_alone() -> None:
    before = [replace(RUN, counted={"g/load": 3}), replace(RUN, counted={"g/load": 7, "h/load": 1})]
    assert counted_batches(before) == {"g/load": 7, "h/load": 1}
