"""What the demo measured, whether it agrees, and the table that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from mirrormaker.delays import Arrival, Delay


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFigures:
    """One airport's way to the aggregate. Bytes are of whole record batches, at the source."""

    route: str
    topic: str
    records_in: int
    records_mirrored: int
    compressed_bytes: int
    uncompressed_bytes: int
    lag_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The whole run; times in seconds."""

    routes: tuple[RouteFigures, ...]
    arrivals: Mapping[str, Arrival]
    delays: Mapping[tuple[str, str], Delay]
    expected_delays: Mapping[tuple[str, str], Delay]
    produce_seconds: float
    mirror_seconds: float
    spark_seconds: float

    def problems(self) -> list[str]:
        """Everything that is missing, doubled or different; empty when the line is exact."""
        found = []
        for route in self.routes:
            arrival = self.arrivals.get(route.topic, Arrival(records=0, rows=0))
            if arrival.rows < route.records_in:
                found.append(f"{route.topic}: {route.records_in - arrival.rows} records are missing")
            if arrival.records > arrival.rows:
                found.append(f"{route.topic}: {arrival.records - arrival.rows} records are doubled")
            if arrival.rows > route.records_in:
                found.append(f"{route.topic}: {arrival.rows - route.records_in} records came from nowhere")
        for key in sorted(self.expected_delays.keys() | self.delays.keys()):
            expected, actual = self.expected_delays.get(key), self.delays.get(key)
            if expected != actual:
                found.append(f"delays of {' '.join(key)}: Spark says {actual}, the CSV says {expected}")
        return found


def route_table(figures: Figures) -> Table:
    """A row for each route and one for all of them."""
    table = Table(title="From three airports to the aggregate", pad_edge=False)
    table.add_column("route", no_wrap=True)
    for name in ("in", "mirrored", "read by\nSpark", "wire\nMB", "plain\nMB", "ratio", "lag"):
        table.add_column(name, justify="right")
    for route in figures.routes:
        arrival = figures.arrivals.get(route.topic, Arrival(records=0, rows=0))
        _add_row(table, route.route, route, arrival.records)
    _add_row(table, "all", _total(figures.routes), sum(a.records for a in figures.arrivals.values()))
    return table


def rate_table(figures: Figures) -> Table:
    """How fast each stage went; mirroring is timed from the first record produced to the last mirrored."""
    total = _total(figures.routes)
    table = Table(title="Stages")
    table.add_column("stage")
    for name in ("seconds", "records/s", "wire MB/s", "plain MB/s"):
        table.add_column(name, justify="right")
    for name, seconds in (
        ("produced", figures.produce_seconds),
        ("mirrored", figures.mirror_seconds),
        ("computed by Spark", figures.spark_seconds),
    ):
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{total.records_in / seconds:,.0f}",
            f"{total.compressed_bytes / seconds / 1e6:.1f}",
            f"{total.uncompressed_bytes / seconds / 1e6:.1f}",
        )
    return table


def delay_table(figures: Figures) -> Table:
    """The carriers with the most flights at each airport, as computed on the aggregate."""
    table = Table(title="Mean delays computed on the aggregate, in minutes")
    for name in ("origin", "carrier"):
        table.add_column(name)
    for name in ("flights", "departure", "arrival"):
        table.add_column(name, justify="right")
    by_origin: dict[str, int] = {}
    for (origin, carrier), delay in sorted(figures.delays.items(), key=lambda item: -item[1].flights):
        by_origin[origin] = by_origin.get(origin, 0) + 1
        if by_origin[origin] <= 2:
            departure = delay.departure_delay_sum / max(delay.departed, 1)
            arrival = delay.arrival_delay_sum / max(delay.arrived, 1)
            table.add_row(origin, carrier, f"{delay.flights:,}", f"{departure:.1f}", f"{arrival:.1f}")
    return table


def _add_row(table: Table, name: str, route: RouteFigures, read_by_spark: int) -> None:
    table.add_row(
        name,
        f"{route.records_in:,}",
        f"{route.records_mirrored:,}",
        f"{read_by_spark:,}",
        f"{route.compressed_bytes / 1e6:.1f}",
        f"{route.uncompressed_bytes / 1e6:.1f}",
        f"{route.uncompressed_bytes / max(route.compressed_bytes, 1):.1f}",
        str(route.lag_records),
    )


def _total(routes: tuple[RouteFigures, ...]) -> RouteFigures:
    return RouteFigures(
        route="all",
        topic="",
        records_in=sum(route.records_in for route in routes),
        records_mirrored=sum(route.records_mirrored for route in routes),
        compressed_bytes=sum(route.compressed_bytes for route in routes),
        uncompressed_bytes=sum(route.uncompressed_bytes for route in routes),
        lag_records=sum(route.lag_records for route in routes),
    )
