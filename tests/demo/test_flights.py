"""The real data of the demo, and the figures that are compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mirrormaker.delays import Arrival, Delay
from mirrormaker.demo.figures import Figures, RouteFigures
from mirrormaker.demo.flights import AIRPORTS, expected_delays, flights_by_origin, read_rows, to_flights


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return read_rows()


def test_all_departures_of_the_three_airports_are_there(rows: list[dict[str, str]]) -> None:
    counts = flights_by_origin(rows)
    assert set(counts) == set(AIRPORTS)
    assert counts.total() == 336_776


def test_a_flight_is_json_keyed_by_its_tail_number(rows: list[dict[str, str]]) -> None:
    first = next(to_flights(rows))
    assert (first.origin, first.key) == ("EWR", b"N14228")
    value = json.loads(first.value)
    assert (value["row"], value["carrier"], value["dep_delay"]) == (0, "UA", 2)


def test_unknown_figures_are_null_and_left_out_of_sums(rows: list[dict[str, str]]) -> None:
    cancelled = next(row for row in rows if row["dep_time"] in ("", "NA"))
    (flight,) = to_flights([cancelled])
    assert json.loads(flight.value)["dep_delay"] is None
    (delay,) = expected_delays([cancelled]).values()
    assert (delay.flights, delay.departed, delay.arrived) == (1, 0, 0)


def figures(**changes: object) -> Figures:
    route = RouteFigures(
        route="jfk-to-aggregate",
        topic="jfk.flights",
        records_in=10,
        records_mirrored=10,
        compressed_bytes=100,
        uncompressed_bytes=300,
        lag_records=0,
    )
    delays = {("JFK", "UA"): Delay(10, 10, 5, 9, 4)}
    whole = Figures(
        routes=(route,),
        arrivals={"jfk.flights": Arrival(records=10, rows=10)},
        delays=delays,
        expected_delays=delays,
        produce_seconds=1.0,
        mirror_seconds=1.0,
        spark_seconds=1.0,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_figures_that_agree_have_no_problems() -> None:
    assert figures().problems() == []


@pytest.mark.parametrize(
    ("arrivals", "problem"),
    [
        ({}, "jfk.flights: 10 records are missing"),
        ({"jfk.flights": Arrival(records=9, rows=9)}, "jfk.flights: 1 records are missing"),
        ({"jfk.flights": Arrival(records=11, rows=10)}, "jfk.flights: 1 records are doubled"),
        ({"jfk.flights": Arrival(records=11, rows=11)}, "jfk.flights: 1 records came from nowhere"),
    ],
)
def test_a_missing_or_doubled_record_is_a_problem(arrivals: dict[str, Arrival], problem: str) -> None:
    assert figures(arrivals=arrivals).problems() == [problem]


def test_a_delay_that_differs_is_a_problem() -> None:
    (problem,) = figures(delays={("JFK", "UA"): Delay(10, 10, 6, 9, 4)}).problems()
    assert problem.startswith("delays of JFK UA: Spark says")
