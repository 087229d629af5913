"""Forecasts of meshes on paper."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow import sizing
from mirrormaker.plan.simulation.forecast import Forecast, RouteForecast, simulate
from mirrormaker.plan.simulation.limits import START, Limit, changes_of
from mirrormaker.plan.simulation.network import COALESCED_BYTES, PARTITION_BUFFER_BYTES
from mirrormaker.plan.simulation.report import forecast_document, is_well, render_forecast
from mirrormaker.plan.simulation.shares import Flow, fair_shares
from mirrormaker.topology.model import (
    ClusterName,
    CopyMode,
    Day,
    LinkSpec,
    Objectives,
    Outage,
    Resources,
    RouteName,
    RouteSpec,
    SimulatedCluster,
    SimulatedLink,
    SimulatedRoute,
    Topology,
    Window,
)
from tests.plan.worlds import AGGREGATE, JFK, LGA, route, topology

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MB = 1_000_000


def produces(rate: int, source: ClusterName = JFK, **keys: object) -> RouteSpec:
    resources = Resources(**keys.pop("resources", {}))  # type: ignore[arg-type]
    objectives = keys.pop("objectives", Objectives())
    assumed = SimulatedRoute(bytes_per_second=rate, **{"partitions": 100, **keys})  # type: ignore[arg-type]
    return route(source, simulate=assumed, resources=resources, objectives=objectives)


def link(size: int | None, source: ClusterName = JFK, **keys: object) -> LinkSpec:
    return LinkSpec(
        source=source,
        destination=AGGREGATE,
        simulate=SimulatedLink(bytes_per_second=size, **keys),  # type: ignore[arg-type]
    )


def forecast(asked: Topology, *links: LinkSpec, span_ms: int = DAY) -> Forecast:
    return simulate(replace(asked, links=links), span_ms)


def only(made: Forecast) -> RouteForecast:
    (one,) = made.routes
    return one


def test_a_route_with_room_never_lags() -> None:
    made = forecast(topology(produces(MB)), link(2 * MB))
    assert only(made).copied_bytes_per_second == pytest.approx(MB)
    assert only(made).lag_seconds_max == 0
    (place,) = made.places
    assert place.used == pytest.approx(0.5)
    assert is_well(made)


def test_an_hour_without_the_link_is_caught_up_at_what_the_link_has_left() -> None:
    down = Outage(after_ms=HOUR, lasts_ms=HOUR)
    one = only(forecast(topology(produces(MB)), link(4 * MB, outages=(down,))))
    assert one.lag_bytes_max == pytest.approx(3600 * MB)
    assert one.lag_seconds_max == pytest.approx(3600)
    assert one.lag_max_at_seconds == pytest.approx(7200)
    assert one.catch_up_seconds_max == pytest.approx(1200)
    assert one.behind_bytes == pytest.approx(0, abs=1)
    assert one.peak_bytes_per_second == pytest.approx(4 * MB)


def test_a_catch_up_budget_is_for_all_that_comes_until_nothing_old_is_left() -> None:
    down = Outage(after_ms=0, lasts_ms=HOUR)
    asked = topology(produces(MB, resources={"catch_up_bytes_per_second": 2 * MB}))
    one = only(forecast(asked, link(9 * MB, outages=(down,))))
    assert one.peak_bytes_per_second == pytest.approx(9 * MB), "nothing that is left is older than a minute"
    assert one.catch_up_seconds_max == pytest.approx((3600 - 60) + 60 / 8)
    assert one.lag_seconds_max == pytest.approx(3600)


def test_a_catch_up_budget_begins_where_the_objective_ends() -> None:
    down = Outage(after_ms=0, lasts_ms=10 * MINUTE)
    limits = {"catch_up_bytes_per_second": 2 * MB}
    soon = topology(produces(MB, resources=limits, objectives=Objectives(lag_seconds=300)))
    one = only(forecast(soon, link(9 * MB, outages=(down,))))
    assert one.catch_up_seconds_max == pytest.approx(300 + 300 / 8)
    later = topology(produces(MB, resources=limits, objectives=Objectives(lag_seconds=600)))
    assert only(forecast(later, link(9 * MB, outages=(down,)))).catch_up_seconds_max == pytest.approx(75)


def test_a_route_that_may_spend_less_on_old_records_than_comes_stays_behind() -> None:
    down = Outage(after_ms=0, lasts_ms=HOUR)
    asked = topology(produces(MB, resources={"catch_up_bytes_per_second": MB // 2}))
    made = forecast(asked, link(9 * MB, outages=(down,)), span_ms=3 * HOUR)
    assert only(made).behind_bytes == pytest.approx(3600 * MB + 3600 * MB)
    assert only(made).behind_seconds == pytest.approx(7200)
    assert not is_well(made)
    short = topology(produces(MB, resources={"catch_up_bytes_per_second": MB // 2}))
    down = Outage(after_ms=0, lasts_ms=MINUTE // 2)
    assert only(forecast(short, link(9 * MB, outages=(down,)))).catch_up_seconds_max == pytest.approx(30 / 8)


@pytest.mark.parametrize(
    ("behind_seconds", "old_at"),
    [(0, 300), (20, 200), (60, 0)],
    ids=["from nothing", "from some", "on the edge"],
)
def test_a_lag_that_grows_gets_no_more_than_its_budget_once_it_is_old(
    behind_seconds: int, old_at: int
) -> None:
    """Of 5 MB/s 4 pass: the lag grows by 12 s a minute until it is a minute; from then on 2 MB/s pass."""
    limits = {"bytes_per_second": 4 * MB, "catch_up_bytes_per_second": 2 * MB}
    asked = topology(produces(5 * MB, resources=limits, behind_bytes=behind_seconds * 5 * MB))
    one = only(forecast(asked, link(None)))
    behind = behind_seconds * 5 * MB + 86_400 * 5 * MB - (old_at * 4 * MB + (86_400 - old_at) * 2 * MB)
    assert one.behind_bytes == pytest.approx(behind)
    assert one.behind_seconds == pytest.approx(behind / (5 * MB))


def test_a_lag_becomes_old_the_same_whatever_else_changes_meanwhile() -> None:
    limits = {"bytes_per_second": 4 * MB, "catch_up_bytes_per_second": 2 * MB}
    alone = only(forecast(topology(produces(5 * MB, resources=limits)), link(9 * MB)))
    idle = tuple(Window(bytes_per_second=9 * MB, start_minute=at, end_minute=at + 1) for at in (3, 7, 90))
    beside = only(forecast(topology(produces(5 * MB, resources=limits)), replace(link(9 * MB), windows=idle)))
    assert beside.lag_bytes_max == pytest.approx(alone.lag_bytes_max)
    assert beside.copied_bytes_per_second == pytest.approx(alone.copied_bytes_per_second)


@given(
    rates=st.lists(st.integers(0, 400), min_size=24, max_size=24),
    size=st.integers(1, 4 * MB),
    budget=st.integers(1, 4 * MB),
    lasts=st.integers(1, 5 * HOUR),
)
def test_old_records_never_get_more_than_their_budget(
    rates: list[int], size: int, budget: int, lasts: int
) -> None:
    down = Outage(after_ms=HOUR, lasts_ms=lasts)
    limits = {"catch_up_bytes_per_second": budget}
    free = only(forecast(topology(produces(MB, by_hour=tuple(rates))), link(size, outages=(down,))))
    bound = only(
        forecast(topology(produces(MB, by_hour=tuple(rates), resources=limits)), link(size, outages=(down,)))
    )
    assert bound.lag_bytes_max >= free.lag_bytes_max - 1
    assert bound.copied_bytes_per_second <= free.copied_bytes_per_second + 1


def test_a_link_that_is_too_small_leaves_a_lag_that_grows() -> None:
    made = forecast(
        topology(produces(2 * MB, retention_ms=HOUR, objectives=Objectives(lag_seconds=60))), link(MB)
    )
    one = only(made)
    assert one.behind_seconds == pytest.approx(DAY / 2000)
    assert one.too_late_at_seconds is not None
    assert one.keeps_objective is False
    assert not is_well(made)
    text = list(render_forecast(made))
    assert sum(line.startswith("! jfk-to-aggregate: ") for line in text) == 3
    assert text[-1] == "1 routes over 1.0 d, 3 warnings"


def test_what_was_behind_at_the_start_is_as_old_as_it_took_to_produce() -> None:
    one = only(forecast(topology(produces(MB, behind_bytes=600 * MB)), link(2 * MB)))
    assert one.lag_seconds_max == pytest.approx(600)
    assert one.catch_up_seconds_max == pytest.approx(600)
    assert one.copied_bytes_per_second == pytest.approx(MB + 600 * MB / 86_400)


def test_a_lag_is_told_at_its_largest_though_less_is_produced_meanwhile() -> None:
    """What was produced in the first hour, 20 MB/s, passes at 15: its end has waited longest."""
    hours = (200, 50, *(0,) * 22)
    one = only(forecast(topology(produces(10 * MB, by_hour=hours)), link(15 * MB)))
    assert one.lag_seconds_max == pytest.approx(1200)
    assert one.lag_max_at_seconds == pytest.approx(3600 + 1200)
    assert one.catch_up_seconds_max == pytest.approx(1800)


def test_a_lag_is_told_at_its_largest_though_nothing_is_produced_any_more() -> None:
    """What was produced in the first hour, 24 MB/s, passes at 10: its end waits until 2.4 h."""
    asked = produces(
        MB, by_hour=(2400, *(0,) * 23), retention_ms=80 * MINUTE, objectives=Objectives(lag_seconds=4800)
    )
    made = forecast(topology(asked), link(10 * MB))
    one = only(made)
    assert one.lag_seconds_max == pytest.approx(1.4 * 3600)
    assert one.lag_max_at_seconds == pytest.approx(2.4 * 3600)
    assert one.too_late_at_seconds == pytest.approx(4800 / (1 - 10 / 24))
    assert one.keeps_objective is False
    assert sum(line.startswith("! ") for line in render_forecast(made)) == 2
    assert not is_well(made)


def test_a_lag_is_told_at_its_largest_before_what_came_after_a_pause() -> None:
    """The end of the first hour, 2 MB/s, has passed at 2 h; next is what is produced in that moment."""
    one = only(forecast(topology(produces(MB, by_hour=(200, 0, *(50,) * 22))), link(MB)))
    assert one.lag_seconds_max == pytest.approx(3600)
    assert one.lag_max_at_seconds == pytest.approx(2 * 3600)
    assert one.behind_bytes == pytest.approx(0, abs=1)


def test_what_was_behind_at_the_start_ages_though_nothing_is_produced() -> None:
    limits = {"bytes_per_second": MB}
    asked = produces(
        0,
        behind_bytes=36_000 * MB,
        retention_ms=HOUR,
        resources=limits,
        objectives=Objectives(lag_seconds=60),
    )
    made = forecast(topology(asked), link(None))
    one = only(made)
    assert one.lag_seconds_max == one.lag_max_at_seconds == pytest.approx(36_000)
    assert one.catch_up_seconds_max == pytest.approx(36_000)
    assert one.too_late_at_seconds == pytest.approx(3600)
    assert one.keeps_objective is False
    assert not is_well(made)


@given(rate=st.integers(1, 5 * MB))
def test_a_lag_that_stays_the_same_does_not_grow_by_rounding(rate: int) -> None:
    asked = produces(
        rate, behind_bytes=600 * rate, retention_ms=10 * MINUTE, objectives=Objectives(lag_seconds=600)
    )
    one = only(forecast(topology(asked), link(rate)))
    assert (one.lag_seconds_max, one.lag_max_at_seconds) == (600, 0)
    assert one.keeps_objective
    assert one.too_late_at_seconds is None


@given(
    rates=st.lists(st.sampled_from([0, 50, 100, 300]), min_size=6, max_size=6),
    size=st.integers(MB, 4 * MB),
)
def test_the_largest_lag_is_that_of_the_byte_that_waited_longest(rates: list[int], size: int) -> None:
    """Of the bytes of an hour the first or the last waits longest, and all pass within the day."""
    one = only(forecast(topology(produces(MB, by_hour=(*rates, *(0,) * 18))), link(size)))
    waited, left = 0.0, 0.0
    for percent in rates:
        came = 3600 * MB * percent / 100
        if came:
            waited = max(waited, left / size, (left + came) / size - 3600)
        left = max(0.0, left + came - 3600 * size)
    assert one.lag_seconds_max == pytest.approx(waited, abs=0.01)


def test_records_are_lost_once_the_first_of_them_is_deleted() -> None:
    down = Outage(after_ms=2 * HOUR, lasts_ms=10 * HOUR)
    one = only(forecast(topology(produces(MB, retention_ms=6 * HOUR)), link(4 * MB, outages=(down,))))
    assert one.too_late_at_seconds == pytest.approx(8 * 3600)
    growing = only(forecast(topology(produces(2 * MB, retention_ms=HOUR)), link(MB)))
    assert growing.too_late_at_seconds == pytest.approx(2 * 3600)
    behind = only(forecast(topology(produces(MB, retention_ms=60_000, behind_bytes=MB * 100)), link(2 * MB)))
    assert behind.too_late_at_seconds == 0


def test_routes_share_a_cluster_by_priority_and_nobody_starves() -> None:
    asked = topology(
        produces(10 * MB, resources={"priority": 9}),
        produces(10 * MB, LGA, resources={"priority": 1}),
    )
    taking = replace(asked.clusters[AGGREGATE], simulate=SimulatedCluster(in_bytes_per_second=10 * MB))
    made = forecast(replace(asked, clusters={**asked.clusters, AGGREGATE: taking}))
    assert [round(one.copied_bytes_per_second) for one in made.routes] == [9 * MB, MB]
    assert [place.name for place in made.places] == ["jfk -> aggregate", "into aggregate", "lga -> aggregate"]


def test_the_round_trip_bounds_what_is_in_flight() -> None:
    shallow = replace(produces(50 * MB, partitions=2, batch_bytes=100_000), copy=CopyMode.SHALLOW)
    assert (
        only(forecast(topology(shallow), link(None, round_trip_ms=100))).ceiling_bytes_per_second == 10 * MB
    )
    hot = replace(shallow, simulate=replace(shallow.simulate, hottest_percent=80))
    ceiling = only(forecast(topology(hot), link(None, round_trip_ms=100))).ceiling_bytes_per_second
    assert ceiling == pytest.approx(6.25 * MB)
    gathered = replace(shallow, copy=CopyMode.AUTO)
    assert only(forecast(topology(gathered), link(None, round_trip_ms=100))).behind_bytes == 0


def test_what_is_in_flight_over_a_round_trip_is_what_a_route_gathers_and_keeps() -> None:
    assert (COALESCED_BYTES, PARTITION_BUFFER_BYTES) == (sizing.PIECE_BYTES, sizing.PARTITION_BUFFER_BYTES)
    far = link(None, round_trip_ms=150)
    gathered = only(forecast(topology(produces(MB, partitions=1)), far))
    assert gathered.ceiling_bytes_per_second == pytest.approx(5 * 983_040 / 0.15)
    tight = produces(MB, partitions=1, resources={"buffer_bytes": 4 << 20})
    assert only(forecast(topology(tight), far)).ceiling_bytes_per_second == pytest.approx((4 << 20) / 0.15)


def test_hours_of_the_day_and_windows_of_the_week_are_kept() -> None:
    busy = (0,) * 12 + (200,) * 12
    night = Window(bytes_per_second=0, days=(Day.MON,), start_minute=12 * 60, end_minute=18 * 60)
    asked = topology(produces(MB, by_hour=busy, resources={"windows": (night,)}))
    one = only(forecast(asked, link(8 * MB)))
    assert one.produced_bytes_per_second == pytest.approx(MB)
    assert one.lag_bytes_max == pytest.approx(6 * 3600 * 2 * MB)
    assert one.lag_max_at_seconds == pytest.approx(18 * 3600)
    assert one.catch_up_seconds_max == pytest.approx(2 * 3600)


def test_windows_of_a_link_bound_all_routes_on_it_together() -> None:
    nobody = Window(bytes_per_second=0, days=(Day.MON,), start_minute=6 * 60, end_minute=7 * 60)
    little = Window(bytes_per_second=2 * MB, start_minute=7 * 60, end_minute=24 * 60)
    asked = topology(produces(MB), replace(produces(MB), name=RouteName("second")))
    narrow = replace(link(8 * MB), windows=(nobody, little))
    made = forecast(asked, narrow)
    assert [one.lag_bytes_max for one in made.routes] == pytest.approx([3600 * MB] * 2)
    assert [one.behind_seconds for one in made.routes] == pytest.approx([3600] * 2), "2 MB/s just keep up"
    wider = replace(narrow, windows=(nobody, replace(little, bytes_per_second=4 * MB)))
    assert [one.catch_up_seconds_max for one in forecast(asked, wider).routes] == pytest.approx([3600] * 2)


def test_a_window_in_another_zone_opens_at_its_own_time() -> None:
    window = Window(bytes_per_second=7, start_minute=0, end_minute=60, zone="America/New_York")
    limit = Limit(windows=(window,))
    assert [at for at in limit.changes(DAY) if 0 < at < DAY] == [4 * HOUR, 5 * HOUR]
    assert [limit.at(at) for at in (4 * HOUR - 1, 4 * HOUR, 5 * HOUR)] == [math.inf, 7, math.inf]


@pytest.mark.parametrize(
    ("zone", "forward", "back"),
    [
        ("Europe/Berlin", "2027-03-28T01:00Z", "2026-10-25T01:00Z"),
        ("America/New_York", "2027-03-14T07:00Z", "2026-11-01T06:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z", "2027-04-03T15:00Z"),
        ("America/Santiago", "2026-09-06T04:00Z", "2027-04-04T03:00Z"),
    ],
)
@pytest.mark.parametrize(
    ("start_minute", "end_minute"), [(60, 150), (150, 300), (105, 135), (1410, 15), (0, 60)], ids=str
)
def test_a_window_changes_with_its_clock_when_that_is_set_forward_and_back(
    zone: str, forward: str, back: str, start_minute: int, end_minute: int
) -> None:
    window = Window(bytes_per_second=7, start_minute=start_minute, end_minute=end_minute, zone=zone)
    limit = Limit(windows=(window,))
    told = changes_of([limit], 366 * DAY)
    for change in (forward, back):
        set_at = round((datetime.fromisoformat(change) - START).total_seconds() * 1000)
        around = range(set_at - 24 * HOUR, set_at + 24 * HOUR, MINUTE)
        seen = {at for at in around if limit.at(at) != limit.at(at - 1)}
        assert seen, "the window opens and closes"
        assert seen <= set(told)
        assert len([at for at in told if at in around]) <= 7


@pytest.mark.parametrize(("day", "hours"), [("2026-10-25", 3.0), ("2027-03-28", 2.0)])
def test_what_passes_in_a_window_as_clocks_are_set_is_what_its_hours_let_pass(day: str, hours: float) -> None:
    """Of the window's two and a half hours the first half is skipped in spring, and comes twice in autumn."""
    open_until = Window(bytes_per_second=2 * MB, start_minute=150, end_minute=300, zone="Europe/Berlin")
    shut = Window(bytes_per_second=0)
    asked = topology(produces(MB, resources={"windows": (open_until, shut)}))
    since = round((datetime.fromisoformat(f"{day}T12:00Z") - START).total_seconds() * 1000)
    copied = [
        only(forecast(asked, link(None), span_ms=span)).copied_bytes_per_second * span / 1000
        for span in (since - DAY, since)
    ]
    assert copied[1] - copied[0] == pytest.approx(hours * 3600 * 2 * MB)


