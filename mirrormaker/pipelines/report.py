"""What runs of a pipeline have done, as one page of HTML that needs nothing else. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from mirrormaker.pipelines.plots import (
    Cell,
    Point,
    color_of,
    legend,
    line,
    short_number,
    stacked_bars,
    strip,
)
from mirrormaker.pipelines.run_record import RunRecord, RunState, add_counts
from mirrormaker.topology.model import Completeness, PipelineSpec

RUNS_SHOWN = 50
BARS_MAX = 168
"""Hours of a week; what is longer is shown by days, then by weeks."""
_HOUR = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}T\d{2}", re.ASCII)
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_WIDTHS = ((_HOUR_MS, "hour"), (_DAY_MS, "day"), (7 * _DAY_MS, "week"), (28 * _DAY_MS, "four weeks"))
_STATES = {
    RunState.SUCCEEDED: "#2f855a",
    RunState.FAILED: "#c53030",
    RunState.STOPPED: "#718096",
    RunState.RUNNING: "#2b6cb0",
    RunState.WAITING: "#805ad5",
}
_INCOMPLETE = "#d69e2e"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 980px; padding: 0 1rem;
color: #1a202c; }
h1 { margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
.about { color: #4a5568; margin: 0; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.cards div { border: 1px solid #e2e8f0; border-radius: 6px; padding: .5rem .9rem; min-width: 6.5rem; }
.cards b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.cards span { color: #4a5568; font-size: .85rem; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: #4a5568; }
.legend { margin: 0; font-size: .85rem; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .75rem; height: .75rem; margin-right: .35rem; border-radius: 2px; }
.runs { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .87rem; }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e2e8f0; vertical-align: top; }
td { white-space: nowrap; } td.text { white-space: normal; overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.failed, .bad { color: #c53030; } .incomplete { color: #975a16; }
"""


def render_report(pipeline: PipelineSpec, runs: Sequence[RunRecord], now_ms: int) -> str:
    """The page."""
    hours: dict[str, dict[str, int]] = {}
    for run in runs:
        hours = add_counts(hours, _placed(run.hours))
    bins = bin_hours(hours)
    parts = [
        f"<h1>{escape(pipeline.name)}</h1>",
        f'<p class="about">{escape(_about(pipeline, now_ms))}</p>',
        _cards(runs),
        f"<h2>Rows by {bins.unit} of their time</h2>",
        _rows(bins),
        "<h2>How old the newest rows of a run were when it ended</h2>",
        _lags(runs),
        "<h2>How long runs took</h2>",
        _times(runs),
        "<h2>Completeness</h2>",
        _completeness(pipeline, runs),
        "<h2>Runs</h2>",
        _table(runs),
    ]
    title = f"Pipeline {escape(pipeline.name)}"
    shape = '<meta name="viewport" content="width=device-width">'
    head = f'<meta charset="utf-8">{shape}<title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def lag_ms(run: RunRecord) -> int | None:
    """How long after the last hour that it read rows of a run ended; None while that says nothing."""
    hours = [hour for counts in _placed(run.hours).values() for hour in counts]
    if not hours or run.ended_ms is None:
        return None
    return max(run.ended_ms - hour_ms(max(hours)), 0)


def hour_ms(hour: str) -> int:
    """When an hour (`2013-01-31T07`) begins."""
    return int(datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp() * 1000)


