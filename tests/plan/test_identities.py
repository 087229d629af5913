"""Clusters told apart, whatever their ids say."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from mirrormaker.plan.diff import make_plan
from mirrormaker.plan.identities import ClusterIdentity, first_names
from mirrormaker.plan.notices import NoticeKind
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import ClusterName
from tests.plan.worlds import AGGREGATE, JFK, LGA, cluster, route, topic, topology, world


def told(*numbers: int) -> list[ObservedTopic]:
    """Topics with these ids; 0: of a cluster that tells none."""
    return [replace(topic(f"t{number}"), topic_id=UUID(int=number)) for number in numbers]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([1, 2], [2, 3], True),
        ([1], [2], False),
        ([1], [], False),
        ([0, 1], [2], True),
    ],
)
def test_clusters_with_one_id_are_told_apart_by_their_topics(
    one: list[int], other: list[int], is_same: bool
) -> None:
    both = [ClusterIdentity.of("x", told(*numbers)) for numbers in (one, other)]
    assert both[0].is_same_as(both[1]) is is_same
    assert both[1].is_same_as(both[0]) is is_same
    assert not both[0].is_same_as(ClusterIdentity.of("y", told(*one)))


def test_the_first_name_of_a_cluster_stands_for_all() -> None:
    found = {
        JFK: ClusterIdentity.of("x", told(1)),
        LGA: ClusterIdentity.of("x", told(2)),
        AGGREGATE: ClusterIdentity.of("x", told(2, 3)),
    }
    away = ClusterName("away")
    assert first_names((JFK, LGA, away, AGGREGATE), found) == {JFK: JFK, LGA: LGA, away: away, AGGREGATE: LGA}


def test_two_clusters_with_one_id_are_copied_between_but_not_where_provenance_tells_them_by_it() -> None:
    seen = world(
        cluster(JFK, *told(1), topic("flights"), cluster_id="x"), cluster(AGGREGATE, *told(2), cluster_id="x")
    )
    assert make_plan(topology(route()), seen, "digest").dangers != ()  # one topic tells no id
    flights = replace(topic("flights"), topic_id=UUID(int=3))
    seen = world(cluster(JFK, flights, cluster_id="x"), cluster(AGGREGATE, *told(2), cluster_id="x"))
    made = make_plan(topology(route()), seen, "digest")
    assert made.is_whole
    assert [step.name for step in made.steps] == ["jfk.flights"]
    made = make_plan(topology(route(provenance=True)), seen, "digest")
    assert not made.is_whole
    assert [notice.line for notice in made.notices if notice.kind is NoticeKind.SHARED_ID] == [
        "jfk-to-aggregate: 'jfk' and 'aggregate' are two clusters, and both have the id x: 'provenance'"
        " cannot tell where records have been"
    ]