def test_the_document_holds_every_figure() -> None:
    made = forecast(topology(produces(MB)), link(2 * MB), span_ms=HOUR)
    document = forecast_document(made)
    assert document["span_ms"] == HOUR
    assert document["routes"][0]["partitions"] == 100
    assert document["places"][0]["used"] == pytest.approx(0.5)


FLOWS = st.lists(
    st.builds(
        Flow,
        st.sampled_from([0.0, 1.0, 5.0, 50.0, math.inf]),
        st.sampled_from([1.0, 5.0, 10.0]),
        st.sets(st.integers(0, 3), min_size=1).map(lambda places: tuple(sorted(places))),
    ),
    max_size=8,
)


@given(flows=FLOWS, sizes=st.lists(st.sampled_from([0.0, 3.0, 10.0, 100.0]), min_size=4, max_size=4))
def test_shares_fill_what_they_can_and_nobody_gets_more_at_the_cost_of_one_with_less(
    flows: list[Flow], sizes: list[float]
) -> None:
    room = dict(enumerate(sizes))
    shares = fair_shares(flows, room)
    used = {
        place: sum(share for flow, share in zip(flows, shares, strict=True) if place in flow.places)
        for place in room
    }
    full = {place for place, size in room.items() if used[place] >= size - 1e-6}
    assert all(used[place] <= size + 1e-6 for place, size in room.items())
    for flow, share in zip(flows, shares, strict=True):
        assert 0 <= share <= flow.wanted
        if share < flow.wanted - 1e-6:  # somewhere full, where nobody has more for his weight
            level = share / flow.weight + 1e-6
            assert any(
                all(
                    other_share / other.weight <= level
                    for other, other_share in zip(flows, shares, strict=True)
                    if place in other.places
                )
                for place in full & set(flow.places)
            )