def _placed(hours: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Those of the years 1 to 9999: records may say others, as where they have microseconds for a time."""
    return {
        topic: {hour: count for hour, count in counts.items() if _HOUR.fullmatch(hour)}
        for topic, counts in hours.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Rows by topic and by spans of time, from the first to the last without a gap."""

    unit: str
    width_ms: int
    times_ms: Sequence[int]
    counts: Mapping[str, Mapping[int, int]]


def bin_hours(hours: Mapping[str, Mapping[str, int]]) -> Bins:
    """Hours, or days or weeks where there were too many; the latest where even those are."""
    moments = [hour_ms(hour) for counts in hours.values() for hour in counts]
    first, last = min(moments, default=0), max(moments, default=0)
    fitting = (each for each in _WIDTHS if last // each[0] - first // each[0] < BARS_MAX)
    width_ms, unit = next(fitting, _WIDTHS[-1])
    end = last // width_ms
    start = max(first // width_ms, end - BARS_MAX + 1)
    counts: dict[str, dict[int, int]] = {}
    for topic, by_hour in sorted(hours.items()):
        mine = counts.setdefault(topic, {})
        for hour, count in by_hour.items():
            at = hour_ms(hour) // width_ms * width_ms
            mine[at] = mine.get(at, 0) + count
    times = [number * width_ms for number in range(start, end + 1)] if moments else []
    return Bins(unit=unit, width_ms=width_ms, times_ms=times, counts=counts)


def _about(pipeline: PipelineSpec, now_ms: int) -> str:
    owner = f" Owner: {pipeline.owner}." if pipeline.owner else ""
    reads = (
        f"reads {', '.join(pipeline.topics.include)} of {pipeline.cluster}" if pipeline.topics else "a job"
    )
    return f"{reads[0].upper()}{reads[1:]}.{owner} As of {_moment(now_ms)} (all times are UTC)."


def _cards(runs: Sequence[RunRecord]) -> str:
    failed = sum(run.state is RunState.FAILED for run in runs)
    quarantined = sum(run.rows_quarantined for run in runs)
    last = runs[-1].state.value if runs else "none"
    told = [
        (last, "last run", last == RunState.FAILED.value),
        (f"{sum(run.state is RunState.SUCCEEDED for run in runs):,}", "runs ended well", False),
        (f"{failed:,}", "runs failed", bool(failed)),
        (short_number(sum(run.rows_read for run in runs)), "rows read", False),
        (short_number(sum(sum(run.rows_written.values()) for run in runs)), "rows written", False),
        (short_number(quarantined), "in quarantine", bool(quarantined)),
    ]
    if late := sum(run.rows_late for run in runs):
        told.append((short_number(late), "came too late", True))
    cards = (
        f"<div><b{' class=bad' if is_bad else ''}>{number}</b><span>{name}</span></div>"
        for number, name, is_bad in told
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _rows(bins: Bins) -> str:
    if not bins.times_ms:
        return "<p>None yet.</p>"
    names = {topic: color_of(number) for number, topic in enumerate(bins.counts)}
    return stacked_bars(bins.times_ms, bins.width_ms, bins.counts) + legend(names)


def _lags(runs: Sequence[RunRecord]) -> str:
    points = [
        Point(
            at_ms=run.started_ms,
            value=lag,
            told=f"{_moment(run.started_ms)}: {_span(lag)}",
            color=_STATES[run.state],
        )
        for run in runs[-RUNS_SHOWN:]
        if (lag := lag_ms(run)) is not None
    ]
    return line(points) if points else "<p>None yet.</p>"


def _times(runs: Sequence[RunRecord]) -> str:
    points = [
        Point(
            at_ms=run.started_ms,
            value=run.ended_ms - run.started_ms,
            told=f"{_moment(run.started_ms)}: {run.state.value} after {_span(run.ended_ms - run.started_ms)}",
            color=_STATES[run.state],
        )
        for run in runs[-RUNS_SHOWN:]
        if run.ended_ms is not None
    ]
    if not points:
        return "<p>None yet.</p>"
    there = {run.state for run in runs[-RUNS_SHOWN:]}
    return line(points) + legend({state.value: _STATES[state] for state in RunState if state in there})


def _completeness(pipeline: PipelineSpec, runs: Sequence[RunRecord]) -> str:
    if pipeline.require is Completeness.NOTHING and not any(run.incomplete for run in runs):
        return "<p>Runs do not ask for it (<code>require</code>).</p>"
    shown = [run for run in runs[-RUNS_SHOWN:] if run.ended_ms is not None]
    cells = [Cell(color=_completeness_color(run), told=_completeness_line(run)) for run in shown]
    names = {"complete": _STATES[RunState.SUCCEEDED], "incomplete": _INCOMPLETE, "failed": "#c53030"}
    items = "".join(
        f"<li>{_moment(run.started_ms)}: {escape('; '.join(run.incomplete[:5]))}</li>"
        for run in reversed(shown)
        if run.incomplete
    )
    listed = f'<ul class="incomplete">{items}</ul>' if items else ""
    return strip(cells) + legend(names) + listed


def _completeness_color(run: RunRecord) -> str:
    return _INCOMPLETE if run.incomplete else _STATES[run.state]


def _completeness_line(run: RunRecord) -> str:
    what = f"incomplete: {'; '.join(run.incomplete[:5])}" if run.incomplete else run.state.value
    return f"{_moment(run.started_ms)}: {what}"


def _table(runs: Sequence[RunRecord]) -> str:
    heads = "<th>began</th><th>kind</th><th>state</th>"
    heads += "".join(f'<th class="number">{head}</th>' for head in ("took", "read", "written", "quarantine"))
    rows = "".join(_row(run) for run in reversed(runs[-RUNS_SHOWN:]))
    return f'<div class="runs"><table><tr>{heads}<th>problem</th></tr>{rows}</table></div>'


def _row(run: RunRecord) -> str:
    numbers = (
        "" if run.ended_ms is None else _span(run.ended_ms - run.started_ms),
        f"{run.rows_read:,}",
        f"{sum(run.rows_written.values()):,}",
        f"{run.rows_quarantined:,}",
    )
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    state = f'<td class="{run.state.value}">{run.state.value}</td>'
    problem = f'<td class="text">{escape(run.problem or "")}</td>'
    return f"<tr><td>{_moment(run.started_ms)}</td><td>{run.kind.value}</td>{state}{cells}{problem}</tr>"


def _span(span_ms: float) -> str:
    for size, unit in ((_DAY_MS, "d"), (_HOUR_MS, "h"), (60_000, "min")):
        if span_ms >= 2 * size:
            return f"{span_ms / size:,.1f} {unit}"
    return f"{span_ms / 1000:,.1f} s"


def _moment(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
