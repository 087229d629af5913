"""A forecast for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mirrormaker.plan.simulation.forecast import Forecast, PlaceForecast, RouteForecast
from mirrormaker.sizes import format_bytes

VERSION = 1
_ROUTE_TITLES = (
    "ROUTE",
    "PRODUCED/S",
    "COPIED/S",
    "PEAK/S",
    "LAG BYTES",
    "LAG",
    "AT",
    "CATCH-UP",
    "AT THE END",
)
_PLACE_TITLES = ("PLACE", "SIZE/S", "COPIED/S", "PEAK/S", "USED")


def forecast_document(forecast: Forecast) -> dict[str, Any]:
    """The forecast as plain data."""
    return {
        "version": VERSION,
        "span_ms": forecast.span_ms,
        "routes": [asdict(route) for route in forecast.routes],
        "places": [{**asdict(place), "used": place.used} for place in forecast.places],
    }


def render_forecast(forecast: Forecast) -> Iterator[str]:
    """The forecast in lines: routes, places, and what goes wrong."""
    yield from _table([_ROUTE_TITLES, *map(_route_row, forecast.routes)])
    yield ""
    yield from _table([_PLACE_TITLES, *map(_place_row, forecast.places)])
    yield ""
    warnings = [line for route in forecast.routes for line in _warnings(route)]
    yield from (f"! {line}" for line in warnings)
    yield f"{len(forecast.routes):,} routes over {_span(forecast.span_ms / 1000)}, {len(warnings):,} warnings"


def is_well(forecast: Forecast) -> bool:
    """Whether nothing goes wrong."""
    return not any(_warnings(route) for route in forecast.routes)


def _warnings(route: RouteForecast) -> list[str]:
    lines = []
    if route.too_late_at_seconds is not None:
        at = _span(route.too_late_at_seconds)
        lines.append(f"{route.route}: from {at} on records are deleted at the source before they are copied")
    if route.behind_bytes > 1:
        behind = f"{format_bytes(route.behind_bytes)}, {_span(route.behind_seconds)}"
        lines.append(f"{route.route}: has not caught up at the end: {behind}")
    if route.keeps_objective is False:
        lines.append(f"{route.route}: lags up to {_span(route.lag_seconds_max)}, more than its objective")
    return lines


def _route_row(route: RouteForecast) -> tuple[str, ...]:
    return (
        route.route,
        format_bytes(route.produced_bytes_per_second),
        format_bytes(route.copied_bytes_per_second),
        format_bytes(route.peak_bytes_per_second),
        format_bytes(route.lag_bytes_max),
        _span(route.lag_seconds_max),
        _span(route.lag_max_at_seconds),
        _span(route.catch_up_seconds_max),
        format_bytes(route.behind_bytes),
    )


def _place_row(place: PlaceForecast) -> tuple[str, ...]:
    return (
        place.name,
        "-" if place.bytes_per_second is None else format_bytes(place.bytes_per_second),
        format_bytes(place.copied_bytes_per_second),
        format_bytes(place.peak_bytes_per_second),
        "-" if place.used is None else f"{place.used:.0%}",
    )


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        others = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *others])
