"""What runs of a pipeline have done, as one page of HTML that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from mirrormaker.pipelines.run_record import RunRecord, RunState, add_counts
from mirrormaker.topology.model import PipelineSpec

RUNS_SHOWN = 50
HOURS_SHOWN = 72
_WIDTH, _HEIGHT = 900, 180
_COLORS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#718096")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 960px; color: #1a202c; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem;
border-bottom: 1px solid #e2e8f0; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.failed { color: #c53030; } .incomplete { color: #b7791f; } svg { width: 100%; height: auto; }
"""


def render_report(pipeline: PipelineSpec, runs: Sequence[RunRecord], now_ms: int) -> str:
    """The page."""
    hours: dict[str, dict[str, int]] = {}
    for run in runs:
        hours = add_counts(hours, run.hours)
    parts = [
        f"<h1>{escape(pipeline.name)}</h1>",
        f"<p>{escape(_summary(pipeline, runs, now_ms))}</p>",
        "<h2>Rows by hour</h2>",
        _bars(hours),
        "<h2>How old rows were when they were loaded</h2>",
        _lag_line(runs),
        "<h2>Completeness</h2>",
        _completeness(runs),
        "<h2>Runs</h2>",
        _table(runs),
    ]
    title = f"Pipeline {escape(pipeline.name)}"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def lag_ms(run: RunRecord) -> int | None:
    """How long after the last hour that it read rows of a run ended; None while that says nothing."""
    hours = [hour for counts in run.hours.values() for hour in counts]
    if not hours or run.ended_ms is None:
        return None
    last = datetime.strptime(max(hours), "%Y-%m-%dT%H").replace(tzinfo=UTC)
    return max(run.ended_ms - int(last.timestamp() * 1000), 0)


def _summary(pipeline: PipelineSpec, runs: Sequence[RunRecord], now_ms: int) -> str:
    ended = sum(run.state is RunState.SUCCEEDED for run in runs)
    failed = sum(run.state is RunState.FAILED for run in runs)
    rows = sum(run.rows_read for run in runs)
    owner = f"; ask {pipeline.owner}" if pipeline.owner else ""
    return f"{_moment(now_ms)}: {ended} runs ended well, {failed} failed; {rows:,} rows read{owner}."


def _bars(hours: dict[str, dict[str, int]]) -> str:
    times = sorted({hour for counts in hours.values() for hour in counts})[-HOURS_SHOWN:]
    if not times:
        return "<p>None yet.</p>"
    totals = [sum(counts.get(time, 0) for counts in hours.values()) for time in times]
    step, scale = _WIDTH / len(times), _HEIGHT / max(totals)
    shapes = []
    for column, time in enumerate(times):
        top = float(_HEIGHT)
        for number, (topic, counts) in enumerate(sorted(hours.items())):
            if count := counts.get(time, 0):
                height = count * scale
                top -= height
                place = (
                    f'x="{column * step:.1f}" y="{top:.1f}" width="{step * 0.85:.1f}" height="{height:.1f}"'
                )
                told = f"<title>{escape(topic)} {time}: {count:,} rows</title>"
                color = _COLORS[number % len(_COLORS)]
                shapes.append(f'<rect {place} fill="{color}">{told}</rect>')
    legend = " ".join(
        f'<span style="color:{_COLORS[number % len(_COLORS)]}">&#9632; {escape(topic)}</span>'
        for number, topic in enumerate(sorted(hours))
    )
    return _svg(shapes, times[0], times[-1], f"{max(totals):,}") + f"<p>{legend}</p>"


def _lag_line(runs: Sequence[RunRecord]) -> str:
    points = [(run.started_ms, lag) for run in runs[-RUNS_SHOWN:] if (lag := lag_ms(run)) is not None]
    if not points:
        return "<p>None yet.</p>"
    first, last = points[0][0], points[-1][0]
    highest = max(max(lag for _, lag in points), 1)
    places = [
        ((at - first) / max(last - first, 1) * _WIDTH, _HEIGHT - lag / highest * _HEIGHT)
        for at, lag in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLORS[0]}"/>' for x, y in places]
    shapes = [f'<polyline points="{line}" fill="none" stroke="{_COLORS[0]}"/>', *dots]
    return _svg(shapes, _moment(first), _moment(last), f"{highest / 3_600_000:,.1f} h")


def _completeness(runs: Sequence[RunRecord]) -> str:
    marked = [run for run in runs[-RUNS_SHOWN:] if run.incomplete]
    if not marked:
        return "<p>No run has been marked incomplete.</p>"
    items = "".join(
        f"<li>{_moment(run.started_ms)}: {escape('; '.join(run.incomplete[:5]))}</li>" for run in marked
    )
    return f'<ul class="incomplete">{items}</ul>'


def _table(runs: Sequence[RunRecord]) -> str:
    heads = ("began", "kind", "state", "seconds", "read", "written", "quarantine", "problem")
    rows = "".join(_row(run) for run in reversed(runs[-RUNS_SHOWN:]))
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>"


def _row(run: RunRecord) -> str:
    seconds = "" if run.ended_ms is None else f"{(run.ended_ms - run.started_ms) / 1000:.1f}"
    numbers = (
        seconds,
        f"{run.rows_read:,}",
        f"{sum(run.rows_written.values()):,}",
        f"{run.rows_quarantined:,}",
    )
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    state = f'<td class="{run.state.value}">{run.state.value}</td>'
    problem = f"<td>{escape(run.problem or '')}</td>"
    return f"<tr><td>{_moment(run.started_ms)}</td><td>{run.kind.value}</td>{state}{cells}{problem}</tr>"


def _svg(shapes: Sequence[str], first: str, last: str, highest: str) -> str:
    text = (
        f'<text x="0" y="{_HEIGHT + 18}" font-size="12">{first}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 18}" font-size="12" text-anchor="end">{last}</text>'
        f'<text x="0" y="-4" font-size="12">{highest}</text>'
    )
    return f'<svg viewBox="0 -20 {_WIDTH} {_HEIGHT + 45}">{"".join(shapes)}{text}</svg>'


def _moment(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
