"""What clusters tell, put together."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from broker.types import TopicId
from mirrormaker.plan.world import ObservedCluster, UnreachableCluster
from mirrormaker.reconcile.kept_positions import KeptPositions
from mirrormaker.reconcile.observe import with_kept_positions
from mirrormaker.topology.model import Delivery, RouteName
from tests.plan.worlds import AGGREGATE, JFK, cluster, route, topic
from tests.reconcile.kept_entries import kept_of

EXACT = route(delivery=Delivery.EXACTLY_ONCE)
PLAIN = replace(route(), name=RouteName("plain"))
NEW_ID = TopicId(UUID(int=2))


def told(source: ObservedCluster, kept: KeptPositions) -> ObservedCluster:
    found = with_kept_positions(source, [EXACT, PLAIN], kept)
    assert isinstance(found, ObservedCluster)
    return found


def test_positions_of_the_group_count_where_the_destination_keeps_none() -> None:
    """Of a route that was at-least-once until a moment ago."""
    of_groups = {EXACT.name: {"flights": {0: 5, 1: 6}, "planes": {0: 7}}, PLAIN.name: {"flights": {0: 8}}}
    source = cluster(JFK, topic("flights"), topic("planes"), topic("new"), positions=of_groups)
    kept = kept_of(
        EXACT.name, ("id of jfk", "flights", "jfk.flights", 50), ("id of jfk", "new", "jfk.new", 1)
    )
    assert told(source, kept).positions == {
        EXACT.name: {"flights": {0: 50, 1: 6}, "planes": {0: 7}, "new": {0: 1}},
        PLAIN.name: {"flights": {0: 8}},
    }
    away = UnreachableCluster(name=AGGREGATE, problem="away")
    assert with_kept_positions(away, [EXACT], kept) is away


def test_positions_of_another_cluster_under_the_same_name_are_no_positions() -> None:
    kept = kept_of(EXACT.name, ("former", "flights", "jfk.flights", 50), (None, "flights", "jfk.flights", 50))
    found = told(cluster(JFK, topic("flights"), positions={EXACT.name: {}}), kept)
    assert found.positions == {EXACT.name: {}}
    assert found.moved == {EXACT.name: {}}


def test_positions_of_copies_in_another_topic_tell_that_the_copies_went_elsewhere() -> None:
    kept = kept_of(EXACT.name, ("id of jfk", "flights", "flights.old", 50))
    found = told(cluster(JFK, topic("flights"), positions={EXACT.name: {"flights": {0: 50}}}), kept)
    assert found.positions == {EXACT.name: {"flights": {0: 50}}}
    assert found.moved == {EXACT.name: {"flights": "flights.old"}}


def test_a_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    kept = kept_of(EXACT.name, ("id of jfk", "flights", "jfk.flights", 50))
    source = cluster(JFK, replace(topic("flights"), topic_id=NEW_ID), positions={EXACT.name: {}})
    assert told(source, kept).positions == {EXACT.name: {"flights": {0: 0}}}
    both = kept_of(EXACT.name, ("id of jfk", "flights", "jfk.flights", 3), topic_id=NEW_ID)
    joined = {EXACT.name: [*kept[EXACT.name], *both[EXACT.name]]}
    assert told(source, joined).positions == {EXACT.name: {"flights": {0: 3}}}
    assert told(source, kept).moved == {EXACT.name: {}}
