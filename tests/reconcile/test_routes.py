"""Desired routes x running routes: what starts, changes, starts anew, stops, and is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.security.connection_security import ConnectionSecurity
from broker.client.security.settings import TlsSettings
from broker.types import HostPort
from mirrormaker.reconcile.routes import RouteSteps, RouteWork, compare_routes, work_of
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    CopyMode,
    Delivery,
    Resources,
    RouteName,
    RouteSpec,
    TopicSelection,
    TopicSpec,
    Topology,
)
from mirrormaker.topology.ways import Way


def cluster(name: str, port: int = 9092) -> ClusterSpec:
    return ClusterSpec(name=ClusterName(name), bootstrap=(HostPort("127.0.0.1", port),))


def work(name: str) -> RouteWork:
    route = RouteSpec(
        name=RouteName(name),
        source=ClusterName("jfk"),
        destination=ClusterName("aggregate"),
        topics=TopicSelection(include=("flights.*",)),
    )
    return RouteWork(route=route, source=cluster("jfk"), destination=cluster("aggregate"))


def rerouted(old: RouteWork, **changes: object) -> RouteWork:
    return replace(old, route=replace(old.route, **changes))  # type: ignore[arg-type]


def selecting(old: RouteWork, **changes: object) -> RouteWork:
    return rerouted(old, topics=replace(old.route.topics, **changes))  # type: ignore[arg-type]


A = work("a")
NAME = A.name

LIVE: dict[str, Callable[[RouteWork], RouteWork]] = {
    "more topics": lambda old: selecting(old, include=("flights.*", "planes")),
    "fewer topics": lambda old: selecting(old, exclude=("flights-test",)),
    "a larger buffer": lambda old: rerouted(old, resources=Resources(buffer_bytes=1 << 20)),
    "somebody else's": lambda old: rerouted(old, owner="ops"),
    "a cluster with topics of its own": lambda old: replace(
        old, source=replace(old.source, topics={"flights": TopicSpec()})
    ),
    "commits more often": lambda old: rerouted(old, commit_interval_ms=100),
    "another route's way for settings": lambda old: replace(
        old,
        settings_ways=(Way(source=ClusterName("x"), destination=ClusterName("y"), topics=old.route.topics),),
    ),
    "another route that has positions of topics": lambda old: replace(old, earlier=(old.route,)),
    "looks more often": lambda old: rerouted(old, refresh_interval_ms=100),
}
ANEW: dict[str, Callable[[RouteWork], RouteWork]] = {
    "another source": lambda old: replace(rerouted(old, source=ClusterName("lga")), source=cluster("lga")),
    "another destination": lambda old: replace(
        rerouted(old, destination=ClusterName("archive")), destination=cluster("archive")
    ),
    "other addresses": lambda old: replace(old, source=cluster("jfk", 9093)),
    "another way in": lambda old: replace(
        old, destination=replace(old.destination, security=ConnectionSecurity(tls=TlsSettings()))
    ),
    "other names at the destination": lambda old: selecting(old, name="{topic}"),
    "another copy mode": lambda old: rerouted(old, copy=CopyMode.DEEP),
    "other shares": lambda old: rerouted(old, buckets=4),
    "a way back for the groups that it carries": lambda old: replace(
        old, back=(Way(source=old.destination.name, destination=old.source.name, topics=old.route.topics),)
    ),
}


@pytest.mark.parametrize("change", LIVE)
def test_a_change_of_topics_bounds_or_intervals_is_given_to_the_running_route(change: str) -> None:
    new = LIVE[change](A)
    steps = compare_routes({NAME: new}, {NAME: A})
    assert steps == RouteSteps(change=(new,))


@pytest.mark.parametrize("change", ANEW)
def test_any_other_change_starts_the_route_anew(change: str) -> None:
    steps = compare_routes({NAME: ANEW[change](A)}, {NAME: A})
    assert steps == RouteSteps(restart=(NAME,))


def test_an_exactly_once_route_commits_as_often_as_its_producers_have_been_told() -> None:
    exact = rerouted(A, delivery=Delivery.EXACTLY_ONCE)
    steps = compare_routes({NAME: rerouted(exact, commit_interval_ms=100)}, {NAME: exact})
    assert steps == RouteSteps(restart=(NAME,))


def test_what_is_missing_starts_what_is_extra_stops_and_the_rest_is_kept() -> None:
    b, c = work("b"), work("c")
    steps = compare_routes({NAME: A, b.name: b}, {NAME: A, c.name: c})
    assert (steps.start, steps.stop, steps.keep) == ((b,), (c.name,), (NAME,))


def test_a_route_that_is_on_its_way_out_is_not_started_before_it_has_ended() -> None:
    assert compare_routes({NAME: A}, {}, leaving=[NAME]).start == ()
    assert compare_routes({NAME: A}, {}).start == (A,)


def test_a_route_that_is_not_enabled_is_not_wanted() -> None:
    off = replace(A.route, enabled=False)
    topology = Topology(
        clusters={A.source.name: A.source, A.destination.name: A.destination},
        routes=(off, work("b").route),
        data_dir=Path("data"),
    )
    assert work_of(topology) == {RouteName("b"): work("b")}


_VARIANTS = [A, *(change(A) for change in (*LIVE.values(), *ANEW.values()))]
_ROUTES = st.dictionaries(
    st.sampled_from([RouteName(name) for name in "abcd"]), st.sampled_from(_VARIANTS), max_size=4
).map(lambda drawn: {name: rerouted(variant, name=name) for name, variant in drawn.items()})


@given(desired=_ROUTES, running=_ROUTES)
def test_once_the_steps_are_done_and_what_stopped_has_ended_nothing_is_left_to_do(
    desired: dict[RouteName, RouteWork], running: dict[RouteName, RouteWork]
) -> None:
    now = dict(running)
    for _ in range(2):
        steps = compare_routes(desired, now)
        for name in (*steps.stop, *steps.restart):
            del now[name]
        now |= {changed.name: changed for changed in (*steps.start, *steps.change)}
    assert now == desired
    assert compare_routes(desired, now).keep == tuple(sorted(desired))
