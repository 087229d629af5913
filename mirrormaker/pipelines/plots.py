"""Plots as SVG that stands in a page: bars by time, a line of points, a strip of cells. Pure.

Whatever is drawn has a `<title>`, which browsers show under the pointer, so no number has to be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

COLORS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#718096", "#319795", "#975a16")
_WIDTH, _HEIGHT = 860, 180
_LEFT, _TOP, _BOTTOM, _RIGHT = 64, 10, 26, 40
_TICKS = 4
_LABELS = 6
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_UNITS = ((_DAY_MS, "d"), (_HOUR_MS, "h"), (_MINUTE_MS, "min"), (1000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thing at a time, in milliseconds since the epoch."""

    at_ms: int
    value: float
    told: str
    color: str = COLORS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One of a strip."""

    color: str
    told: str


def stacked_bars(times_ms: Sequence[int], width_ms: int, series: Mapping[str, Mapping[int, int]]) -> str:
    """A bar for each time, of one part for each series, the first at the bottom."""
    totals = [sum(counts.get(at, 0) for counts in series.values()) for at in times_ms]
    axis = _Axis.of(max(totals, default=0), 1, "")
    step = _WIDTH / max(len(times_ms), 1)
    shapes = []
    for column, at in enumerate(times_ms):
        below = 0
        for number, (name, counts) in enumerate(series.items()):
            if count := counts.get(at, 0):
                y, height = axis.y(below + count), axis.y(below) - axis.y(below + count)
                place = f'x="{_LEFT + column * step + step * 0.06:.1f}" y="{y:.1f}"'
                size = f'width="{step * 0.88:.1f}" height="{height:.1f}"'
                told = f"{name}, {_moment(at, width_ms)}: {count:,} rows"
                shapes.append(f'<rect {place} {size} fill="{color_of(number)}">{_title(told)}</rect>')
                below += count
    shown = [(_LEFT + (column + 0.5) * step, _moment(at, width_ms)) for column, at in enumerate(times_ms)]
    return _plot([*axis.lines(), *shapes, *_labels(shown)])


def line(points: Sequence[Point]) -> str:
    """Spans of time, in milliseconds, over the time."""
    points = sorted(points, key=lambda point: point.at_ms)
    highest = max((point.value for point in points), default=0)
    unit_ms, unit = next((each for each in _UNITS if highest >= 2 * each[0]), _UNITS[-1])
    axis = _Axis.of(highest, unit_ms, f" {unit}")
    first, last = points[0].at_ms, points[-1].at_ms
    span = max(last - first, 1)
    places = [
        (_LEFT + (point.at_ms - first) / span * (_WIDTH - 8) + 4, axis.y(point.value)) for point in points
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    shapes = [f'<polyline points="{path}" fill="none" stroke="#a0aec0" stroke-width="1.5"/>']
    shapes += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{point.color}">{_title(point.told)}</circle>'
        for (x, y), point in zip(places, points, strict=True)
    ]
    shown = [(x, _moment(point.at_ms, 0)) for (x, _), point in zip(places, points, strict=True)]
    return _plot([*axis.lines(), *shapes, *_labels(shown)])


def strip(cells: Sequence[Cell]) -> str:
    """Cells side by side, the oldest first."""
    step = min(_WIDTH / max(len(cells), 1), 24)
    shapes = [
        f'<rect x="{_LEFT + number * step:.1f}" y="2" width="{step - 2:.1f}" height="22" rx="2"'
        f' fill="{cell.color}">{_title(cell.told)}</rect>'
        for number, cell in enumerate(cells)
    ]
    return f'<svg viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} 26" role="img">{"".join(shapes)}</svg>'


def legend(names: Mapping[str, str]) -> str:
    """What colors stand for: name -> color."""
    parts = (
        f'<span><i style="background:{color}"></i>{escape(name)}</span>' for name, color in names.items()
    )
    return f'<p class="legend">{"".join(parts)}</p>'


def color_of(number: int) -> str:
    """Of the series of that number."""
    return COLORS[number % len(COLORS)]


def short_number(value: float) -> str:
    """Such as 1.5 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size * 0.9995:  # which is shown as the next unit
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """From 0 to `top` in steps, all of them multiples of `unit`."""

    top: float
    step: float
    unit: float
    name: str

    @classmethod
    def of(cls, highest: float, unit: float, name: str) -> _Axis:
        step = _round_step(max(highest / unit, 1) / _TICKS) * unit
        return cls(top=math.ceil(max(highest, step) / step) * step, step=step, unit=unit, name=name)

    def y(self, value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / self.top)

    def lines(self) -> list[str]:
        found = []
        for number in range(round(self.top / self.step) + 1):
            value = number * self.step
            y, said = self.y(value), short_number(value / self.unit) + (self.name if value else "")
            found.append(
                f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{said}</text>'
            )
        return found


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least this much."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * digit for digit in (1, 2, 5, 10) if size * digit >= least * 0.999)


def _labels(places: Sequence[tuple[float, str]]) -> list[str]:
    """Below the plot; as many as there is room for."""
    every = -(-len(places) // _LABELS)
    return [
        f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{text}</text>'
        for x, text in places[::every]
    ]


def _plot(shapes: Sequence[str]) -> str:
    height = _TOP + _HEIGHT + _BOTTOM
    return f'<svg viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {height}" role="img">{"".join(shapes)}</svg>'


def _title(told: str) -> str:
    return f"<title>{escape(told)}</title>"


def _moment(at_ms: int, width_ms: int) -> str:
    shape = "%Y-%m-%d" if width_ms >= _DAY_MS else "%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(shape)