def plain_shares(flows: list[Flow], sizes: list[float]) -> list[float]:
    """The rule as the module says it: all grow together until one has what it wants, or a place is full."""
    shares, growing = [0.0] * len(flows), {number for number, flow in enumerate(flows) if flow.wanted > 0}
    while growing:
        levels = {
            place: (size - sum(shares[number] for number, flow in enumerate(flows) if place in flow.places))
            / sum(flows[number].weight for number in growing if place in flows[number].places)
            for place, size in enumerate(sizes)
            if any(place in flows[number].places for number in growing)
        }
        full = min(levels, key=levels.__getitem__)
        level = max(levels[full], 0.0)
        done = {number for number in growing if flows[number].wanted <= level * flows[number].weight}
        done = done or {number for number in growing if full in flows[number].places}
        for number in done:
            shares[number] = min(flows[number].wanted, level * flows[number].weight)
        growing -= done
    return shares


@given(flows=FLOWS, sizes=st.lists(st.sampled_from([0.0, 3.0, 10.0, 100.0]), min_size=4, max_size=4))
def test_shares_are_those_of_the_plain_rule(flows: list[Flow], sizes: list[float]) -> None:
    assert fair_shares(flows, dict(enumerate(sizes))) == pytest.approx(plain_shares(flows, sizes), abs=1e-6)
