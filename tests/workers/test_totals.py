"""Totals over workers do not fall because one of them begins anew."""

from __future__ import annotations

from typing import Any

from mirrormaker.workers.link_pictures import merge_links, past_links, totals_of_links
from mirrormaker.workers.pictures import (
    RouteTotal,
    merge_routes,
    past_kinds,
    starting_route,
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
