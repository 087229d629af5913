"""Totals over workers do not fall because one of them begins anew."""

from __future__ import annotations

from typing import Any

from mirrormaker.flow.timing.objective import LagObjective
from mirrormaker.route_description import starting_route
from mirrormaker.workers.link_pictures import merge_links, past_links, totals_of_links
from mirrormaker.workers.pictures import (
    RouteTotal,
    merge_routes,
    past_kinds,
    totals_of_routes,
    with_past,
)
from mirrormaker.workers.totals import PastTotals

GONE: dict[str, Any] = {}


def route(records: int, errors: dict[str, int] | None = None) -> dict[str, Any]:
    latency = {"records": records, "seconds": records / 2, "buckets": {"3": records}, "recent": {"3": 1}}
    return starting_route() | {
        "state": "running",
        "counts": {"records": records, "errors": errors or {}},
        "timing": {
            "lag_seconds": 1.0,
            "objective": None,
            "in_danger": 0,
            "problem": None,
            "latency": {"created": latency},
            "heartbeats": {},
        },
    }


class Told:
    """What is told of a route `r` after each change of what its workers tell."""

    def __init__(self) -> None:
        self.past: PastTotals[RouteTotal] = PastTotals()
        self.pictures: dict[int, dict[str, Any]] = {}

    def of(self, number: int, picture: dict[str, Any]) -> dict[str, Any]:
        self.pictures[number] = picture
        self.past.take(number, totals_of_routes({"r": picture} if picture else {}))
        merged = merge_routes([each or starting_route() for each in self.pictures.values()])
        return with_past("r", merged, self.past)


def test_what_a_worker_counted_stays_when_it_dies_and_another_begins_at_nothing() -> None:
    told = Told()
    told.of(1, route(1000))
    told.of(2, route(1080, {"A": 2}))
    for number, picture, records in (
        (2, GONE, 2080),
        (2, starting_route(), 2080),
        (2, route(5), 2085),
        (1, route(1001), 2086),
        (2, route(1), 2087),
        (2, GONE, 2087),
    ):
        found = told.of(number, picture)
        assert found["counts"] == {"records": records, "errors": {"A": 2}}
        latency = found["timing"]["latency"]["created"]
        assert (latency["records"], latency["seconds"]) == (records, records / 2)
        assert latency["buckets"] == {"3": records}
    assert found["timing"]["latency"]["created"]["recent"] == {"3": 1}
    assert "counts" not in told.of(1, GONE)
    assert told.of(1, route(3))["counts"]["records"] == 2090


def counts_of(breaches: int, throttled_ms: int, given_up: int, moved: int) -> dict[str, Any]:
    told = route(1)
    objective = {
        "lag_seconds": 5,
        "state": "kept",
        "since_ms": None,
        "lag": 1,
        "worst": 9,
        "breaches": breaches,
        "breached_ms": breaches * 1000,
    }
    way = {"rate": 0, "limit": None, "borrowed": None, "throttled_ms": throttled_ms, "window_bound": None}
    return {
        **told,
        "timing": {**told["timing"], "objective": objective},
        "link": {**way, "round_trip_ms": {"source": {}, "destination": {}}},
        "ledger": {"problem": None, "lanes": 2, "pages": 9, "pending_pages": 1, "pages_given_up": given_up},
        "groups": {"problem": None, "moved": moved, "groups": {}},
    }


def test_so_do_breaches_of_objectives_waits_pages_given_up_and_moves_of_groups() -> None:
    told = Told()
    told.of(1, counts_of(1, 10, 100, 1000))
    told.of(2, counts_of(2, 20, 200, 2000))
    told.of(1, GONE)
    picture = counts_of(5, 50, 500, 5000)
    found = told.of(1, picture)
    assert found["timing"]["objective"]["breaches"] == 8
    assert found["timing"]["objective"]["breached_ms"] == 8000
    assert found["link"]["throttled_ms"] == 80
    assert (found["ledger"]["pages_given_up"], found["groups"]["moved"]) == (800, 8000)
    assert picture == counts_of(5, 50, 500, 5000), "what a worker told stays as it is"


def test_a_promise_that_is_taken_back_and_made_again_counts_its_breaches_once() -> None:
    """By each worker's own count, while the file promises nothing too."""
    told, objectives = Told(), {1: LagObjective(10), 2: LagObjective(10)}
    for promise, breaches in ((10, 2), (None, 2), (10, 4)):
        for number, objective in objectives.items():
            objective.lag_seconds = promise
            objective.look(11.0, 0)
            timing = {**route(1)["timing"], "objective": objective.describe(11.0, 0)}
            found = told.of(number, {**route(1), "timing": timing})
        assert found["timing"]["objective"]["breaches"] == breaches
        assert found["timing"]["objective"]["lag_seconds"] == promise


def test_a_route_that_is_run_no_more_is_forgotten() -> None:
    told = Told()
    told.of(1, route(10))
    told.of(1, GONE)
    told.past.keep(past_kinds(["other"]))
    assert told.of(1, route(3))["counts"]["records"] == 3


def test_what_was_sent_by_a_link_stays_also_while_nobody_uses_it() -> None:
    past: PastTotals[tuple[str, str]] = PastTotals()
    link = {
        "from": "a",
        "to": "b",
        "bytes": 70,
        "rate": 5,
        "limit": 9,
        "share_of_limit": 0.5,
        "members": 2,
        "borrowed": 1,
    }

    def told(*links: dict[str, Any]) -> list[dict[str, Any]]:
        past.take(1, totals_of_links(links))
        return merge_links([links, past_links([("a", "b")], past)])

    assert told(link) == [{**link, "share_of_limit": 5 / 9}]
    assert [each["bytes"] for each in told()] == [70]
    (found,) = told({**link, "bytes": 4})
    assert (found["bytes"], found["rate"], found["limit"], found["members"]) == (74, 5, 9, 2)
