"""Lines over logarithmic axes, as an SVG file that reads well on light and on dark pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 120, 36, 52
COLOURS = ("#1f77b4", "#d9730d", "#2a9d5c", "#c23b4b", "#8256b5", "#8a6d3b")
LABEL_DISTANCE = 14
"""Between the names at the ends of two lines."""


class Series(NamedTuple):
    """One line: its name, and points in the order of their x; all values are positive."""

    name: str
    points: Sequence[tuple[float, float]]


class _Axis(NamedTuple):
    """Whole powers of ten from `low` to `high`, drawn from pixel `start` to pixel `end`."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def plot(series: Sequence[Series], *, across: str, up: str) -> str:
    """The whole file; `across` and `up` name the axes."""
    points = [point for each in series for point in each.points]
    x = _Axis.of([value for value, _ in points], LEFT, WIDTH - RIGHT)
    y = _Axis.of([value for _, value in points], HEIGHT - BOTTOM, TOP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#777">',
        *_grid(x, y),
        _text((x.start + x.end) / 2, HEIGHT - 12, across, anchor="middle"),
        _text(12, 16, up),
        *_lines(series, x, y),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    line = '<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}" stroke="#999" stroke-opacity=".35"/>'
    for tick in x.ticks:
        place = x.place(tick)
        yield line.format(place, y.start, place, y.end)
        yield _text(place, y.start + 18, f"{tick:,.0f}", anchor="middle")
    for tick in y.ticks:
        place = y.place(tick)
        yield line.format(x.start, place, x.end, place)
        yield _text(x.start - 8, place + 4, f"{tick:g}", anchor="end")


def _lines(series: Sequence[Series], x: _Axis, y: _Axis) -> Iterator[str]:
    """Each line with its points, and its name where it ends; names that would meet make room."""
    ends = sorted((y.place(each.points[-1][1]), index) for index, each in enumerate(series))
    below = -math.inf
    labels: dict[int, float] = {}
    for end, index in ends:
        below = labels[index] = max(end, below + LABEL_DISTANCE)
    for index, each in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        places = [(x.place(across), y.place(up)) for across, up in each.points]
        path = "L".join(f"{left:.1f} {top:.1f}" for left, top in places)
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for left, top in places:
            yield f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{colour}"/>'
        yield _text(places[-1][0] + 10, labels[index] + 4, each.name, colour=colour)


def _text(left: float, top: float, text: str, *, anchor: str = "start", colour: str = "#777") -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
