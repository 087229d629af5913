"""Routes of several processes never write the same topic of one destination, unless they mean to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.topology.model import (
    ClusterName,
    Resources,
    RouteName,
    RouteSpec,
    TopicSelection,
    Topology,
)
from mirrormaker.workers.shared_claims import SharedClaims, contested, decisions_of

HUB, SPOKE = ClusterName("hub"), ClusterName("spoke")
OWN, WIDE, OTHER = RouteName("own"), RouteName("wide"), RouteName("other")


def route(name: RouteName, workers: int, destination: ClusterName = HUB, *, merge: bool = False) -> RouteSpec:
    return RouteSpec(
        name=name,
        source=ClusterName("edge"),
        destination=destination,
        topics=TopicSelection(include=(".*",), merge=merge),
        resources=Resources(workers=workers),
    )


def topology(*routes: RouteSpec) -> Topology:
    return Topology(clusters={}, routes=routes, data_dir=Path())


def picture(**claims: list[str]) -> dict[str, object]:
    return {"claims": {HUB: claims}}


def test_destinations_are_contested_where_workers_run_one_route_of_several() -> None:
    assert contested(topology(route(OWN, 1), route(OTHER, 1))) == set()
    assert contested(topology(route(WIDE, 2), route(OTHER, 1, SPOKE))) == set()
    assert contested(topology(route(WIDE, 2), route(OTHER, 1), route(OWN, 1, SPOKE))) == {HUB}


def test_a_route_that_waits_for_its_failover_group_counts_as_one_that_runs() -> None:
    back = replace(route(WIDE, 2), enabled=False, failover_group="pair")
    assert contested(topology(back, route(OWN, 1))) == {HUB}
    assert contested(topology(replace(back, failover_group=None), route(OWN, 1))) == set()
    claims: defaultdict[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
    shared = SharedClaims(claims)
    claims[HUB].claim(OWN, frozenset({"a"}))
    shared.take(topology(back, route(OWN, 1)), [picture(wide=["a", "b"])])
    assert claims[HUB].of_others(OWN) == {"b": WIDE}


def test_whoever_asks_first_has_a_topic_be_it_run_by_the_daemon_or_by_workers() -> None:
    claims: defaultdict[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
    shared = SharedClaims(claims)
    asked = topology(route(OWN, 1), route(WIDE, 2), route(OTHER, 2))
    claims[HUB].claim(OWN, frozenset({"a"}))
    shared.take(asked, [picture(wide=["a", "b"]), picture(wide=["b", "c"], other=["b", "d"])])
    assert shared.lists(asked) == {HUB: {"own": ["a"], "wide": ["b", "c"], "other": ["d"]}}
    assert claims[HUB].of_others(OWN) == {"b": WIDE, "c": WIDE, "d": OTHER}
    decision = decisions_of(asked, shared.lists(asked))[HUB]
    assert decision.granted[WIDE] == {"b", "c"}


def test_claims_outlast_a_process_and_end_with_their_route() -> None:
    claims: defaultdict[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
    shared = SharedClaims(claims)
    asked = topology(route(WIDE, 2), route(OTHER, 2))
    shared.take(asked, [picture(wide=["a"])])
    shared.take(asked, [])
    assert claims[HUB].all()[WIDE] == {"a"}
    shared.take(topology(route(OWN, 2), route(OTHER, 2)), [picture(other=["a"])])
    assert claims[HUB].of_others(OWN) == {"a": OTHER}


def test_routes_that_merge_share_a_topic_across_processes() -> None:
    claims: defaultdict[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
    shared = SharedClaims(claims)
    asked = topology(route(WIDE, 2, merge=True), route(OTHER, 2, merge=True))
    shared.take(asked, [picture(wide=["a"], other=["a"])])
    assert shared.lists(asked) == {HUB: {"wide": ["a"], "other": ["a"]}}
    assert decisions_of(asked, shared.lists(asked))[HUB].sharing == {WIDE, OTHER}
